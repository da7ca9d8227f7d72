"""Pause, drain and cancel stop at a node's boundary, or at once, as asked."""

from __future__ import annotations

import asyncio

import pytest

from agentrun.graph.executor import ABANDON_SECONDS_MAX, Executor
from agentrun.graph.types import NodeContext, NodeResult, NotLaunched, Spawned
from agentrun.log.appender import Appender
from agentrun.log.blobs import TableBlobs
from agentrun.log.claim import claim
from agentrun.log.errors import Fenced, StoreUnavailable
from agentrun.log.memory import MemoryStore
from agentrun.log.store import AttemptOutcome, Levels
from agentrun.proto import log_pb2 as pb
from tests.support.agents import Bench, During
from tests.support.sim.world import SimClock


def chain(*seconds: float) -> Bench:
    """Steps behind one another, each of so many seconds, and one slow one beside them."""

    async def step(node: NodeContext) -> NodeResult:
        number = int(node.input or b"0")
        await asyncio.sleep(seconds[number])
        more = number + 1 < len(seconds)
        return NodeResult(
            spawned=[Spawned(kind="step", name=f"s{number + 1}", input=b"%d" % (number + 1))] if more else []
        )

    return Bench({"step": step}, Spawned(kind="step", name="s0"))


def at(seconds: float, what: str, *args: object, **more: object) -> During:
    async def during(executor: Executor) -> None:
        await asyncio.sleep(seconds)
        getattr(executor, what)(*args, **more)

    return during


def test_a_pause_lets_what_is_in_flight_finish_and_the_next_process_goes_on() -> None:
    bench = chain(10, 10, 10)
    outcome = bench.resume(during=at(15, "pause", "Suspended"))
    assert outcome.paused and outcome.reason == "Suspended"
    assert bench.ids == ["s0", "s1"]
    assert bench.resume().outcome == pb.OUTCOME_SUCCEEDED
    assert bench.launched == ["s0", "s1", "s2"]


def test_a_pause_with_a_bound_gives_up_what_takes_longer() -> None:
    bench = chain(10, 1000, 10)
    began = bench.loop.time()
    assert bench.resume(during=at(15, "pause", "Terminated", within_seconds=20)).paused
    assert bench.loop.time() - began == pytest.approx(35, abs=0.5)
    assert bench.ids == ["s0"], "never recorded"


def test_a_second_bound_takes_the_place_of_the_first() -> None:
    bench = chain(1000)

    async def twice(executor: Executor) -> None:
        executor.pause("Terminated", within_seconds=500)
        await asyncio.sleep(5)
        executor.pause("Terminated", within_seconds=0)

    began = bench.loop.time()
    assert bench.resume(during=twice).paused
    assert bench.loop.time() - began == pytest.approx(5, abs=0.5)


def test_a_cancel_lets_what_is_in_flight_finish() -> None:
    bench = chain(10, 10, 10)
    outcome = bench.resume(during=at(15, "cancel", "shutdown: Stop"))
    assert (outcome.outcome, outcome.reason, outcome.message) == (
        pb.OUTCOME_CANCELLED,
        "Cancelled",
        "shutdown: Stop",
    )
    assert bench.ids == ["s0", "s1", "end.1"]
    assert bench.database.runs[bench.run_id].row.ended


def test_a_cancel_at_once_waits_for_nothing() -> None:
    bench = chain(10, 1000)
    began = bench.loop.time()
    assert bench.resume(during=at(15, "cancel", at_once=True)).reason == "Cancelled"
    assert bench.loop.time() - began == pytest.approx(15, abs=0.5)
    assert bench.ids == ["s0", "end.1"]


def test_a_cancel_comes_before_a_pause_that_was_asked_for_first() -> None:
    bench = chain(10, 10)

    async def both(executor: Executor) -> None:
        executor.pause("Suspended")
        executor.cancel()
        executor.pause("Suspended")

    assert bench.resume(during=both).reason == "Cancelled"


def test_a_run_that_ends_while_it_is_cancelled_has_ended_well() -> None:
    async def last(node: NodeContext) -> NodeResult:
        await asyncio.sleep(10)
        return NodeResult(output=b"42", final=pb.Final(outcome=pb.OUTCOME_SUCCEEDED, reason="Completed"))

    bench = Bench({"last": last}, Spawned(kind="last", name="last"))
    assert bench.resume(during=at(5, "cancel")).reason == "Completed"
    assert bench.ids == ["last"]


