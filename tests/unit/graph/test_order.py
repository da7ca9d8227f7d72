"""A node runs once, when its parents are recorded, under an id that no replay changes."""

from __future__ import annotations

import asyncio

import pytest

from agentrun.graph.types import NodeContext, NodeResult, Spawned
from agentrun.log.errors import CorruptLog, NewerFormat
from agentrun.proto import log_pb2 as pb
from tests.support.agents import Bench, Crash

SUCCEEDED = pb.OUTCOME_SUCCEEDED


class Gauge:
    """Counts how many are within at once."""

    def __init__(self) -> None:
        self.now = self.most = 0

    async def stay(self, seconds: float) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(seconds)
        self.now -= 1


def fan(width: int, *, seconds: float = 1.0, concurrency: int = 16, gauge: Gauge | None = None) -> Bench:
    """`width` works at once, and a join over all of them that ends the run."""
    gauge = gauge or Gauge()

    async def start(node: NodeContext) -> NodeResult:
        names = [f"work-{i}" for i in range(width)]
        works = [Spawned(kind="work", name=name, input=name.encode()) for name in names]
        return NodeResult(spawned=[*works, Spawned(kind="join", name="join", parents=names)])

    async def work(node: NodeContext) -> NodeResult:
        await gauge.stay(seconds * (1 + len(node.name) % 3))
        return NodeResult(output=node.input.upper())

    async def join(node: NodeContext) -> NodeResult:
        outputs = [await node.output(f"work-{i}") for i in range(width)]
        return NodeResult(output=b",".join(outputs), final=pb.Final(outcome=SUCCEEDED, reason="Completed"))

    return Bench({"start": start, "work": work, "join": join}, concurrency=concurrency)


def test_a_join_runs_behind_all_of_its_parents_and_sees_their_outputs() -> None:
    bench = fan(5)
    assert bench.resume().outcome == SUCCEEDED
    assert bench.ids[0] == "start" and bench.ids[-1] == "join"
    assert sorted(bench.ids[1:-1]) == [f"work-{i}" for i in range(5)]
    assert bench.records[-1].output.inline == b"WORK-0,WORK-1,WORK-2,WORK-3,WORK-4"


def test_independent_nodes_run_at_once_up_to_the_concurrency() -> None:
    gauge = Gauge()
    bench = fan(10, concurrency=3, gauge=gauge)
    bench.resume()
    assert gauge.most == 3


def test_forty_nodes_at_once_take_the_time_of_one() -> None:
    bench = fan(40, concurrency=40)
    began = bench.loop.time()
    bench.resume()
    assert bench.loop.time() - began < 4


def test_each_node_is_recorded_the_moment_it_finishes() -> None:
    """A sibling that is slow, or never comes back, delays nothing."""

    async def start(node: NodeContext) -> NodeResult:
        return NodeResult(spawned=[Spawned(kind="quick", name="q"), Spawned(kind="slow", name="s")])

    async def quick(node: NodeContext) -> NodeResult:
        return NodeResult(output=b"q")

    async def slow(node: NodeContext) -> NodeResult:
        await asyncio.sleep(1000)
        return NodeResult()

    bench = Bench({"start": start, "quick": quick, "slow": slow})

    async def look(executor: object) -> None:
        await asyncio.sleep(1)
        assert bench.ids == ["start", "q"]

    assert bench.resume(during=look).outcome == SUCCEEDED
    assert bench.ids[:3] == ["start", "q", "s"]


@pytest.mark.parametrize("append", range(1, 9))
@pytest.mark.parametrize("after", [False, True])
def test_a_replay_gives_the_same_ids_and_outputs(append: int, after: bool) -> None:
    whole, crashed = fan(4), fan(4)
    whole.resume()
    crashed.run(Crash(append=append, after=after))
    if crashed.outcome is None and crashed.history.final is None:
        assert crashed.resume().outcome == SUCCEEDED
    assert crashed.shape() == whole.shape()
    assert len(set(crashed.ids)) == len(crashed.ids)


def test_a_finished_node_never_runs_again() -> None:
    bench = fan(6, concurrency=2)
    while bench.run(Crash(append=3, after=True)) is None and bench.history.final is None:
        pass
    launched = [node for node in bench.launched if node.startswith("work")]
    # One of the two in flight is recorded before each crash, and only the other runs again.
    assert len(launched) <= 6 + 6
    assert len(set(bench.ids)) == len(bench.ids) == 8


def test_successors_without_a_name_have_that_of_their_spawner_and_an_ordinal() -> None:
    async def start(node: NodeContext) -> NodeResult:
        return NodeResult(
            spawned=[Spawned(kind="leaf"), Spawned(kind="leaf", name="own"), Spawned(kind="leaf")]
        )

    async def leaf(node: NodeContext) -> NodeResult:
        return NodeResult()

    bench = Bench({"start": start, "leaf": leaf}, Spawned(kind="start"))
    bench.resume()
    assert bench.ids[0] == "root" and set(bench.ids[1:4]) == {"root.0", "own", "root.2"}


