"""A claim makes one process the only one that may append, whatever else lands meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from uuid import UUID

import pytest

from agentrun.log.appender import Appender
from agentrun.log.blobs import TableBlobs
from agentrun.log.claim import claim
from agentrun.log.errors import CorruptLog, Fenced, NewerFormat, RunEnded, StoreUnavailable
from agentrun.log.memory import Database, MemoryStore
from agentrun.log.replay import FORMAT
from agentrun.log.runlog import RunLog
from agentrun.log.store import AttemptOutcome, AttemptRow, LogRow, RunRow
from agentrun.proto import log_pb2 as pb
from tests.support.agents import HookedStore, in_simulated_time
from tests.support.sim.loop import SimLoop
from tests.support.sim.world import SimClock

RUN = UUID(int=9)


class World:
    """A run over one database."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.database = Database(loop.time)
        self.side = MemoryStore(self.database)

    async def create(self) -> None:
        assert await self.side.create_run(RunRow(run_id=RUN, owner="o", name="n", definition=b"", digest=""))

    async def allocate(self, previous: AttemptOutcome = AttemptOutcome.DISRUPTED) -> int:
        expected = self.database.runs[RUN].row.attempt
        found = await self.side.allocate_attempt(RUN, expected=expected, process="", previous=previous)
        assert found is not None
        return found

    async def claim(self, attempt: int, *, writer: bytes = b"me", store: MemoryStore | None = None) -> RunLog:
        store = store or MemoryStore(self.database)
        return await claim(
            appender=Appender(store, SimClock(self.loop), outage_seconds_max=60),
            blobs=TableBlobs(store),
            run_id=RUN,
            attempt=attempt,
            writer=writer,
        )

    async def put(self, seq: int, record: pb.NodeRecord) -> None:
        record.format = FORMAT
        row = LogRow(run_id=RUN, seq=seq, record=record.SerializeToString(), final=record.HasField("final"))
        assert await self.side.insert_row(row, await self.side.connect())

    @property
    def rows(self) -> dict[int, bytes]:
        return self.database.runs[RUN].log

    def ids(self) -> list[str]:
        return [pb.NodeRecord.FromString(data).id for _, data in sorted(self.rows.items())]


def scenario(test: Callable[[World], Awaitable[None]]) -> Callable[[], None]:
    """A test of a world in simulated time."""

    async def main(loop: SimLoop) -> None:
        world = World(loop)
        await world.create()
        await test(world)

    def run() -> None:
        in_simulated_time(main)

    run.__name__ = getattr(test, "__name__", "")
    return run


def work(id: str, *, epoch: int = 1) -> pb.NodeRecord:  # noqa: A002
    return pb.NodeRecord(id=id, kind="work", epoch=epoch, writer=b"old")


@scenario
async def test_the_attempt_record_stands_before_anything_else(world: World) -> None:
    log = await world.claim(await world.allocate())
    assert (log.epoch, log.attempt, log.history.head) == (1, 1, 1)
    record = pb.NodeRecord.FromString(world.rows[1])
    assert (record.id, record.kind, record.writer) == ("attempt-1.1", "attempt", b"me")
    await log.append(pb.NodeRecord(id="a", kind="work"))
    assert world.ids() == ["attempt-1.1", "a"]


@scenario
async def test_rows_of_an_older_epoch_that_turn_up_in_the_way_are_absorbed(world: World) -> None:
    old = await world.claim(await world.allocate(), writer=b"old")
    await old.append(pb.NodeRecord(id="a", kind="work"))
    attempt = await world.allocate()
    sent: list[int] = []

    async def hook(when: str, rows: Sequence[LogRow]) -> None:
        if when == "before" and len(sent) < 3:
            sent.append(rows[0].seq)
            await old.append(pb.NodeRecord(id=f"late-{len(sent)}", kind="work"))

    log = await world.claim(attempt, store=HookedStore(world.database, hook))
    assert sent == [3, 4, 5]
    assert world.ids() == ["attempt-1.1", "a", "late-1", "late-2", "late-3", "attempt-2.2"]
    assert list(log.history.done) == ["a", "late-1", "late-2", "late-3"]
    with pytest.raises(Fenced):
        await old.append(pb.NodeRecord(id="too-late", kind="work"))
    assert log.history.head == 6


