"""Agents at work at once share what room is left in the budget: none waits for itself, and together
they spend at most one answer too much."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.agents import AgentBench, agent, manifest


def fanned(width: int, sub: dict[str, Any], **budget: Any) -> AgentBench:
    """Sub-agents that all ask at the same time, in one batch."""
    calls: list[dict[str, Any]] = [{"name": "sub", "arguments": {"task": f"part {n}"}} for n in range(width)]
    usage = {"inputTokens": 1, "outputTokens": 1}
    turns: list[dict[str, Any]] = [{"toolCalls": calls, "usage": usage}, {"text": "done", "usage": usage}]
    what = manifest(turns, [{"agent": "sub"}], agents={"sub": sub}, budget=budget, concurrency=64)
    return AgentBench(what)


def test_an_agent_that_waited_for_room_and_is_then_told_to_pause_goes_on() -> None:
    """There is room for one at a time. The first is refused for three seconds; the second, which gets
    its room, finds the pause, and asks for the same room again."""
    refused = {"error": {"status": 429, "message": "slow down", "retryAfterSeconds": 3}}
    sub = agent([refused, {"text": "a part", "usage": {"inputTokens": 5, "outputTokens": 5}}])
    bench = fanned(2, sub, tokens=5000)
    began = bench.loop.time()
    assert bench.resume().reason == "Completed"
    assert bench.loop.time() - began < 30
    assert bench.result("call-1-0").content == bench.result("call-1-1").content == "a part"


def test_fifty_agents_at_once_with_room_for_five_overspend_by_one_answer_at_most() -> None:
    usage = {"inputTokens": 100, "outputTokens": 900}
    sub = agent([{"text": "a part", "delaySeconds": 1, "usage": usage}])
    sub["model"]["settings"] = {"maxTokens": 900}
    bench = fanned(50, sub, tokens=5002)
    assert bench.resume().reason == "BudgetExceeded"
    asked = [request for request in bench.asked if request.scope]
    assert 5 <= len(asked) <= 6
    assert bench.history.totals.tokens == 2 + 1000 * len(asked)


@pytest.mark.parametrize(
    ("name", "at_once"),
    [("anthropic:claude", 1), ("openai:gpt", 4)],
)
def test_room_is_kept_for_the_largest_answer_that_is_asked_for(name: str, at_once: int) -> None:
    """Without maxTokens; Anthropic's models are asked for more than others are thought to say."""
    from agentrun.agent.ask import AgentModel

    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

    model = AgentModel(model=Named(name), settings={}, timeout_seconds=1, limits=())  # type: ignore[arg-type]
    assert 17_000 // model.reserved_output_tokens == at_once