def test_a_node_that_does_not_heed_its_cancellation_holds_up_nobody_and_records_nothing() -> None:
    heard: list[str] = []

    async def deaf(node: NodeContext) -> NodeResult:
        for _ in range(10):
            try:
                await asyncio.sleep(1.5)
            except asyncio.CancelledError:
                heard.append("cancelled")
        try:
            await node.confirm()
        except NotLaunched:
            heard.append("refused")
        return NodeResult(output=b"late")

    bench = Bench({"deaf": deaf}, Spawned(kind="deaf", name="deaf"))

    async def later(executor: Executor) -> None:
        await asyncio.sleep(2)
        executor.cancel(at_once=True)

    async def main() -> None:
        outcome = await bench._main(None, later, AttemptOutcome.DISRUPTED)
        assert getattr(outcome, "reason", None) == "Cancelled", outcome

    began = bench.loop.time()
    kill = bench.loop.kill
    bench.loop.kill = lambda process: None  # type: ignore[method-assign]
    bench.loop.run(_and_then(main(), 60))
    bench.loop.kill = kill  # type: ignore[method-assign]
    assert heard == ["cancelled", "refused"]
    assert bench.ids == ["end.1"]
    assert bench.loop.time() - began == pytest.approx(62 + ABANDON_SECONDS_MAX, abs=0.5)


async def _and_then(main: object, seconds: float) -> None:
    await main  # type: ignore[misc]
    await asyncio.sleep(seconds)


def test_a_node_may_clean_up_within_the_bound() -> None:
    cleaned: list[str] = []

    async def careful(node: NodeContext) -> NodeResult:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(ABANDON_SECONDS_MAX / 2)
            cleaned.append(node.name)
        return NodeResult()

    bench = Bench({"careful": careful}, Spawned(kind="careful", name="c"))
    assert bench.resume(during=at(1, "pause", "Terminated", within_seconds=1)).paused
    assert cleaned == ["c"]


def test_a_process_that_is_fenced_off_stops_at_once_and_records_nothing() -> None:
    bench = chain(3, 3, 3, 3)

    async def take_over(executor: Executor) -> None:
        await asyncio.sleep(4)
        store = MemoryStore(bench.database)
        attempt = await store.allocate_attempt(
            bench.run_id, expected=1, process="", previous=AttemptOutcome.DISRUPTED
        )
        appender = Appender(store, SimClock(bench.loop))
        blobs = TableBlobs(store)
        await claim(
            appender=appender, blobs=blobs, run_id=bench.run_id, attempt=attempt or 0, writer=b"other"
        )

    with pytest.raises(Fenced, match="record 3 is somebody else's"):
        bench.run(during=take_over)
    assert bench.ids == ["s0"]
    assert bench.launched == ["s0", "s1"]
    assert bench.database.runs[bench.run_id].attempts[2].outcome is None, "it writes nothing of the other's"


def test_a_store_that_is_away_for_too_long_stops_the_process_and_not_the_run() -> None:
    bench = chain(3, 3)

    async def cut(executor: Executor) -> None:
        store = bench.stores[-1]

        async def away(when: str, _rows: object) -> None:
            raise StoreUnavailable("away")

        store.hook = away

    with pytest.raises(StoreUnavailable):
        bench.run(during=cut)
    assert bench.resume().outcome == pb.OUTCOME_SUCCEEDED


# --- levels, as the process looks at them


def set_levels(bench: Bench, seconds: float, levels: Levels) -> During:
    async def during(executor: Executor) -> None:
        await asyncio.sleep(seconds)
        assert await MemoryStore(bench.database).set_levels(bench.run_id, levels)
        assert bench.drive is not None
        bench.drive.hint(bench.run_id)

    return during


@pytest.mark.parametrize(
    ("levels", "reason", "ids"),
    [
        (Levels(generation=1, suspend=True), "Suspended", ["s0", "s1"]),
        (Levels(generation=1, shutdown="Stop"), "Cancelled", ["s0", "s1", "end.1"]),
        (Levels(generation=1, shutdown="Terminate"), "Cancelled", ["s0", "end.1"]),
        (Levels(generation=1, budget='{"turns": 5}'), "Completed", ["s0", "s1", "s2", "end.1"]),
    ],
)
def test_levels_are_obeyed_when_they_are_seen(levels: Levels, reason: str, ids: list[str]) -> None:
    bench = chain(10, 10, 10)
    assert bench.resume(during=set_levels(bench, 12, levels)).reason == reason
    assert bench.ids == ids


def test_a_run_that_is_suspended_already_launches_nothing() -> None:
    bench = chain(1)
    bench.resume(during=at(0, "pause", "x"))
    bench.loop.run(MemoryStore(bench.database).set_levels(bench.run_id, Levels(generation=1, suspend=True)))
    bench.launched.clear()
    assert bench.resume().reason == "Suspended"
    assert bench.launched == []
    assert bench.database.runs[bench.run_id].attempts[2].outcome is AttemptOutcome.PAUSED