@scenario
async def test_a_final_record_that_is_absorbed_ends_the_claim(world: World) -> None:
    old = await world.claim(await world.allocate(), writer=b"old")
    await old.append(pb.NodeRecord(id="a", kind="work"))
    attempt = await world.allocate()

    async def hook(when: str, rows: Sequence[LogRow]) -> None:
        if when == "before" and len(world.rows) == 2:
            final = pb.Final(outcome=pb.OUTCOME_SUCCEEDED, reason="Completed")
            await old.append(pb.NodeRecord(id="end", kind="finalize_run", final=final))

    with pytest.raises(RunEnded) as error:
        await world.claim(attempt, store=HookedStore(world.database, hook))
    assert error.value.seq == 3
    assert world.ids() == ["attempt-1.1", "a", "end"]


@scenario
async def test_a_run_that_has_ended_is_told_from_one_that_is_fenced(world: World) -> None:
    attempt = await world.allocate()
    log = await world.claim(attempt)
    final = pb.Final(outcome=pb.OUTCOME_FAILED, reason="Broken")
    await log.append(pb.NodeRecord(id="end", kind="finalize_run", final=final))
    with pytest.raises(RunEnded) as error:
        await world.claim(attempt, writer=b"another")
    assert error.value.seq == 2


@scenario
async def test_an_attempt_that_is_not_the_newest_is_fenced(world: World) -> None:
    first = await world.allocate()
    await world.allocate()
    with pytest.raises(Fenced, match="attempt 1 is not the newest"):
        await world.claim(first)
    assert world.rows == {} and world.database.runs[RUN].row.epoch == 0


@scenario
async def test_a_run_that_is_not_there_is_fenced(world: World) -> None:
    del world.database.runs[RUN]
    with pytest.raises(Fenced, match="no such run"):
        await world.claim(1)


@scenario
async def test_the_same_claimer_that_repeats_gets_the_same_epoch(world: World) -> None:
    attempt = await world.allocate()

    class LostReply(MemoryStore):
        lost = 2

        async def claim(self, run_id: UUID, *, attempt: int, claimer: bytes) -> int | None:
            epoch = await super().claim(run_id, attempt=attempt, claimer=claimer)
            if self.lost:
                self.lost -= 1
                raise StoreUnavailable("the answer was lost")
            return epoch

    log = await world.claim(attempt, store=LostReply(world.database))
    assert log.epoch == 1
    assert world.ids() == ["attempt-1.1"]


@scenario
async def test_two_claimers_of_one_attempt_get_two_epochs_and_the_first_is_fenced(world: World) -> None:
    attempt = await world.allocate()
    one = await world.claim(attempt, writer=b"one")
    two = await world.claim(attempt, writer=b"two")
    assert (one.epoch, two.epoch) == (1, 2)
    with pytest.raises(Fenced):
        await one.append(pb.NodeRecord(id="a", kind="work"))
    await two.append(pb.NodeRecord(id="a", kind="work"))
    assert world.ids() == ["attempt-1.1", "attempt-1.2", "a"]


@scenario
async def test_two_claimers_of_one_attempt_at_once_leave_one(world: World) -> None:
    attempt = await world.allocate()
    results = await asyncio.gather(
        *(world.claim(attempt, writer=name) for name in (b"one", b"two", b"three")), return_exceptions=True
    )
    logs = [found for found in results if isinstance(found, RunLog)]
    appended = await asyncio.gather(
        *(log.append(pb.NodeRecord(id=f"of {log.epoch}", kind="work")) for log in logs),
        return_exceptions=True,
    )
    assert sum(found is None for found in appended) == 1
    assert world.ids()[-1] == "of 3"


