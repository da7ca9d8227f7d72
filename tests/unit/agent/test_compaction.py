"""A conversation stays inside its model's window, and is told the same by whoever goes on with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest

from agentrun.agent import prepare
from agentrun.graph.executor import RetryWaits
from agentrun.graph.types import NodeKind, Spawned
from agentrun.log.store import AttemptOutcome
from agentrun.models import Model, ModelError, ModelRequest, ModelResponse, build_model, estimate_tokens
from agentrun.proto import log_pb2
from agentrun.proto import transcript_pb2 as pb
from tests.support.agents import AgentBench, Asked, Crash, RecordingModel, agent, call, manifest, tool

WINDOW = 4000
LINES = tool("lines")
COMPACTION = {"resultBytes": 4096, "compaction": {}}


@dataclass
class StrictModel:
    """Counts tokens as the estimate does, times `factor`, and refuses what does not fit."""

    model: Model
    window: int
    factor: float
    counts: list[int]

    @property
    def name(self) -> str:
        return self.model.name

    async def request(self, request: ModelRequest) -> ModelResponse:
        count = round(estimate_tokens(request) * self.factor)
        self.counts.append(count)
        if count > self.window:
            raise ModelError("ContextLengthExceeded", f"{count} tokens", retryable=False)
        return await self.model.request(request)

    async def close(self) -> None:
        await self.model.close()


class WindowBench(AgentBench):
    """An agent whose model has a window. `counts`: of each request, in the provider's tokens."""

    def __init__(self, manifest: Mapping[str, Any], *, factor: float = 1.0) -> None:
        super().__init__(manifest, waits=RetryWaits(first=0.1, last=0.2))
        self.factor = factor
        self.counts: list[int] = []

    def plan(self) -> tuple[Mapping[str, NodeKind], Spawned]:
        def strict(*args: Any, **more: Any) -> Any:
            inner = StrictModel(build_model(*args, **more), WINDOW, self.factor, self.counts)
            return RecordingModel(inner, self.asked, self.refusals)

        with mock.patch("agentrun.agent.program.build_model", strict):
            prepared = prepare(self.spec, {})
        return prepared.kinds, prepared.root


def story(
    turns: list[dict[str, Any]], context: Mapping[str, Any] = COMPACTION, **spec: Any
) -> dict[str, Any]:
    found = manifest([*turns, {"text": "done"}], [LINES], **spec)
    found["spec"]["agent"]["model"] |= {"contextWindow": WINDOW}
    found["spec"]["agent"]["context"] = dict(context)
    return found


def results(count: int, lines: int = 150) -> list[dict[str, Any]]:
    """Turns with a result of 20 bytes a line, each another."""
    return [
        {"thinking": f"thought {k}", "toolCalls": [call("lines", count=lines, first=1000 * k)]}
        for k in range(1, count + 1)
    ]


def talk(count: int) -> list[dict[str, Any]]:
    """Turns whose own text is long: there are no results to put aside."""
    return [
        {"text": f"turn {k}: " + "x" * 1500, "toolCalls": [call("lines", count=1, first=k)]}
        for k in range(1, count + 1)
    ]


def requests(bench: AgentBench) -> dict[str, Asked]:
    """The newest request of each node."""
    return {asked.key.partition("#")[0]: asked for asked in bench.asked}


def text(asked: Asked) -> str:
    return "\n".join(str(message.get("content")) for message in asked.body["messages"])


def shortened(bench: AgentBench) -> list[str]:
    return [id_ for id_ in bench.ids if "/" in id_ and "#" not in id_]


def test_old_results_are_put_aside_first_and_no_request_is_made_for_it() -> None:
    bench = WindowBench(story(results(6)))
    assert bench.resume().reason == "Completed"
    assert shortened(bench) == ["turn-4/results", "turn-6/results"]
    assert len(bench.asked) == 7 and max(bench.counts) <= WINDOW
    assert bench.history.totals.turns == 7
    told = text(requests(bench)["turn-4"])
    assert '[a result of 3000 bytes was here; read_result(result="call-1-0") shows it]' in told
    assert "line 00000000003149" in told and "line 00000000001149" not in told


