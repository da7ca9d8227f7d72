"""A record holds what its step produced, and a long run costs what its steps cost."""

from __future__ import annotations

import time

import pytest

from tests.support.agents import AgentBench, Crash, call, manifest

TURNS = 1000


@pytest.fixture(scope="module")
def long_chat() -> AgentBench:
    """A thousand turns with a tool call each, of equal content."""
    usage = {"inputTokens": 1000, "outputTokens": 20}
    turns = [
        {"text": f"turn {k:04}", "toolCalls": [call("echo", text=f"say {k:04}")], "usage": usage}
        for k in range(TURNS)
    ]
    prompt = "THE PROMPT " * 500
    bench = AgentBench(
        manifest([*turns, {"text": "done"}], prompt=prompt, budget={"turns": 5000}), record=False
    )
    began = time.perf_counter()
    assert bench.run(Crash(append=TURNS)) is None
    bench.resume()
    bench.seconds = time.perf_counter() - began  # type: ignore[attr-defined]
    return bench


def test_the_record_of_the_last_turn_is_no_larger_than_that_of_the_first(long_chat: AgentBench) -> None:
    sizes = {record.id: len(record.SerializeToString()) for record in long_chat.records}
    for kind in ("turn-{}", "tools-{}", "call-{}-0"):
        assert sizes[kind.format(TURNS)] <= 1.1 * sizes[kind.format(1)]


def test_the_prompt_stands_in_no_record(long_chat: AgentBench) -> None:
    assert not any(b"THE PROMPT" in data for _, data in long_chat.rows)
    assert not any(b"Be brief." in data for _, data in long_chat.rows)


def test_a_thousand_turns_take_seconds(long_chat: AgentBench) -> None:
    assert len(long_chat.history.done) == 3 * TURNS + 3
    assert long_chat.answer == "done"
    assert long_chat.seconds < 30  # type: ignore[attr-defined]