@scenario
async def test_a_lost_reply_of_the_attempt_record_makes_no_second_one(world: World) -> None:
    attempt = await world.allocate()
    lost = [True, True]

    async def hook(when: str, rows: Sequence[LogRow]) -> None:
        if when == "after" and lost:
            lost.pop()
            raise StoreUnavailable("the answer was lost")

    store = HookedStore(world.database, hook)
    log = await world.claim(attempt, store=store)
    assert world.ids() == ["attempt-1.1"]
    await log.append(pb.NodeRecord(id="a", kind="work"))
    assert world.ids() == ["attempt-1.1", "a"]


@scenario
async def test_an_attempt_record_that_a_failover_lost_is_written_again(world: World) -> None:
    attempt = await world.allocate()
    lost = [True]

    async def hook(when: str, rows: Sequence[LogRow]) -> None:
        if when == "after" and lost:
            lost.pop()
            run = world.database.runs[RUN]
            run.log.clear()
            run.head = 0
            world.database.server = "2"
            raise StoreUnavailable("failed over")

    log = await world.claim(attempt, store=HookedStore(world.database, hook))
    assert world.ids() == ["attempt-1.1"]
    await log.append(pb.NodeRecord(id="a", kind="work"))
    assert log.history.head == 2


@scenario
async def test_a_claim_that_was_overtaken_on_its_way_is_fenced(world: World) -> None:
    attempt = await world.allocate()

    async def hook(when: str, rows: Sequence[LogRow]) -> None:
        if when == "before" and not world.rows:
            newer = await world.allocate()
            await world.claim(newer, writer=b"newer")

    with pytest.raises(Fenced):
        await world.claim(attempt, store=HookedStore(world.database, hook))
    assert world.ids() == ["attempt-2.2"]


@scenario
async def test_a_store_that_is_away_is_waited_for_within_the_bound(world: World) -> None:
    attempt = await world.allocate()
    until = world.loop.time() + 30

    async def hook(when: str, rows: Sequence[LogRow]) -> None:
        if world.loop.time() < until:
            raise StoreUnavailable("away")

    await world.claim(attempt, store=HookedStore(world.database, hook))
    assert until <= world.loop.time() < until + 6
    until = float("inf")
    attempt = await world.allocate()
    with pytest.raises(StoreUnavailable):
        await world.claim(attempt, store=HookedStore(world.database, hook))
    assert world.loop.time() < 1000 + 30 + 6 + 60 + 10


@scenario
async def test_each_crash_since_the_last_attempt_record_draws_one_retry(world: World) -> None:
    def drawn() -> int:
        return pb.NodeRecord.FromString(world.rows[max(world.rows)]).cost.retries

    await world.claim(await world.allocate(), writer=b"1")
    await world.claim(await world.allocate(AttemptOutcome.CRASHED), writer=b"2")
    assert drawn() == 1
    await world.allocate(AttemptOutcome.CRASHED)
    await world.allocate(AttemptOutcome.CRASHED)
    await world.claim(await world.allocate(AttemptOutcome.DISRUPTED), writer=b"5")
    assert drawn() == 2
    await world.claim(await world.allocate(AttemptOutcome.PAUSED), writer=b"6")
    assert drawn() == 0


@scenario
async def test_a_log_that_cannot_be_replayed_is_not_claimed_further(world: World) -> None:
    await world.put(1, work("a"))
    await world.put(3, work("c"))
    world.database.runs[RUN].row = replace(world.database.runs[RUN].row, epoch=1)
    with pytest.raises(CorruptLog, match="record 2 is missing"):
        await world.claim(await world.allocate())
    assert sorted(world.rows) == [1, 3]


@scenario
async def test_a_log_of_a_newer_build_is_not_claimed_further(world: World) -> None:
    world.database.runs[RUN].row = replace(world.database.runs[RUN].row, epoch=1)
    newer = work("a")
    await world.put(1, newer)
    newer.format = FORMAT + 1
    world.rows[1] = newer.SerializeToString()
    with pytest.raises(NewerFormat):
        await world.claim(await world.allocate())
    assert sorted(world.rows) == [1]


