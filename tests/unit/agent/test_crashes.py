"""Kill the process anywhere, as often as you like: the same answer, the same log, nothing done twice."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from agentrun.graph.executor import Executor, RetryWaits
from agentrun.log.store import AttemptOutcome
from agentrun.proto import log_pb2
from tests.support.agents import AgentBench, Crash, During, agent, call, manifest, tool

pytestmark = pytest.mark.filterwarnings(
    # A call that is cut off before its first step leaves its coroutine behind.
    "ignore:coroutine 'PythonTool._run' was never awaited:RuntimeWarning",
)


def story(*, unsafe: bool = False) -> Mapping[str, Any]:
    """Fifteen steps and more: turns, tools at once, a sub-agent with a tool of its own, a failed try."""
    effect = "unsafe" if unsafe else "idempotent"
    tools = [tool(name, effect, function="echo") for name in ("one", "two", "three")]
    inner = agent(
        [{"toolCalls": [call("inner", text="i1"), call("inner", text="i2")]}, {"text": "from below"}],
        [tool("inner", effect, function="echo")],
    )
    turns: list[dict[str, Any]] = [
        {"text": "first", "toolCalls": [call("one", "id", text="a"), call("two", "id", text="b")]},
        {"error": {"status": 503, "message": "busy"}},
        {"thinking": "hm", "toolCalls": [call("helper", "", task="look below"), call("three", text="c")]},
        {"text": ""},
        {"toolCalls": [call("one", "id", text="d", seconds=0.5), call("nope"), call("two", text="e")]},
        {"text": "the answer"},
    ]
    return manifest(turns, [*tools, {"agent": "helper"}], agents={"helper": inner}, budget={"retries": 1000})


def new(seed: int = 0, **more: Any) -> AgentBench:
    return AgentBench(story(**more), seed=seed, waits=RetryWaits(first=0.1, last=0.2))


WHOLE = new()
WHOLE.resume()
APPENDS = len(WHOLE.rows)


def values(bench: AgentBench) -> Counter[tuple[str, str]]:
    """How often each call was entered: (node, what it was given)."""
    return Counter((seen.node_id, seen.value) for seen in bench.calls if seen.tool == "echo")


def check_whole(bench: AgentBench) -> None:
    assert bench.answer == "the answer"
    assert bench.shape() == WHOLE.shape()
    assert len(set(bench.ids)) == len(bench.ids)
    assert bench.database.runs[bench.run_id].row.ended
    bench.check_transcripts()
    assert set(values(bench)) == set(values(WHOLE))


def test_the_story_has_all_of_its_steps() -> None:
    assert APPENDS >= 25
    check_whole(WHOLE)
    assert set(values(WHOLE).values()) == {1}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("append", range(1, APPENDS + 1))
def test_a_crash_at_any_step_costs_at_most_what_was_in_flight(append: int, after: bool) -> None:
    bench = new()
    assert bench.run(Crash(append=append, after=after)) is None
    recorded = set(bench.history.done)
    in_flight = {seen.node_id for seen in bench.calls if seen.tool == "echo" and seen.node_id not in recorded}
    if bench.history.final is None:
        assert bench.resume(previous=AttemptOutcome.CRASHED).reason == "Completed"
    check_whole(bench)
    for (node, _), count in values(bench).items():
        assert count == 1 or (count == 2 and node in in_flight), node
    keys = {seen.node_id: seen.key for seen in bench.calls}
    assert all(seen.key == keys[seen.node_id] for seen in bench.calls)


@pytest.mark.parametrize("append", range(1, APPENDS + 12, 2))
def test_no_unsafe_call_is_ever_made_twice(append: int) -> None:
    bench = new(unsafe=True)
    if bench.run(Crash(append=append)) is None:
        bench.resume()
    assert bench.answer == "the answer"
    assert set(values(bench).values()) == {1}
    bench.check_transcripts()


def test_a_process_that_dies_after_every_record_gets_there_all_the_same() -> None:
    bench = new()
    while bench.run(Crash(append=2, after=True)) is None and bench.history.final is None:
        pass
    assert len(bench.stores) >= APPENDS - 5
    check_whole(bench)


def draining(seconds: float, within: float) -> During:
    async def during(executor: Executor) -> None:
        await asyncio.sleep(seconds)
        executor.pause("Terminated", within_seconds=within)

    return during


@pytest.mark.parametrize("chunk", range(4))
def test_random_crashes_and_drains_end_in_the_same_answer(chunk: int) -> None:
    for seed in range(chunk * 30, chunk * 30 + 30):
        rng = random.Random(seed)
        bench = new(seed, unsafe=seed % 3 == 0)
        for _ in range(rng.randint(1, 5)):
            if rng.random() < 0.5:
                bench.run(Crash(append=rng.randint(1, 12), after=rng.random() < 0.5))
            else:
                bench.run(during=draining(rng.random() * 1.5, rng.choice([0.0, 0.05, 30.0])))
            if bench.history.final is not None:
                break
        if bench.history.final is None:
            assert bench.resume().reason == "Completed", f"seed {seed}"
        assert bench.answer == "the answer", f"seed {seed}"
        bench.check_transcripts()
        if seed % 3:
            check_whole(bench)
        else:
            assert set(values(bench).values()) == {1}, f"seed {seed}"


@pytest.mark.parametrize("seed", range(12))
def test_a_cancel_at_any_moment_keeps_what_was_done(seed: int) -> None:
    rng = random.Random(seed)
    bench = new(seed)

    async def cancel(executor: Executor) -> None:
        await asyncio.sleep(rng.random() * 1.2)
        executor.cancel(at_once=seed % 2 == 0)

    outcome = bench.resume(during=cancel)
    assert outcome.outcome in (log_pb2.OUTCOME_CANCELLED, log_pb2.OUTCOME_SUCCEEDED)
    history = bench.history
    assert history.final is not None and history.final_seq == history.head
    whole = WHOLE.shape()
    assert all(shape == whole[id_] for id_, shape in bench.shape().items() if not id_.startswith("end."))
    bench.check_transcripts()
