"""The live end of the logs that somebody watches: one listener and one reader for all of them.

Who calls: the event streams. What holds:
- a watcher is given each record behind its cursor once, in the order of seq, whatever hints are
  lost: a hint only makes the next look come sooner, and each look reads behind the last one;
- a watcher has no queue. It holds a cursor; records wait in the feed, shared by all watchers of
  a run and bounded, and who is behind them reads the log. So a slow one costs what a quick one does;
- each record is turned into its event once, however many watch.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from uuid import UUID

from agentrun.log.appender import Backoff
from agentrun.log.clock import Clock
from agentrun.log.errors import LogError, StoreUnavailable
from agentrun.log.store import LogStore

log = logging.getLogger(__name__)

POLL_SECONDS = 2.0
"""How often the logs are looked at where no hint says that they grew."""

ROWS_MAX = 256
"""Records of one run that one look reads."""

PAGE_ROWS = 64
"""Records that a watcher who is behind reads at once: it alone holds them."""

KEPT_BYTES_MAX = 256 * 1024
KEPT_EVENTS_MAX = 512
"""Of one run, for those who are not quite there yet."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """One record as it is sent. `last`: it ends the run, unless a later record reopens it."""

    seq: int
    data: bytes
    last: bool = False


Encode = Callable[[UUID, int, bytes], Event]
"""From (run_id, seq, record) to its event."""


class Feed:
    """The newest events of one run. `head`: the seq that the log was read up to."""

    def __init__(self, head: int) -> None:
        self.head = head
        self.failed: LogError | None = None
        self._first = head + 1
        self._events: deque[Event] = deque()
        self._bytes = 0
        self._news = asyncio.Event()

    def add(self, events: Iterable[Event]) -> None:
        """Puts events behind the head, and drops the oldest ones over the bounds."""
        for event in events:
            assert event.seq > self.head, (event.seq, self.head)
            self.head = event.seq
            self._events.append(event)
            self._bytes += len(event.data)
        while len(self._events) > KEPT_EVENTS_MAX or (self._bytes > KEPT_BYTES_MAX and len(self._events) > 1):
            dropped = self._events.popleft()
            self._bytes -= len(dropped.data)
            self._first = dropped.seq + 1
        self.wake()

    def fail(self, error: LogError) -> None:
        """The run's log cannot be read any further."""
        self.failed = error
        self.wake()

    def wake(self) -> None:
        """Those who wait look again."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    def behind(self, cursor: int) -> list[Event] | None:
        """The events behind the cursor; None where some are not here any more."""
        if cursor + 1 < self._first:
            return None
        return [event for event in self._events if event.seq > cursor]

    async def news(self, seconds_max: float) -> bool:
        """Waits until something has come; False when that takes longer."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                await self._news.wait()
                return True
        return False