@scenario
async def test_a_record_of_an_epoch_that_nobody_has_claimed_yet_is_refused(world: World) -> None:
    await world.put(1, work("a", epoch=5))
    with pytest.raises(Fenced, match="epoch 5, ours is 1"):
        await world.claim(await world.allocate())


@pytest.mark.parametrize("away", [False, True])
def test_a_crash_is_drawn_once_though_an_earlier_attempts_record_lands_late(away: bool) -> None:
    """Attempt 2 draws the first crash; its record lands while attempt 3 puts its own behind the log.
    `away`: the store is, when attempt 3 asks anew what has crashed."""
    scenario(partial(land_late, away=away))()


async def land_late(world: World, *, away: bool) -> None:
    await world.claim(await world.allocate(), writer=b"1")
    second = await world.allocate(AttemptOutcome.CRASHED)
    free = asyncio.Event()

    async def held(when: str, _rows: Sequence[LogRow]) -> None:
        if when == "before":
            await free.wait()

    claiming = asyncio.create_task(
        world.claim(second, writer=b"2", store=HookedStore(world.database, held)),
    )
    await asyncio.sleep(1)
    third = await world.allocate(AttemptOutcome.CRASHED)
    count = 0

    async def let_it_land(when: str, _rows: Sequence[LogRow]) -> None:
        nonlocal count
        count += when == "before"
        if count == 1:
            free.set()
            await asyncio.sleep(1)

    store = HookedStore(world.database, let_it_land)
    asked: list[UUID] = []

    async def attempts(run_id: UUID) -> list[AttemptRow]:
        asked.append(run_id)
        if away and len(asked) == 2:
            raise StoreUnavailable("away")
        return await MemoryStore.attempts(store, run_id)

    store.attempts = attempts  # type: ignore[method-assign]
    log = await world.claim(third, writer=b"3", store=store)
    assert len(asked) == 2 + away
    with pytest.raises(Fenced):
        await (await claiming).append(work("late", epoch=2))
    assert world.ids() == ["attempt-1.1", "attempt-2.2", "attempt-3.3"]
    assert log.history.totals.retries == 2, "two crashes"


@scenario
async def test_a_crash_is_drawn_once_whoever_of_many_attempts_gets_to_write(world: World) -> None:
    """Each attempt crashes while its record is on the way; all land at once before the last one's."""
    free = asyncio.Event()

    async def held(when: str, _rows: Sequence[LogRow]) -> None:
        if when == "before":
            await free.wait()

    claims = []
    for number in range(4):
        attempt = await world.allocate(AttemptOutcome.CRASHED)
        store = HookedStore(world.database, held)
        claims.append(asyncio.create_task(world.claim(attempt, writer=b"%d" % number, store=store)))
        await asyncio.sleep(1)
    last = await world.allocate(AttemptOutcome.CRASHED)

    async def release(when: str, _rows: Sequence[LogRow]) -> None:
        if when == "before" and not free.is_set():
            free.set()
            await asyncio.sleep(1)

    log = await world.claim(last, writer=b"last", store=HookedStore(world.database, release))
    await asyncio.wait(claims)
    assert log.history.totals.retries == 4
    for claiming in claims:
        claiming.exception()


@scenario
async def test_a_claim_that_a_failover_took_back_writes_nothing(world: World) -> None:
    """Behind it the run is its older process's again, which goes on."""
    old = await world.claim(await world.allocate(), writer=b"old")
    attempt = await world.allocate()
    store = MemoryStore(world.database)
    run = world.database.runs[RUN]

    async def claim_and_lose(run_id: UUID, *, attempt: int, claimer: bytes) -> int | None:
        before = run.row, run.claimer
        epoch = await MemoryStore.claim(store, run_id, attempt=attempt, claimer=claimer)
        run.row, run.claimer = before
        world.database.server = "2"
        return epoch

    store.claim = claim_and_lose  # type: ignore[method-assign]
    with pytest.raises(Fenced, match="epoch is 1, ours is 2"):
        await world.claim(attempt, store=store)
    await old.append(pb.NodeRecord(id="a", kind="work"))
    assert world.ids() == ["attempt-1.1", "a"]