def test_a_chain_of_nameless_nodes_may_be_as_long_as_it_likes() -> None:
    async def step(node: NodeContext) -> NodeResult:
        left = int(node.input)
        return NodeResult(spawned=[Spawned(kind="step", input=b"%d" % (left - 1))] if left else [])

    benches = [Bench({"step": step}, Spawned(kind="step", input=b"300")) for _ in range(2)]
    for bench in benches:
        assert bench.resume().outcome == SUCCEEDED
        assert len(bench.history.done) == 302
    assert benches[0].ids == benches[1].ids
    assert max(map(len, benches[0].ids)) <= 128


def test_a_graph_that_ends_without_a_final_node_succeeds_with_its_last_output() -> None:
    async def start(node: NodeContext) -> NodeResult:
        return NodeResult(spawned=[Spawned(kind="leaf", name="leaf")])

    async def leaf(node: NodeContext) -> NodeResult:
        return NodeResult(output=b"x" * 20_000, media_type="text/plain")

    bench = Bench({"start": start, "leaf": leaf})
    assert bench.resume().reason == "Completed"
    assert bench.ids == ["start", "leaf", "end.1"]
    final = bench.records[-1]
    assert final.output.blob.size_bytes == 20_000 and not final.output.inline


def test_a_run_that_was_ended_by_its_last_node_but_one_crash_is_ended_by_the_next_process() -> None:
    """Nothing is left to run, and the final record is missing."""

    async def start(node: NodeContext) -> NodeResult:
        return NodeResult(output=b"all")

    bench = Bench({"start": start})
    assert bench.run(Crash(append=3)) is None
    assert bench.ids == ["start"]
    assert bench.resume().outcome == SUCCEEDED
    assert bench.launched == ["start"]
    assert bench.records[-1].output.inline == b"all"


def test_a_final_record_waits_for_the_siblings_in_flight() -> None:
    async def start(node: NodeContext) -> NodeResult:
        return NodeResult(spawned=[Spawned(kind="last", name="last"), Spawned(kind="slow", name="slow")])

    async def last(node: NodeContext) -> NodeResult:
        return NodeResult(final=pb.Final(outcome=SUCCEEDED, reason="Early"))

    async def slow(node: NodeContext) -> NodeResult:
        await asyncio.sleep(50)
        return NodeResult(spawned=[Spawned(kind="slow", name="never")])

    bench = Bench({"start": start, "last": last, "slow": slow})
    assert bench.resume().reason == "Early"
    assert bench.ids == ["start", "slow", "last"]


def test_a_run_ends_though_others_wait_for_a_place() -> None:
    async def start(node: NodeContext) -> NodeResult:
        return NodeResult(spawned=[Spawned(kind="last", name=f"last-{i}") for i in range(4)])

    async def last(node: NodeContext) -> NodeResult:
        return NodeResult(final=pb.Final(outcome=SUCCEEDED, reason="Early"))

    bench = Bench({"start": start, "last": last}, concurrency=1)
    assert bench.resume().reason == "Early"
    assert bench.ids == ["start", "last-0"]


def test_of_two_nodes_that_end_the_run_at_once_one_does_and_both_are_kept() -> None:
    async def start(node: NodeContext) -> NodeResult:
        return NodeResult(spawned=[Spawned(kind="last", name=f"last-{i}") for i in range(3)])

    async def last(node: NodeContext) -> NodeResult:
        await asyncio.sleep(1)
        return NodeResult(output=node.name.encode(), final=pb.Final(outcome=SUCCEEDED, reason=node.name))

    bench = Bench({"start": start, "last": last})
    outcome = bench.resume()
    assert len(bench.ids) == 4
    assert [record.id for record in bench.records if record.HasField("final")] == [outcome.reason]
    assert bench.records[-1].HasField("final")


def test_a_large_input_and_a_large_output_go_through_the_blob_store() -> None:
    async def start(node: NodeContext) -> NodeResult:
        return NodeResult(output=b"o" * 9000, spawned=[Spawned(kind="leaf", name="leaf", input=b"i" * 9000)])

    async def leaf(node: NodeContext) -> NodeResult:
        assert node.input == b"i" * 9000 and await node.output("start") == b"o" * 9000
        return NodeResult()

    bench = Bench({"start": start, "leaf": leaf})
    bench.run(Crash(append=3))
    assert bench.resume().outcome == SUCCEEDED
    assert all(len(data) < 1000 for _, data in bench.rows)


def test_a_log_with_a_kind_that_this_build_does_not_know_is_refused_by_name() -> None:
    bench = fan(2)
    bench.run(Crash(append=3))
    del bench.handlers["join"]
    with pytest.raises(CorruptLog, match="'join' is of the unknown kind 'join'"):
        bench.run()
    assert bench.ids == ["start"], "nothing was launched"


def test_a_log_of_a_newer_build_is_refused() -> None:
    bench = fan(2)
    bench.run(Crash(append=3))
    log = bench.database.runs[bench.run_id].log
    record = pb.NodeRecord.FromString(log[2])
    record.format = 2
    log[2] = record.SerializeToString()
    with pytest.raises(NewerFormat, match=f"run {bench.run_id}, record 2: written by a newer build"):
        bench.run()