def test_between_two_shortenings_the_beginning_of_the_requests_stays_the_same() -> None:
    bench = WindowBench(story(results(40, lines=60)))
    assert bench.resume().reason == "Completed"
    at = {int(id_.partition("/")[0].removeprefix("turn-")) for id_ in shortened(bench)}
    found = requests(bench)
    for turn in range(2, 42):
        before, now = found[f"turn-{turn - 1}"].messages, found[f"turn-{turn}"].messages
        assert (now[: len(before)] == before) == (turn not in at), turn
    assert 4 <= len(at) <= 14, at


def test_old_turns_are_replaced_by_a_summary_that_the_model_writes() -> None:
    bench = WindowBench(story(talk(8), prompt="The prompt."))
    assert bench.resume().reason == "Completed"
    assert shortened(bench) == ["turn-7/summary"]
    record = bench.record("turn-7/summary")
    summary = pb.Shortening.FromString(record.output.inline)
    assert (summary.summary_to, summary.summary) == (4, "9 messages.")
    assert (record.kind, record.cost.turns) == ("summarise", 1) and record.cost.tokens_in > 0
    assert bench.history.totals.turns == 10
    asked = requests(bench)
    ask = asked["turn-7/summary"].messages
    assert ask[:-1] == asked["turn-6"].messages[: len(ask) - 1], "the provider's cache has the beginning"
    assert asked["turn-7/summary"].body["tools"] == asked["turn-6"].body["tools"]
    first, second = asked["turn-7"].body["messages"][1:3]
    assert first["role"] == "user" and first["content"].startswith("The prompt.\n")
    assert "9 messages." in first["content"]
    assert second["content"].startswith("turn 5: ")
    assert not bench.refusals and max(bench.counts) <= WINDOW


def test_the_thoughts_of_turns_that_are_dropped_go_with_them_and_the_others_stay() -> None:
    turns = [{"thinking": f"thought {k}", **turn} for k, turn in enumerate(talk(8), 1)]
    bench = WindowBench(story(turns))
    bench.resume()
    told = [
        pb.AssistantTurn.FromString(d) for kind, d in requests(bench)["turn-7"].messages if "Turn" in kind
    ]
    assert [turn.parts[0].thinking.text for turn in told] == ["thought 5", "thought 6"]


def test_a_summary_takes_up_the_one_before_it() -> None:
    bench = WindowBench(story(talk(20)))
    assert bench.resume().reason == "Completed"
    steps = shortened(bench)
    assert len(steps) >= 3
    later = requests(bench)[steps[1]].body["messages"]
    assert "A summary of it" in later[1]["content"] and later[-1]["role"] == "user"
    assert max(bench.counts) <= WINDOW


@pytest.mark.parametrize("factor", [1.2, 1.6, 2.5])
@pytest.mark.parametrize("turns", [results(12), talk(12)], ids=["results", "talk"])
def test_a_provider_that_counts_more_is_followed_once_a_turn(
    turns: list[dict[str, Any]], factor: float
) -> None:
    bench = WindowBench(story(turns, budget={"retries": 20}), factor=factor)
    outcome = bench.resume()
    assert outcome.reason == "Completed", (outcome, shortened(bench))
    refused = [id_ for id_ in shortened(bench) if id_.endswith("-refused")]
    assert len(refused) == len({id_.partition("/")[0] for id_ in refused})
    retries = bench.history.totals.retries
    assert retries == len(refused) and retries <= 2, "the window is known from the first refusal on"


def test_a_provider_that_refuses_still_ends_the_run_with_that_reason() -> None:
    bench = WindowBench(story(talk(12)), factor=100)
    outcome = bench.resume()
    assert (outcome.outcome, outcome.reason) == (log_pb2.OUTCOME_FAILED, "ContextLengthExceeded")
    assert len(bench.counts) <= 4


