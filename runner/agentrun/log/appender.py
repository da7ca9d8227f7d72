"""The one appender of a process: one connection, one statement under way.

Who calls: `RunLog.append`, for any number of runs. While a statement is under way
the records of all runs gather, and go together as the next one; a record alone
never waits for company.

What holds, whatever the network does:
- a row keeps the seq and the bytes that it was first sent with;
- a row that did not go in is read back: either it is our own, or the run is fenced;
- after each reconnect a run is looked at before anything new of it is sent.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from agentrun.log.clock import Clock
from agentrun.log.errors import Fenced, LogError, StoreUnavailable
from agentrun.log.store import LogRow, LogStore, Token
from agentrun.log.tail import Tail

T = TypeVar("T")

PACK_ROWS_MAX = 512
PACK_BYTES_MAX = 4 * 1024 * 1024
OUTAGE_SECONDS_MAX = 300.0
"""How long a store may be away before its callers are given the error."""

OUTAGE_SECONDS_TOLD = 1.0
"""Outages shorter than this are nobody's business."""

OnOutage = Callable[[float, StoreUnavailable | None], None]
"""Called with the seconds that the store has been away and why, at each try; (0, None) when it is back."""


class Backoff:
    """Waits that grow, with jitter, until an outage has lasted too long."""

    FIRST_SECONDS = 0.05
    LAST_SECONDS = 5.0

    def __init__(self, clock: Clock, outage_seconds_max: float, tell: OnOutage) -> None:
        self._clock = clock
        self._max = outage_seconds_max
        self._tell = tell
        self._since = clock.monotonic()
        self._step = self.FIRST_SECONDS

    async def wait(self, error: StoreUnavailable) -> None:
        """Waits, or raises `error` when the bound is reached."""
        away = self._clock.monotonic() - self._since
        self._tell(away, error)
        if away > self._max:
            raise error
        await asyncio.sleep(self._step * random.uniform(0.5, 1.0))
        self._step = min(self._step * 2, self.LAST_SECONDS)


async def retried(
    call: Callable[[], Awaitable[T]],
    clock: Clock,
    outage_seconds_max: float = OUTAGE_SECONDS_MAX,
    tell: OnOutage = lambda seconds, error: None,
) -> T:
    """The call's result, tried again while the store is away; StoreUnavailable at the bound."""
    backoff = Backoff(clock, outage_seconds_max, tell)
    while True:
        try:
            return await call()
        except StoreUnavailable as error:
            await backoff.wait(error)


