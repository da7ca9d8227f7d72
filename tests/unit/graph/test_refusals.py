"""A graph or a result that cannot be is a failed run with a reason, and never a log that cannot be read."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentrun.graph.types import NodeContext, NodeError, NodeResult, Spawned, Usage
from agentrun.log.errors import StoreUnavailable
from agentrun.proto import log_pb2 as pb
from tests.support.agents import Bench, Crash


def giving(*spawned: Spawned, **more: Any) -> Bench:
    async def start(node: NodeContext) -> NodeResult:
        return NodeResult(spawned=spawned, usage=Usage(tokens_in=7), **more)

    async def leaf(node: NodeContext) -> NodeResult:
        return NodeResult()

    return Bench({"start": start, "leaf": leaf})


def leaf(name: str = "", **more: Any) -> Spawned:
    return Spawned(kind="leaf", name=name, **more)


@pytest.mark.parametrize(
    ("spawned", "message"),
    [
        ([leaf("a"), leaf("a")], "node 'a' is spawned twice"),
        ([leaf("start")], "node 'start' is spawned twice"),
        ([leaf(), leaf("start.0")], "node 'start.0' is spawned twice"),
        ([leaf("a/b")], "'a/b' is no node name"),
        ([leaf("a#1")], "'a#1' is no node name"),
        ([leaf("a!intent")], "'a!intent' is no node name"),
        ([leaf("é")], "'é' is no node name"),
        ([leaf("x" * 129)], "is no node name"),
        ([leaf("a", parents=["b c"])], "'b c' is no node name"),
        ([leaf("attempt-2.2")], "the log's own records"),
        ([leaf("end.1")], "the log's own records"),
        ([Spawned(kind="nope", name="a")], "node 'a' is of the unknown kind 'nope'"),
        ([Spawned(kind="leaf", input="text")], "bytes"),  # type: ignore[arg-type]
    ],
)
def test_a_graph_that_cannot_be_fails_the_run(spawned: list[Spawned], message: str) -> None:
    bench = giving(*spawned)
    outcome = bench.resume()
    assert (outcome.outcome, outcome.reason) == (pb.OUTCOME_FAILED, "InvalidGraph")
    assert message in outcome.message
    assert bench.ids == ["start#1", "end.1"]
    assert bench.history.totals.tokens == 7, "what it cost counts all the same"


def test_names_that_are_nearly_those_of_the_log_are_fine() -> None:
    names = ["attempt-2", "attempt-2.x", "end", "end.", "x.end.1", "reopened"]
    assert giving(*map(leaf, names)).resume().outcome == pb.OUTCOME_SUCCEEDED


@pytest.mark.parametrize("result", [None, b"bytes", {"output": b""}, NodeResult])
def test_what_is_no_result_fails_the_run(result: Any) -> None:
    async def start(node: NodeContext) -> Any:
        return result

    outcome = Bench({"start": start}).resume()
    assert outcome.reason == "InvalidResult" and "no NodeResult" in outcome.message


@pytest.mark.parametrize("more", [{"output": "text"}, {"media_type": "\ud800"}, {"consumed": [1]}])
def test_a_result_that_cannot_be_recorded_fails_the_run(more: Any) -> None:
    bench = giving(**more)
    assert bench.resume().reason == "InvalidResult"
    assert bench.ids == ["start#1", "end.1"]


def test_two_siblings_that_spawn_the_same_node_at_once_cannot_corrupt_the_log() -> None:
    async def start(node: NodeContext) -> NodeResult:
        return NodeResult(spawned=[Spawned(kind="twin", name=f"twin-{i}") for i in range(2)])

    async def twin(node: NodeContext) -> NodeResult:
        await asyncio.sleep(1)
        return NodeResult(spawned=[leaf("child")])

    async def child(node: NodeContext) -> NodeResult:
        return NodeResult()

    bench = Bench({"start": start, "twin": twin, "leaf": child})
    outcome = bench.resume()
    assert outcome.reason == "InvalidGraph" and "'child' is spawned twice" in outcome.message
    assert bench.history.final is not None


def test_a_graph_that_is_stuck_says_what_waits() -> None:
    outcome = giving(leaf("a", parents=["b"]), leaf("b", parents=["a"])).resume()
    assert (outcome.outcome, outcome.reason) == (pb.OUTCOME_FAILED, "Stuck")
    assert outcome.message == "waiting for parents that nothing spawns: a, b"


def test_the_output_of_a_node_that_is_not_done_is_a_failure_with_its_name() -> None:
    async def start(node: NodeContext) -> NodeResult:
        return NodeResult(output=await node.output("other"))

    outcome = Bench({"start": start}).resume()
    assert outcome.reason == "NoSuchNode" and "'other'" in outcome.message


def test_a_blob_store_that_cannot_write_stops_the_process_and_loses_nothing() -> None:
    """An error that is the machine's is not the run's: no final record."""
    full = {"now": True}

    async def start(node: NodeContext) -> NodeResult:
        assert bench.executor is not None
        if full["now"]:

            async def put(*_: Any) -> Any:
                raise OSError(28, "No space left on device")

            bench.executor.log._blobs.put = put  # type: ignore[assignment,method-assign]
        return NodeResult(output=b"x" * 9000)

    bench = Bench({"start": start})
    with pytest.raises(StoreUnavailable, match="No space left"):
        bench.run()
    assert bench.ids == []
    full["now"] = False
    assert bench.resume().outcome == pb.OUTCOME_SUCCEEDED


def test_a_blob_store_that_cannot_be_read_stops_the_process_and_fails_no_node() -> None:
    async def start(node: NodeContext) -> NodeResult:
        return NodeResult(output=b"x" * 9000, spawned=[leaf("leaf")])

    async def reader(node: NodeContext) -> NodeResult:
        assert bench.executor is not None
        if away["now"]:

            async def get(*_: Any) -> Any:
                raise OSError(5, "Input/output error")

            bench.executor.log._blobs.get = get  # type: ignore[assignment,method-assign]
        return NodeResult(output=await node.output("start"))

    away = {"now": True}
    bench = Bench({"start": start, "leaf": reader})
    with pytest.raises(StoreUnavailable, match="Input/output error"):
        bench.run()
    assert bench.ids == ["start"]
    away["now"] = False
    assert bench.resume().outcome == pb.OUTCOME_SUCCEEDED


# --- intents


def intending(*, fail: bool = False) -> Bench:
    async def start(node: NodeContext) -> NodeResult:
        seen.append((node.try_number, node.interrupted))
        await node.intend()
        await node.intend()
        await asyncio.sleep(1)
        if fail and node.try_number == 1:
            raise NodeError("Flaky", "again", retryable=True)
        return NodeResult()

    seen: list[tuple[int, bool]] = []
    bench = Bench({"start": start})
    bench.seen = seen  # type: ignore[attr-defined]
    return bench


def test_an_intent_stands_once_a_try() -> None:
    bench = intending(fail=True)
    assert bench.resume().outcome == pb.OUTCOME_SUCCEEDED
    assert bench.ids == ["start!intent", "start#1", "start#2!intent", "start", "end.1"]
    assert bench.seen == [(1, False), (2, False)]  # type: ignore[attr-defined]


def test_after_a_crash_behind_the_intent_the_node_is_told_and_its_intent_still_stands() -> None:
    bench = intending()
    assert bench.run(Crash(append=3)) is None
    assert bench.resume().outcome == pb.OUTCOME_SUCCEEDED
    assert bench.ids == ["start!intent", "start", "end.2"]
    assert bench.seen == [(1, False), (1, True)]  # type: ignore[attr-defined]