@pytest.mark.parametrize("turns", [results(12), talk(12)], ids=["results", "talk"])
def test_without_compaction_a_run_that_outgrows_its_model_ends_with_that_reason(
    turns: list[dict[str, Any]],
) -> None:
    bench = WindowBench(story(turns, {"resultBytes": 4096}))
    outcome = bench.resume()
    assert (outcome.outcome, outcome.reason) == (log_pb2.OUTCOME_FAILED, "ContextLengthExceeded")
    assert shortened(bench) == [] and sum(count > WINDOW for count in bench.counts) == 1


def test_a_summary_that_fails_is_asked_for_again_out_of_the_one_budget_of_retries() -> None:
    bench = WindowBench(story(talk(8)))
    failures = iter([ModelError("Overloaded", "busy", retryable=True)])
    inner = StrictModel.request

    async def request(self: StrictModel, asked: ModelRequest) -> ModelResponse:
        if asked.turn == 0 and (error := next(failures, None)) is not None:
            raise error
        return await inner(self, asked)

    with mock.patch.object(StrictModel, "request", request):
        assert bench.resume().reason == "Completed"
    assert "turn-7/summary#1" in bench.ids and bench.history.totals.retries == 1


def test_summaries_count_against_the_budget_of_turns() -> None:
    bench = WindowBench(story(talk(8), budget={"turns": 7}))
    assert bench.resume().reason == "BudgetExceeded"
    # The seventh is the turn's own, which waits for its summary: that would be the eighth.
    assert bench.history.totals.turns == 6 and shortened(bench) == []
    bench.budget["turns"] = 20
    assert bench.resume().reason == "Completed"
    assert bench.history.totals.turns == 10


def long_story(**more: Any) -> WindowBench:
    turns = [*results(8), *talk(9)]
    return WindowBench(story(turns, budget={"retries": 100, "turns": 100}), **more)


@pytest.mark.parametrize("factor", [1.0, 1.7])
def test_a_crash_at_any_record_changes_no_request(factor: float) -> None:
    whole = long_story(factor=factor)
    assert whole.resume().reason == "Completed"
    assert {id_.partition("/")[2] for id_ in shortened(whole)} >= {"results", "summary"}
    expected = {asked.key.partition("#")[0]: asked.messages for asked in whole.asked}
    for append in range(2, len(whole.rows), 1 if factor == 1 else 3):
        for after in (False, True):
            bench = long_story(factor=factor)
            assert bench.run(Crash(append=append, after=after)) is None
            if bench.history.final is None:
                bench.resume(previous=AttemptOutcome.DISRUPTED)
            assert bench.shape() == whole.shape(), append
            assert {key: asked.messages for key, asked in requests(bench).items()} == expected, append
            assert not bench.refusals


def test_a_sub_agent_has_a_window_of_its_own() -> None:
    inner = agent(
        [*talk(8), {"text": "from below"}],
        [LINES],
        context={"resultBytes": 4096, "compaction": {}},
        model={
            "name": "scripted:test",
            "contextWindow": WINDOW,
            "script": {"turns": [*talk(8), {"text": "from below"}]},
        },
    )
    turns: list[dict[str, Any]] = [{"toolCalls": [call("helper", task="look")]}, {"text": "done"}]
    bench = WindowBench(manifest(turns, [{"agent": "helper"}], agents={"helper": inner}))
    assert bench.resume().reason == "Completed"
    assert "call-1-0/turn-7/summary" in bench.ids
    assert bench.result("call-1-0").content == "from below"


def test_what_is_not_told_any_more_is_not_held() -> None:
    from agentrun.agent.conversation import Conversation

    held: list[Conversation] = []
    inner = Conversation.__init__

    def remember(self: Conversation, prompt: str) -> None:
        inner(self, prompt)
        held.append(self)

    with mock.patch.object(Conversation, "__init__", remember):
        bench = WindowBench(story(talk(30)))
        bench.resume()
    messages = held[0]._messages
    assert len(messages) <= 12 and len(held[0]._told) <= 6 and len(held[0]._turns) <= 8