class Appender:
    """See the module's docstring. `close` waits for what is under way."""

    def __init__(
        self,
        store: LogStore,
        clock: Clock | None = None,
        *,
        outage_seconds_max: float = OUTAGE_SECONDS_MAX,
        on_outage: OnOutage = lambda seconds, error: None,
    ) -> None:
        self.store = store
        self.clock = clock or Clock()
        self._outage_seconds_max = outage_seconds_max
        self._on_outage = on_outage
        self._away = False
        self._waiting: dict[Tail, None] = {}
        self._task: asyncio.Task[None] | None = None

    def submit(self, tail: Tail) -> None:
        """The tail has rows to send, or something to recover."""
        self._waiting[tail] = None
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._flush())

    async def retried(self, call: Callable[[], Awaitable[T]]) -> T:
        """The call's result, tried again while the store is away; StoreUnavailable at the bound."""
        result = await retried(call, self.clock, self._outage_seconds_max, self._tell_away)
        self._tell_back()
        return result

    def _backoff(self) -> Backoff:
        return Backoff(self.clock, self._outage_seconds_max, self._tell_away)

    def _tell_away(self, seconds: float, error: StoreUnavailable | None) -> None:
        if self._away or seconds >= OUTAGE_SECONDS_TOLD:
            self._away = True
            self._on_outage(seconds, error)

    def _tell_back(self) -> None:
        if self._away:
            self._away = False
            self._on_outage(0.0, None)

    async def close(self) -> None:
        """Waits until nothing is under way."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _flush(self) -> None:
        backoff: Backoff | None = None
        try:
            while self._waiting:
                try:
                    await self._round()
                    backoff = None
                    self._tell_back()
                except StoreUnavailable as error:
                    backoff = backoff or self._backoff()
                    await backoff.wait(error)
        except BaseException as error:
            told = error if isinstance(error, LogError) else LogError(f"the appender failed: {error!r}")
            for tail in list(self._waiting):
                tail.break_off(told)
            self._waiting.clear()
            if not isinstance(error, LogError):
                raise
        finally:
            self._task = None

    async def _round(self) -> None:
        """One statement: whatever is waiting, or the recovery of a run."""
        token = await self.store.connect()
        for tail in list(self._waiting):
            if tail.token != token:
                await self._recover(tail, token)
        for tail in list(self._waiting):
            if tail.broken is not None or (not tail.unsent and tail.token == token):
                del self._waiting[tail]
        rows = self._take(token)
        if not rows:
            return
        try:
            await self._send(rows, token)
        except StoreUnavailable:
            for tail, _ in rows:
                tail.token = None
            raise
        for tail in {tail for tail, _ in rows}:  # whoever was served goes to the end of the line
            self._waiting.pop(tail, None)
            if tail.unsent:
                self._waiting[tail] = None

    def _take(self, token: Token) -> list[tuple[Tail, LogRow]]:
        """The next statement's rows, sorted by (run_id, seq). A final row goes alone, and first.

        A run that came, or was found to have lost rows, while others were looked at waits for its
        own look.
        """
        ready = [tail for tail in self._waiting if tail.unsent and tail.token == token]
        for tail in ready:
            if tail.unsent[0].final:
                return [(tail, tail.unsent[0])]
        rows: list[tuple[Tail, LogRow]] = []
        size = 0
        for tail in ready:
            for row in tail.unsent:
                if row.final:
                    break
                if len(rows) >= PACK_ROWS_MAX or (rows and size + len(row.record) > PACK_BYTES_MAX):
                    break
                rows.append((tail, row))
                size += len(row.record)
        if len(rows) > 1:
            rows.sort(key=lambda item: (item[1].run_id, item[1].seq))
        return rows

    async def _send(self, rows: Sequence[tuple[Tail, LogRow]], token: Token) -> None:
        sent_at = self.clock.monotonic()
        if len(rows) > 1 and await self.store.insert_pack([row for _, row in rows], token):
            for tail, row in rows:
                tail.acknowledge(row, sent_at)
            return
        for tail, row in rows:
            if tail.broken is None:
                await self._send_one(tail, row, token)

    async def _send_one(self, tail: Tail, row: LogRow, token: Token) -> None:
        sent_at = self.clock.monotonic()
        if not await self.store.insert_row(row, token):
            sent_at = float("-inf")  # that it stands does not say that the run is still ours
            stands = await self.store.read_rows(tail.run_id, after=row.seq - 1, limit=1)
            if not stands or stands[0][0] != row.seq:
                # Nothing is in its place: the server is another one, or the run is gone.
                self.store.give_up(token)
                raise StoreUnavailable("the server behind the connection was replaced")
            if stands[0][1] != row.record:
                self._fence(tail, f"record {row.seq} is somebody else's")
                return
        tail.acknowledge(row, sent_at)

    async def _recover(self, tail: Tail, token: Token) -> None:
        """Looks at epoch and head; what was lost is queued again, what landed is acknowledged."""
        sent_at = self.clock.monotonic()
        look = await self.store.look(tail.run_id, attempt=tail.attempt)
        if look is not None and look.server != token.server:
            self.store.give_up(token)
            raise StoreUnavailable("the two connections lead to different servers")
        why = tail.refusal(look)
        if why or look is None:
            self._fence(tail, why)
            return
        if look.head < tail.acked and not await self._take_back(tail, look.head):
            return
        for seq, record in await self.store.read_rows(tail.run_id, after=tail.acked):
            row = tail.unsent[0] if tail.unsent else None
            if row is None or row.seq != seq or row.record != record:
                self._fence(tail, f"record {seq} is somebody else's")
                return
            tail.acknowledge(row, sent_at)
        if tail.server != token.server:
            await tail.put_blobs()
            tail.server = token.server
        tail.token = token
        tail.confirm(sent_at)

    async def _take_back(self, tail: Tail, head: int) -> bool:
        """Queues again what the store has lost behind `head`. False: that cannot be; fenced."""
        for seq, record in await self.store.read_rows(tail.run_id, after=head - 1, limit=1):
            if not tail.stood(seq, record):
                self._fence(tail, f"record {seq} is somebody else's")
                return False
        if not tail.take_back(head):
            self._fence(tail, f"the store lost records from {head + 1} on, and they are not at hand")
            return False
        return True

    def _fence(self, tail: Tail, why: str) -> None:
        tail.break_off(Fenced(tail.run_id, why))
        self._waiting.pop(tail, None)
