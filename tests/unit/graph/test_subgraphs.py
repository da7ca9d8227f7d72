"""A graph below a node: in the same log, under its ids, and never in anybody's way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from agentrun.graph.executor import Executor
from agentrun.graph.types import NodeContext, NodeError, NodeKind, NodeResult, Spawned
from agentrun.proto import log_pb2 as pb
from tests.support.agents import Bench, Crash

SUCCEEDED = pb.OUTCOME_SUCCEEDED


async def sub(node: NodeContext) -> NodeResult:
    return NodeResult(output=await node.subgraph(Spawned(kind="fan", name="fan", input=node.input)))


async def fan(node: NodeContext) -> NodeResult:
    names = [f"leaf-{i}" for i in range(int(node.input or b"3"))]
    leaves = [Spawned(kind="leaf", name=name) for name in names]
    return NodeResult(spawned=[*leaves, Spawned(kind="sum", name="sum", parents=names)])


async def leaf(node: NodeContext) -> NodeResult:
    await asyncio.sleep(1)
    return NodeResult(output=node.node_id.encode())


async def total(node: NodeContext) -> NodeResult:
    return NodeResult(output=b" ".join([await node.output(name) for name in node.outputs("leaf")]))


KINDS = {"sub": sub, "fan": fan, "leaf": leaf, "sum": total}


def spawning(*spawned: Spawned) -> NodeKind:
    async def start(node: NodeContext) -> NodeResult:
        return NodeResult(spawned=spawned)

    return NodeKind(name="start", run=start)


def subs(count: int, *, width: int = 3, concurrency: int = 16) -> Bench:
    nodes = [Spawned(kind="sub", name=f"sub-{i}", input=b"%d" % width) for i in range(count)]
    return Bench({**KINDS, "start": spawning(*nodes)}, concurrency=concurrency)


def test_its_nodes_have_ids_below_their_parents_and_come_before_it() -> None:
    bench = subs(1)
    bench.resume()
    leaves = {f"sub-0/leaf-{i}" for i in range(3)}
    assert bench.ids[:2] == ["start", "sub-0/fan"] and set(bench.ids[2:5]) == leaves
    assert bench.ids[5:] == ["sub-0/sum", "sub-0", "end.1"]
    assert set(bench.record("sub-0").output.inline.decode().split()) == leaves


@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_parent_that_waits_takes_no_place(concurrency: int) -> None:
    bench = subs(5, concurrency=concurrency)
    assert bench.resume().outcome == SUCCEEDED
    assert len(bench.history.done) == 1 + 5 * 6 + 1


@pytest.mark.parametrize("append", range(1, 9))
def test_it_goes_on_from_what_is_recorded_of_it(append: int) -> None:
    whole, crashed = subs(2), subs(2)
    whole.resume()
    crashed.run(Crash(append=append))
    before = set(crashed.history.done)
    crashed.launched.clear()
    assert crashed.resume().outcome == SUCCEEDED
    assert not before & set(crashed.launched), "what is recorded does not run again"
    assert set(crashed.history.done) - {"end.2"} == set(whole.history.done) - {"end.1"}


def nested(depth: int) -> Bench:
    async def deep(node: NodeContext) -> NodeResult:
        left = int(node.input)
        if not left:
            await asyncio.sleep(1)
            return NodeResult(output=b"bottom")
        return NodeResult(
            output=await node.subgraph(Spawned(kind="deep", name="d", input=b"%d" % (left - 1)))
        )

    return Bench({"deep": deep}, Spawned(kind="deep", name="d", input=b"%d" % depth), concurrency=1)


def test_graphs_within_graphs() -> None:
    bench = nested(20)
    assert bench.resume().outcome == SUCCEEDED
    assert bench.record("d").output.inline == b"bottom"
    bench = nested(5)
    for append in (2, 3, 2):
        assert bench.run(Crash(append=append)) is None
    assert bench.resume().outcome == SUCCEEDED
    assert bench.launched.count("d/d/d/d/d/d") == 2, "once, and once more: its record was never made"


def failing_leaf(*, caught: bool, seconds: Sequence[float] = (1, 50), concurrency: int = 16) -> Bench:
    async def parent(node: NodeContext) -> NodeResult:
        try:
            return NodeResult(output=await node.subgraph(Spawned(kind="fan", name="fan", input=b"6")))
        except NodeError as error:
            if not caught:
                raise
            return NodeResult(output=f"told: {error.reason}: {error.message}".encode())

    async def bad_leaf(node: NodeContext) -> NodeResult:
        if node.name == "leaf-0":
            await asyncio.sleep(seconds[0])
            raise NodeError("Broken", "for good", retryable=False)
        await asyncio.sleep(seconds[1])
        return NodeResult(output=b"kept")

    kinds = {**KINDS, "sub": parent, "leaf": bad_leaf, "start": spawning(Spawned(kind="sub", name="sub-0"))}
    return Bench(kinds, concurrency=concurrency)


def test_its_failure_reaches_its_parent_when_the_siblings_are_recorded() -> None:
    bench = failing_leaf(caught=True)
    assert bench.resume().outcome == SUCCEEDED
    assert bench.record("sub-0").output.inline == b"told: Broken: for good"
    assert bench.ids[2] == "sub-0/leaf-0#1"
    assert set(bench.ids[3:8]) == {f"sub-0/leaf-{i}" for i in range(1, 6)}
    assert bench.ids[8:] == ["sub-0", "end.1"], "and no sum: one of its parents is missing"


def test_behind_its_failure_nothing_more_of_it_is_launched() -> None:
    bench = failing_leaf(caught=True, concurrency=2)
    assert bench.resume().outcome == SUCCEEDED
    assert [node for node in bench.launched if "leaf" in node] == ["sub-0/leaf-0", "sub-0/leaf-1"]


def test_a_failure_that_its_parent_does_not_take_ends_the_run() -> None:
    bench = failing_leaf(caught=False)
    outcome = bench.resume()
    assert (outcome.outcome, outcome.reason) == (pb.OUTCOME_FAILED, "Broken")
    assert outcome.message == "sub-0: for good"


def test_a_failure_that_is_recorded_is_not_tried_again_after_a_crash() -> None:
    bench = failing_leaf(caught=True)
    assert bench.run(Crash(append=4, after=True)) is None
    assert bench.ids[-1] == "sub-0/leaf-0#1"
    bench.launched.clear()
    assert bench.resume().outcome == SUCCEEDED
    assert bench.launched == ["sub-0"]


def test_a_parent_over_its_time_takes_its_graph_with_it_and_tries_again() -> None:
    async def parent(node: NodeContext) -> NodeResult:
        return NodeResult(output=await node.subgraph(Spawned(kind="slow", name="slow")))

    async def slow(node: NodeContext) -> NodeResult:
        await asyncio.sleep(100 if len(bench.launched) <= 5 else 1)
        return NodeResult(output=b"done")

    kinds = {"sub": NodeKind(name="sub", run=parent, timeout_seconds=5), "slow": slow}
    kinds["start"] = spawning(Spawned(kind="sub", name="sub-0"), Spawned(kind="sub", name="sub-1"))
    bench = Bench(kinds, concurrency=2)
    assert bench.resume().outcome == SUCCEEDED
    assert {"sub-0#1", "sub-1#1"} <= set(bench.ids)
    assert bench.record("sub-0").output.inline == b"done"


def test_a_parent_that_gives_its_graph_up_goes_on_without_it() -> None:
    async def parent(node: NodeContext) -> NodeResult:
        try:
            async with asyncio.timeout(2):
                await node.subgraph(Spawned(kind="slow", name="slow"))
        except TimeoutError:
            await asyncio.sleep(3)
        return NodeResult(output=b"without")

    async def slow(node: NodeContext) -> NodeResult:
        await asyncio.sleep(100)
        return NodeResult()

    bench = Bench({"sub": parent, "slow": slow, "start": spawning(Spawned(kind="sub", name="sub-0"))})
    assert bench.resume().outcome == SUCCEEDED
    assert bench.ids == ["start", "sub-0", "end.1"]


def test_a_second_graph_of_one_node_is_refused() -> None:
    async def parent(node: NodeContext) -> NodeResult:
        roots = [Spawned(kind="leaf", name=name) for name in ("a", "b")]
        return NodeResult(output=b"".join(await asyncio.gather(*map(node.subgraph, roots))))

    outcome = Bench(
        {"sub": parent, "leaf": leaf, "start": spawning(Spawned(kind="sub", name="sub"))}
    ).resume()
    assert (outcome.reason, outcome.message) == ("InvalidGraph", "sub: sub: a node has one graph of its own")


def test_a_run_ends_though_a_graph_below_a_node_is_under_way() -> None:
    """What is in flight is recorded, nothing more is launched, and the parent is given up."""

    async def step(node: NodeContext) -> NodeResult:
        await asyncio.sleep(10)
        return NodeResult(spawned=[Spawned(kind="step")])

    async def parent(node: NodeContext) -> NodeResult:
        return NodeResult(output=await node.subgraph(Spawned(kind="step", name="s")))

    async def last(node: NodeContext) -> NodeResult:
        await asyncio.sleep(15)
        return NodeResult(final=pb.Final(outcome=SUCCEEDED, reason="Early"))

    start = spawning(Spawned(kind="sub", name="sub"), Spawned(kind="last", name="last"))
    kinds = {"start": start, "step": step, "sub": parent, "last": last}
    bench = Bench(kinds)
    assert bench.resume().reason == "Early"
    assert bench.ids == ["start", "sub/s", "sub/s.0", "last"]


def test_only_a_node_of_the_runs_own_graph_ends_the_run() -> None:
    async def last(node: NodeContext) -> NodeResult:
        return NodeResult(final=pb.Final(outcome=SUCCEEDED, reason="Early"))

    async def parent(node: NodeContext) -> NodeResult:
        return NodeResult(output=await node.subgraph(Spawned(kind="last", name="last")))

    outcome = Bench({"sub": parent, "last": last}, Spawned(kind="sub", name="sub")).resume()
    assert outcome.reason == "InvalidGraph" and "run's own graph" in outcome.message


@pytest.mark.parametrize(
    ("root", "message"),
    [
        (Spawned(kind="nope", name="x"), "node 'sub/x' is of the unknown kind 'nope'"),
        (Spawned(kind="sub", name="a/b"), "'a/b' is no node name"),
    ],
)
def test_a_bad_root_fails_by_name(root: Spawned, message: str) -> None:
    async def parent(node: NodeContext) -> NodeResult:
        return NodeResult(output=await node.subgraph(root))

    outcome = Bench({"sub": parent}, Spawned(kind="sub", name="sub")).resume()
    assert outcome.reason == "InvalidGraph" and message in outcome.message


def test_a_drain_records_what_is_in_flight_below_and_goes_on_there() -> None:
    bench = subs(2)

    async def drain(executor: Executor) -> None:
        await asyncio.sleep(0.5)
        executor.pause("Terminated", within_seconds=20)

    began = bench.loop.time()
    assert bench.resume(during=drain).paused
    assert bench.loop.time() - began < 2
    assert "sub-0" not in bench.ids and sum("leaf" in id_ for id_ in bench.ids) == 6
    bench.launched.clear()
    assert bench.resume().outcome == SUCCEEDED
    assert set(bench.launched) == {"sub-0", "sub-1", "sub-0/sum", "sub-1/sum"}


def test_a_cancel_reaches_what_runs_below() -> None:
    bench = subs(2)

    async def cancel(executor: Executor) -> None:
        await asyncio.sleep(0.5)
        executor.cancel(at_once=True)

    began = bench.loop.time()
    assert bench.resume(during=cancel).reason == "Cancelled"
    assert bench.loop.time() - began == pytest.approx(0.5, abs=0.1)
    assert not any("leaf" in id_ for id_ in bench.ids)


def test_a_graph_below_that_is_stuck_says_where() -> None:
    async def fan_out(node: NodeContext) -> NodeResult:
        return NodeResult(spawned=[Spawned(kind="leaf", name="never", parents=["missing"])])

    outcome = Bench({**KINDS, "fan": fan_out}, Spawned(kind="sub", name="sub")).resume()
    assert outcome.reason == "Stuck" and "sub/never" in outcome.message