class Feeds:
    """See the module's docstring. `run` it in a task of its own, as long as anybody watches."""

    def __init__(self, store: LogStore, encode: Encode, *, clock: Clock | None = None) -> None:
        self._store = store
        self._encode = encode
        self._clock = clock or Clock()
        self._feeds: dict[UUID, Feed] = {}
        self._watchers: dict[UUID, int] = {}
        self._hinted: set[UUID] = set()
        self._all = True
        self._wanted = asyncio.Event()
        self.available = True
        """The last look at the logs went well."""

    @property
    def watchers(self) -> int:
        """How many watch."""
        return sum(self._watchers.values())

    # --- looking

    async def run(self) -> None:
        """Looks at the logs until it is cancelled."""
        with suppress(StoreUnavailable):  # without hints the poll still finds all
            await self._store.listen(self._hint)
        backoff: Backoff | None = None
        polled = self._clock.monotonic()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(polled + POLL_SECONDS - self._clock.monotonic()):
                    await self._wanted.wait()
            if self._clock.monotonic() >= polled + POLL_SECONDS:
                self._all, polled = True, self._clock.monotonic()
            try:
                await self._look()
                self.available, backoff = True, None
            except LogError as error:
                self.available = False
                self._hint(None)
                if not isinstance(error, StoreUnavailable):
                    log.warning("the logs cannot be read: %s", error)
                backoff = backoff or Backoff(self._clock, float("inf"), lambda seconds, error: None)
                await backoff.wait(StoreUnavailable(str(error)))

    def _hint(self, run_id: UUID | None) -> None:
        if run_id is None:
            self._all = True
        elif run_id in self._feeds:
            self._hinted.add(run_id)
        else:
            return
        self._wanted.set()

    async def _look(self) -> None:
        # Whatever comes from here on wakes us again.
        hinted = self._feeds.keys() if self._all else self._hinted
        heads = {run_id: self._feeds[run_id].head for run_id in hinted if run_id in self._feeds}
        self._wanted.clear()
        self._hinted, self._all = set(), False
        if not heads:
            return
        rows = await self._store.read_new(heads, limit=ROWS_MAX)
        found: dict[UUID, list[tuple[int, bytes]]] = {}
        for run_id, seq, record in rows:
            found.setdefault(run_id, []).append((seq, record))
        for run_id, records in found.items():
            self._take(run_id, heads[run_id], records)
            if len(records) == ROWS_MAX:
                self._hint(run_id)

    def _take(self, run_id: UUID, head: int, records: list[tuple[int, bytes]]) -> None:
        feed = self._feeds.get(run_id)
        if feed is None or feed.head != head:
            return  # nobody watches any more, or somebody has begun anew: that one is looked at next
        try:
            feed.add([self._encode(run_id, seq, record) for seq, record in records])
        except LogError as error:
            feed.fail(error)

    # --- watching

    async def watch(self, run_id: UUID, after: int, *, idle_seconds: float) -> AsyncGenerator[list[Event]]:
        """The events behind `after`, as they come; an empty list whenever nothing has come for
        `idle_seconds`. Ends behind the record that ends the run. Raises LogError."""
        if after and await self._was_end(run_id, after):
            return
        cursor = after
        while True:  # what is there already, and then the live end, which begins where this ended
            events = await self._page(run_id, cursor)
            if events:
                cursor = events[-1].seq
                yield events
                if await self._is_end(run_id, events[-1]):
                    return
            if len(events) < PAGE_ROWS:
                break
        with self._joined(run_id, cursor) as feed:
            while True:
                if feed.failed is not None:
                    raise feed.failed
                found = feed.behind(cursor)
                if found is None:
                    found = await self._page(run_id, cursor)
                if found:
                    cursor = found[-1].seq
                    yield found
                    if await self._is_end(run_id, found[-1]):
                        return
                elif not await feed.news(idle_seconds):
                    yield []

    async def _page(self, run_id: UUID, after: int) -> list[Event]:
        rows = await self._store.read_rows(run_id, after=after, limit=PAGE_ROWS)
        return [self._encode(run_id, seq, record) for seq, record in rows]

    async def _was_end(self, run_id: UUID, seq: int) -> bool:
        """Record `seq` ended the run, and nothing stands behind it."""
        rows = await self._store.read_rows(run_id, after=seq - 1, limit=2)
        return [row[0] for row in rows] == [seq] and self._encode(run_id, *rows[0]).last

    async def _is_end(self, run_id: UUID, event: Event) -> bool:
        return event.last and not await self._store.read_rows(run_id, after=event.seq, limit=1)

    @contextmanager
    def _joined(self, run_id: UUID, after: int) -> Iterator[Feed]:
        feed = self._feeds.get(run_id)
        if feed is None:
            feed = self._feeds[run_id] = Feed(after)
            self._hint(run_id)
        self._watchers[run_id] = self._watchers.get(run_id, 0) + 1
        try:
            yield feed
        finally:
            self._watchers[run_id] -= 1
            if not self._watchers[run_id]:
                del self._watchers[run_id], self._feeds[run_id]
