"""Who watches a run is given each of its records once and in order, whatever comes between."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any
from uuid import UUID, uuid4

import pytest

from agentrun.log.errors import CorruptLog, StoreUnavailable
from agentrun.log.memory import Database, MemoryStore
from agentrun.log.store import AttemptOutcome, LogRow, RunRow
from agentrun_api.feed import KEPT_EVENTS_MAX, ROWS_MAX, Event, Feed, Feeds
from tests.support.sim.loop import SimLoop
from tests.support.sim.world import SimClock

END = b"the end"


def encode(run_id: UUID, seq: int, record: bytes) -> Event:
    if record == b"bad":
        raise CorruptLog(run_id, seq, "it is no record")
    return Event(seq=seq, data=record, last=record == END)


class Shaky(MemoryStore):
    """Loses hints, and is away now and then."""

    def __init__(self, db: Database, seed: int = 0) -> None:
        super().__init__(db)
        self.random = random.Random(seed)
        self.reads = 0
        self.away = 0.0
        self.lossy = 0.0

    async def read_new(self, heads: Mapping[UUID, int], *, limit: int) -> list[tuple[UUID, int, bytes]]:
        self.reads += 1
        await asyncio.sleep(0.001)
        if self.random.random() < self.away:
            raise StoreUnavailable("it is away")
        return await super().read_new(heads, limit=limit)

    async def notify(self, run_ids: Sequence[UUID]) -> None:
        if self.random.random() >= self.lossy:
            await super().notify(run_ids)


class Bench:
    def __init__(self, seed: int = 0) -> None:
        self.clock = SimClock(asyncio.get_running_loop())  # type: ignore[arg-type]
        self.store = Shaky(Database(self.clock.monotonic), seed)
        self.feeds = Feeds(self.store, encode, clock=self.clock)

    async def run(self) -> UUID:
        run_id = uuid4()
        await self.store.create_run(
            RunRow(run_id=run_id, owner="local/a", name="a", definition=b"", digest="")
        )
        await self.store.allocate_attempt(run_id, expected=0, process="", previous=AttemptOutcome.CRASHED)
        return run_id

    async def append(self, run_id: UUID, *records: bytes) -> None:
        token = await self.store.connect()
        head = len(await self.store.read_rows(run_id))
        for seq, record in enumerate(records, head + 1):
            assert await self.store.insert_row(LogRow(run_id=run_id, seq=seq, record=record), token)
        await self.store.notify([run_id])

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.feeds.run())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def seqs(
        self, run_id: UUID, after: int = 0, *, pause: Callable[[], float] = lambda: 0.0
    ) -> list[int]:
        """All that a watcher is given, to the end."""
        found: list[int] = []
        async with aclosing(self.feeds.watch(run_id, after, idle_seconds=15)) as stream:
            async for events in stream:
                found += [event.seq for event in events]
                await asyncio.sleep(pause())
        return found


def simulated(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    SimLoop(random.Random(0)).run(test(), steps_max=1_000_000)  # type: ignore[abstract]


def test_a_run_that_is_over_is_told_whole_and_ends() -> None:
    async def test() -> None:
        bench = Bench()
        run_id = await bench.run()
        await bench.append(run_id, *[b"a"] * (2 * ROWS_MAX), END)
        async with bench.running():
            assert await bench.seqs(run_id) == list(range(1, 2 * ROWS_MAX + 2))
            assert await bench.seqs(run_id, after=2 * ROWS_MAX) == [2 * ROWS_MAX + 1]
            assert await bench.seqs(run_id, after=2 * ROWS_MAX + 1) == []
            assert bench.feeds.watchers == 0

    simulated(test)


@pytest.mark.parametrize("seed", range(40))
def test_each_record_comes_once_and_in_order_to_quick_and_slow_ones(seed: int) -> None:
    async def test() -> None:
        bench = Bench(seed)
        bench.store.away, bench.store.lossy = 0.2, 0.3
        chance = bench.store.random
        runs = [await bench.run() for _ in range(3)]
        number = 3 * KEPT_EVENTS_MAX // 2

        async def write(run_id: UUID) -> None:
            left = number
            while left:
                count = min(left, chance.randint(1, 90))
                left -= count
                await bench.append(run_id, *[b"x" * chance.choice((1, 5000))] * count)
                await asyncio.sleep(chance.uniform(0, 1))
            await bench.append(run_id, END)

        async def watch(run_id: UUID) -> None:
            await asyncio.sleep(chance.uniform(0, 10))
            after = chance.choice((0, 0, 1, 3))
            while not await bench.store.read_rows(run_id, after=after - 1, limit=1):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            slow = chance.choice((0.0, 0.01, 1.0))
            found = await bench.seqs(run_id, after, pause=lambda: chance.uniform(0, slow))
            assert found == list(range(after + 1, number + 2))

        async with bench.running(), asyncio.TaskGroup() as group:
            for run_id in runs:
                group.create_task(write(run_id))
                for _ in range(6):
                    group.create_task(watch(run_id))
        assert bench.feeds.watchers == 0

    simulated(test)


def test_many_who_watch_one_run_cost_one_read_for_each_that_comes() -> None:
    async def test() -> None:
        bench = Bench()
        run_id = await bench.run()
        async with bench.running(), asyncio.TaskGroup() as group:
            for _ in range(100):
                group.create_task(bench.seqs(run_id))
            await asyncio.sleep(1)
            before = bench.store.reads
            for _ in range(10):
                await bench.append(run_id, b"a")
                await asyncio.sleep(0.1)
            assert bench.store.reads - before <= 11
            await bench.append(run_id, END)

    simulated(test)


def test_a_lost_hint_costs_one_poll_at_most() -> None:
    async def test() -> None:
        bench = Bench()
        bench.store.lossy = 1.0
        run_id = await bench.run()
        async with bench.running(), asyncio.TaskGroup() as group:
            task = group.create_task(bench.seqs(run_id))
            await asyncio.sleep(5.3)
            began = bench.clock.monotonic()
            await bench.append(run_id, END)
            await task
            assert bench.clock.monotonic() - began < 2.1

    simulated(test)


def test_who_waits_is_told_that_nothing_came() -> None:
    async def test() -> None:
        bench = Bench()
        run_id = await bench.run()
        async with bench.running(), aclosing(bench.feeds.watch(run_id, 0, idle_seconds=15)) as stream:
            began = bench.clock.monotonic()
            assert await anext(stream) == []
            assert await anext(stream) == []
            assert 30 <= bench.clock.monotonic() - began < 31

    simulated(test)


def test_a_record_behind_the_end_goes_on() -> None:
    async def test() -> None:
        bench = Bench()
        run_id = await bench.run()
        await bench.append(run_id, b"a", END, b"reopened")
        async with bench.running(), asyncio.TaskGroup() as group:
            task = group.create_task(bench.seqs(run_id))
            await asyncio.sleep(1)
            await bench.append(run_id, END)
            assert await task == [1, 2, 3, 4]

    simulated(test)


def test_a_log_that_cannot_be_read_is_an_error_of_its_own_run_alone() -> None:
    async def test() -> None:
        bench = Bench()
        bad, good = await bench.run(), await bench.run()
        async with bench.running():
            watchers = [asyncio.create_task(bench.seqs(run_id)) for run_id in (bad, good)]
            await asyncio.sleep(1)
            await bench.append(bad, b"a", b"bad")
            await bench.append(good, b"a")
            await asyncio.sleep(5)
            await bench.append(good, END)
            found = await asyncio.gather(*watchers, return_exceptions=True)
            assert isinstance(found[0], CorruptLog)
            assert found[1] == [1, 2]

    simulated(test)


def test_a_feed_keeps_a_bounded_number_of_bytes_and_events() -> None:
    feed = Feed(0)
    feed.add(Event(seq=seq, data=b"a") for seq in range(1, KEPT_EVENTS_MAX + 11))
    assert feed.behind(5) is None
    assert [event.seq for event in feed.behind(10) or []][:1] == [11]
    feed.add([Event(seq=KEPT_EVENTS_MAX + 11, data=b"a" * 10_000_000)])
    assert [event.seq for event in feed.behind(feed.head - 1) or []] == [feed.head]
    assert feed.behind(feed.head) == []
