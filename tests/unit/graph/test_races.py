"""What happens at the same moment as a run's end: one final record, nothing behind it, and no node twice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from agentrun.graph.executor import Executor, Outcome, RetryWaits
from agentrun.graph.types import NodeContext, NodeError, NodeKind, NodeResult, Spawned
from agentrun.log.store import AttemptOutcome, LogRow
from agentrun.proto import log_pb2 as pb
from tests.support.agents import Bench, During

DONE = pb.Final(outcome=pb.OUTCOME_SUCCEEDED, reason="Completed")


def slow(executor: Executor, bench: Bench, *, seconds: float, when: str, final: bool = True) -> None:
    """Final records (else the others) take so long on their way to the database, or their answers back."""

    async def hook(now: str, rows: Sequence[LogRow]) -> None:
        if now == when and rows[0].final == final:
            await asyncio.sleep(seconds)

    bench.stores[-1].hook = hook


def finals(bench: Bench) -> list[str]:
    assert bench.history.final_seq in (0, bench.history.head), "nothing stands behind it"
    return [record.id for record in bench.records if record.HasField("final")]


def run_on(bench: Bench, during: During, *, seconds: float) -> Outcome:
    """As `bench.resume`; the process lives on for so long, and so does whatever heeds nothing."""
    found: list[object] = []
    kill = bench.loop.kill

    async def main() -> None:
        found.append(await bench._main(None, during, AttemptOutcome.DISRUPTED))
        await asyncio.sleep(seconds)

    bench.loop.kill = lambda process: None  # type: ignore[method-assign]
    try:
        bench.loop.run(main())
    finally:
        bench.loop.kill = kill  # type: ignore[method-assign]
    assert not bench.loop.errors, bench.loop.errors
    assert isinstance(found[0], Outcome), found[0]
    return found[0]


# --- a stop while the final record is under way


async def cancel_at_once(executor: Executor) -> None:
    executor.cancel("shutdown: Terminate", at_once=True)


async def drain_at_once(executor: Executor) -> None:
    executor.pause("Terminated", within_seconds=0)


async def drain_that_expires(executor: Executor) -> None:
    executor.pause("Terminated", within_seconds=0.1)


async def drain_then_terminate(executor: Executor) -> None:
    executor.pause("Terminated", within_seconds=0.1)
    executor.cancel("shutdown: Terminate", at_once=True)


STOPS = [cancel_at_once, drain_at_once, drain_that_expires, drain_then_terminate]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("stop", STOPS)
def test_a_stop_while_a_nodes_final_record_is_under_way_comes_too_late(stop: During, when: str) -> None:
    async def end(node: NodeContext) -> NodeResult:
        return NodeResult(output=b"answer", final=DONE)

    bench = Bench({"end": end}, Spawned(kind="end", name="end"))

    async def during(executor: Executor) -> None:
        slow(executor, bench, seconds=5, when=when)
        await asyncio.sleep(1)
        await stop(executor)

    outcome = run_on(bench, during, seconds=60)
    assert finals(bench) == ["end"]
    assert (outcome.outcome, outcome.reason) == (pb.OUTCOME_SUCCEEDED, "Completed")
    assert bench.database.runs[bench.run_id].row.ended


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("stop", STOPS)
def test_a_stop_while_the_runs_own_final_record_is_under_way_comes_too_late(stop: During, when: str) -> None:
    async def only(node: NodeContext) -> NodeResult:
        return NodeResult(output=b"answer")

    bench = Bench({"only": only}, Spawned(kind="only", name="only"))

    async def during(executor: Executor) -> None:
        slow(executor, bench, seconds=5, when=when)
        await asyncio.sleep(1)
        await stop(executor)

    assert run_on(bench, during, seconds=60).reason == "Completed"
    assert finals(bench) == ["end.1"]


@pytest.mark.parametrize("seconds", [0.0, 0.5])
def test_a_cancel_at_once_before_the_final_record_is_under_way_comes_first(seconds: float) -> None:
    """The node that ends the run waits for its sibling, and is given up with it."""

    async def start(node: NodeContext) -> NodeResult:
        return NodeResult(spawned=[Spawned(kind="end", name="end"), Spawned(kind="long", name="long")])

    async def end(node: NodeContext) -> NodeResult:
        return NodeResult(final=DONE)

    async def long(node: NodeContext) -> NodeResult:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(seconds)
        return NodeResult()

    bench = Bench({"start": start, "end": end, "long": long})

    async def during(executor: Executor) -> None:
        await asyncio.sleep(3)
        await cancel_at_once(executor)

    assert run_on(bench, during, seconds=60).reason == "Cancelled"
    assert finals(bench) == ["end.1"]
    assert bench.ids == ["start", "end.1"]


def test_a_result_that_is_under_way_at_a_stop_stands_before_the_end() -> None:
    async def start(node: NodeContext) -> NodeResult:
        return NodeResult(spawned=[Spawned(kind="start", name="more")])

    bench = Bench({"start": start})

    async def during(executor: Executor) -> None:
        slow(executor, bench, seconds=5, when="before", final=False)
        await asyncio.sleep(1)
        await cancel_at_once(executor)

    assert run_on(bench, during, seconds=60).reason == "Cancelled"
    assert bench.ids == ["start", "end.1"]


# --- others in flight while the final record is under way


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_node_over_its_time_while_the_final_record_is_under_way_records_nothing(
    when: str, beside: bool
) -> None:
    """`beside`: its handler does other work while its graph runs, and would call out."""
    called: list[float] = []

    async def start(node: NodeContext) -> NodeResult:
        return NodeResult(spawned=[Spawned(kind="parent", name="p"), Spawned(kind="end", name="end")])

    async def parent(node: NodeContext) -> NodeResult:
        async def other() -> None:
            await asyncio.sleep(3)
            await node.intend()
            await node.confirm()
            called.append(bench.loop.time())

        work = [node.subgraph(Spawned(kind="child", name="c"))] + ([other()] if beside else [])
        await asyncio.gather(*work)
        return NodeResult()

    async def child(node: NodeContext) -> NodeResult:
        raise NodeError("Flaky", "later", retryable=True)

    async def end(node: NodeContext) -> NodeResult:
        await asyncio.sleep(1)
        return NodeResult(final=DONE)

    kinds = {
        "start": start,
        "parent": NodeKind(name="parent", run=parent, timeout_seconds=4),
        "child": child,
        "end": end,
    }
    bench = Bench(kinds, waits=RetryWaits(first=60, last=60))

    async def during(executor: Executor) -> None:
        slow(executor, bench, seconds=10, when=when)

    assert run_on(bench, during, seconds=60).reason == "Completed"
    assert finals(bench) == ["end"]
    assert bench.ids == ["start", "p/c#1", "end"]
    assert not called


def test_a_large_result_on_its_way_to_the_blobs_when_the_run_ends_does_no_harm() -> None:
    """Its node only waited for a graph of its own, which it gave up: the end had not to wait for it."""

    async def start(node: NodeContext) -> NodeResult:
        return NodeResult(spawned=[Spawned(kind="parent", name="p"), Spawned(kind="end", name="end")])

    async def parent(node: NodeContext) -> NodeResult:
        try:
            async with asyncio.timeout(2):
                await node.subgraph(Spawned(kind="child", name="c"))
        except TimeoutError:
            pass
        return NodeResult(output=b"p" * 20_000)

    async def child(node: NodeContext) -> NodeResult:
        raise NodeError("Flaky", "later", retryable=True)

    async def end(node: NodeContext) -> NodeResult:
        await asyncio.sleep(1)
        return NodeResult(output=b"e" * 20_000, final=DONE)

    bench = Bench(
        {"start": start, "parent": parent, "child": child, "end": end}, waits=RetryWaits(first=60, last=60)
    )

    async def during(executor: Executor) -> None:
        store = bench.stores[-1]
        put = store.put_blob

        async def slow_put(run_id: object, digest: bytes, data: bytes) -> None:
            await asyncio.sleep(5 if data.startswith(b"e") else 10)
            await put(bench.run_id, digest, data)

        store.put_blob = slow_put  # type: ignore[method-assign,assignment]

    assert run_on(bench, during, seconds=60).reason == "Completed"
    assert finals(bench) == ["end"]


# --- a child that heeds its cancel late


@pytest.mark.parametrize("late", [0.3, 3.0])
@pytest.mark.parametrize("large", [False, True])
def test_a_child_that_heeds_its_cancel_late_has_one_record(late: float, large: bool) -> None:
    """Its parent is over its time, and tries again while the child is still at its first try."""
    tries: list[str] = []
    output = b"x" * (20_000 if large else 1)

    async def start(node: NodeContext) -> NodeResult:
        return NodeResult(spawned=[Spawned(kind="parent", name="p"), Spawned(kind="other", name="o")])

    async def other(node: NodeContext) -> NodeResult:
        await asyncio.sleep(60)
        return NodeResult()

    async def parent(node: NodeContext) -> NodeResult:
        return NodeResult(output=await node.subgraph(Spawned(kind="child", name="c")))

    async def child(node: NodeContext) -> NodeResult:
        tries.append(node.node_id)
        try:
            await asyncio.sleep(10 if len(tries) == 1 else 0.2)
        except asyncio.CancelledError:
            await asyncio.sleep(late)
        return NodeResult(output=output, spawned=[Spawned(kind="leaf", name="leaf")])

    async def leaf(node: NodeContext) -> NodeResult:
        return NodeResult(output=b"leaf")

    kinds = {
        "start": start,
        "other": other,
        "parent": NodeKind(name="parent", run=parent, timeout_seconds=4),
        "child": child,
        "leaf": leaf,
    }
    bench = Bench(kinds, waits=RetryWaits(first=0.05))
    assert bench.resume().reason == "Completed"
    assert sorted(bench.ids) == ["end.1", "o", "p", "p#1", "p/c", "p/leaf", "start"]
    assert bench.history.done["p"].output.inline == b"leaf"


def test_a_child_that_was_cut_off_on_its_way_to_the_blobs_runs_again_with_its_successors() -> None:
    puts: list[float] = []

    async def parent(node: NodeContext) -> NodeResult:
        return NodeResult(output=await node.subgraph(Spawned(kind="child", name="c")))

    async def child(node: NodeContext) -> NodeResult:
        return NodeResult(output=b"x" * 20_000, spawned=[Spawned(kind="leaf", name="leaf")])

    async def leaf(node: NodeContext) -> NodeResult:
        return NodeResult(output=b"leaf")

    kinds = {"parent": NodeKind(name="parent", run=parent, timeout_seconds=4), "child": child, "leaf": leaf}
    bench = Bench(kinds, Spawned(kind="parent", name="p"), waits=RetryWaits(first=0.05))

    async def during(executor: Executor) -> None:
        store = bench.stores[-1]
        put = store.put_blob

        async def slow_put(run_id: object, digest: bytes, data: bytes) -> None:
            puts.append(bench.loop.time())
            await asyncio.sleep(10 if len(puts) == 1 else 0.1)
            await put(bench.run_id, digest, data)

        store.put_blob = slow_put  # type: ignore[method-assign,assignment]

    outcome = bench.resume(during=during)
    assert outcome.reason == "Completed", outcome
    assert bench.ids == ["p#1", "p/c", "p/leaf", "p", "end.1"]


class Late:
    """A parent over its time, whose child heeds its cancel after `late` seconds and fails."""

    def __init__(self, late: float, *, gives_up: bool) -> None:
        self.late = late
        self.gives_up = gives_up
        self.calls: list[float] = []
        kinds = {
            "start": self.start,
            "other": self.other,
            "parent": NodeKind(name="parent", run=self.parent, timeout_seconds=0 if gives_up else 4),
            "child": self.child,
        }
        self.bench = Bench(kinds, waits=RetryWaits(first=1, last=1))

    async def start(self, node: NodeContext) -> NodeResult:
        return NodeResult(spawned=[Spawned(kind="parent", name="p"), Spawned(kind="other", name="o")])

    async def other(self, node: NodeContext) -> NodeResult:
        await asyncio.sleep(60)
        return NodeResult()

    async def parent(self, node: NodeContext) -> NodeResult:
        try:
            async with asyncio.timeout(4 if self.gives_up else None):
                await node.subgraph(Spawned(kind="child", name="c"))
        except TimeoutError:
            assert self.gives_up
        return NodeResult()

    async def child(self, node: NodeContext) -> NodeResult:
        self.calls.append(self.bench.loop.time())
        if len(self.calls) > 1:
            return NodeResult()
        try:
            await asyncio.sleep(50)
        except asyncio.CancelledError:
            await asyncio.sleep(self.late)
        raise NodeError("Flaky", "again", retryable=True, retry_after_seconds=2.5)


@pytest.mark.parametrize("late", [0.2, 1.5, 2.0])
def test_a_child_that_heeds_its_cancel_late_and_fails_waits_once_and_is_tried_once(late: float) -> None:
    graph = Late(late, gives_up=False)
    assert graph.bench.resume().reason == "Completed"
    assert sorted(graph.bench.ids) == ["end.1", "o", "p", "p#1", "p/c", "p/c#1", "start"]
    assert len(graph.calls) == 2
    assert graph.calls[1] - graph.calls[0] >= 4 + late + 2.5


@pytest.mark.parametrize("late", [0.2, 1.5])
def test_a_child_that_fails_when_its_parent_has_given_it_up_is_not_tried_again(late: float) -> None:
    graph = Late(late, gives_up=True)
    assert graph.bench.resume().reason == "Completed"
    assert len(graph.calls) == 1
    assert sorted(graph.bench.ids) == ["end.1", "o", "p", "p/c#1", "start"]


@pytest.mark.parametrize("late", [5.0, 8.0, 12.0])
def test_a_child_that_outlives_several_tries_of_its_parent_is_called_once_more(late: float) -> None:
    graph = Late(late, gives_up=False)
    assert graph.bench.resume().reason == "Completed"
    assert len(graph.calls) == 2
    assert graph.bench.ids.count("p/c") == 1


def test_what_finishes_below_while_its_parents_failure_is_under_way_is_known_to_the_next_try() -> None:
    calls: list[str] = []

    async def parent(node: NodeContext) -> NodeResult:
        return NodeResult(output=await node.subgraph(Spawned(kind="child", name="c")))

    async def child(node: NodeContext) -> NodeResult:
        calls.append(node.name)
        await asyncio.sleep(3.9 if node.name == "c" else 0.2)
        return NodeResult(spawned=[Spawned(kind="child", name="d")] if node.name == "c" else [])

    kinds = {"parent": NodeKind(name="parent", run=parent, timeout_seconds=4), "child": child}
    bench = Bench(kinds, Spawned(kind="parent", name="p"), waits=RetryWaits(first=0.01, last=0.01))

    async def during(executor: Executor) -> None:
        async def hook(when: str, rows: Sequence[LogRow]) -> None:
            if when == "before" and any(b"p#1" in row.record or b"p/d" in row.record for row in rows):
                await asyncio.sleep(1)

        bench.stores[-1].hook = hook

    assert bench.resume(during=during).reason == "Completed"
    assert sorted(bench.ids) == ["end.1", "p", "p#1", "p/c", "p/d"]
    assert calls.count("c") == 1
