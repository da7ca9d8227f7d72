"""The end of one run's log as this process knows it: what is acknowledged, what is not.

Who calls: `RunLog` adds rows and awaits them, `Appender` sends and acknowledges.
What holds: `acked` and the rows in `unsent` are contiguous; the bytes of the last
acknowledged rows, and of their blobs where those lie in the same store, are kept, so
that what a failover loses can be appended again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

from agentrun.log.errors import LogError
from agentrun.log.store import LogRow, Look, Token
from agentrun.proto import log_pb2 as pb

RETAINED_ROWS_MAX = 256
RETAINED_BYTES_MAX = 4 * 1024 * 1024
FRESH_SECONDS_MAX = 5.0
"""A launch needs a confirmation that was sent at most this long ago."""


class Tail:
    """See the module's docstring. `on_ack` is called for each row once, in the order of seq."""

    def __init__(
        self,
        run_id: UUID,
        *,
        epoch: int,
        attempt: int,
        writer: bytes,
        head: int,
        on_ack: Callable[[LogRow], None],
        put_blob: Callable[[pb.Payload], Awaitable[object]],
        server: str,
    ) -> None:
        self.run_id = run_id
        self.epoch = epoch
        self.attempt = attempt
        self.writer = writer
        self.acked = head
        self.unsent: deque[LogRow] = deque()
        self.token: Token | None = None
        self.server = server
        """The one that was looked at last: all that was stored before stands there, or is at hand."""
        self.broken: LogError | None = None
        self.confirmed_at = float("-inf")
        self._on_ack = on_ack
        self._put_blob = put_blob
        self._blobs: dict[int, Sequence[pb.Payload]] = {}
        self.stood_to = head
        """The greatest seq that ever was acknowledged: over `acked` while lost rows go in again."""
        self._futures: dict[int, asyncio.Future[None]] = {}
        self._retained: deque[LogRow] = deque()
        self._retained_bytes = 0

    @property
    def next_seq(self) -> int:
        """The place of the next new row."""
        return self.unsent[-1].seq + 1 if self.unsent else self.acked + 1

    def push(self, record: bytes, *, final: bool, blobs: Sequence[pb.Payload] = ()) -> asyncio.Future[None]:
        """Adds a row at the end; the future is done when it is acknowledged. `blobs`: what the row
        points at, where a failover may lose it."""
        if self.broken is not None:
            raise self.broken
        row = LogRow(run_id=self.run_id, seq=self.next_seq, record=record, final=final)
        self.unsent.append(row)
        if blobs:
            self._blobs[row.seq] = blobs
        future = self._futures[row.seq] = asyncio.get_running_loop().create_future()
        return future

    async def flushed(self) -> None:
        """Waits until all rows are acknowledged; raises what broke them off."""
        while self.unsent:
            await self.reached(self.unsent[-1].seq)
        if self.broken is not None:
            raise self.broken

    async def reached(self, seq: int) -> None:
        """Waits until row `seq` is acknowledged, or all are broken off."""
        while self.acked < seq and self.broken is None:
            future = self._futures.get(seq)
            if future is None or future.done():  # nobody waits for the row any more
                future = self._futures[seq] = asyncio.get_running_loop().create_future()
            await asyncio.wait([future])

    def acknowledge(self, row: LogRow, sent_at: float) -> None:
        """The row stands in the log. `sent_at`: when the statement that says so was sent."""
        if self.broken is not None:  # while the statement was under way; nobody waits for it
            return
        assert self.unsent and self.unsent[0].seq == row.seq == self.acked + 1, (row.seq, self.acked)
        self.unsent.popleft()
        self.acked = row.seq
        self.retain(row)
        self.confirm(sent_at)
        if row.seq > self.stood_to:  # not when a lost row was appended again
            self.stood_to = row.seq
            self._on_ack(row)
        future = self._futures.pop(row.seq, None)
        if future is not None and not future.done():
            future.set_result(None)

    def retain(self, row: LogRow) -> None:
        """Keeps the row at hand, within the bounds, lest a failover lose it."""
        self._retained.append(row)
        self._retained_bytes += self._size(row)
        while len(self._retained) > RETAINED_ROWS_MAX or self._retained_bytes > RETAINED_BYTES_MAX:
            gone = self._retained.popleft()
            self._retained_bytes -= self._size(gone)
            self._blobs.pop(gone.seq, None)

    def _size(self, row: LogRow) -> int:
        return len(row.record) + sum(len(blob.inline) for blob in self._blobs.get(row.seq, ()))

    async def put_blobs(self) -> None:
        """Stores again what the rows that are not in the log point at."""
        for row in list(self.unsent):
            for blob in self._blobs.get(row.seq, ()):
                await self._put_blob(blob)

    def stood(self, seq: int, record: bytes) -> bool:
        """As far as can be told from what is at hand, this was acknowledged in this place."""
        return all(row.record == record for row in self._retained if row.seq == seq)

    def take_back(self, head: int) -> bool:
        """The store has lost the rows behind `head`: queues them again. False: not all are at hand."""
        lost = [row for row in self._retained if row.seq > head]
        if not lost or lost[0].seq != head + 1:
            return False
        self.unsent.extendleft(reversed(lost))
        self._retained = deque(row for row in self._retained if row.seq <= head)
        self._retained_bytes = sum(map(self._size, self._retained))
        self.acked = head
        return True

    def refusal(self, look: Look | None) -> str:
        """Why this process may not go on, "" where it may."""
        if look is None:
            return "there is no such run any more"
        if look.epoch != self.epoch:
            return f"the run's epoch is {look.epoch}, ours is {self.epoch}"
        if look.claimer not in (b"", self.writer):
            # A failover lost our claim, and another process was given the same epoch.
            return f"another process has claimed epoch {look.epoch}"
        return ""

    def confirm(self, sent_at: float) -> None:
        """A statement that was sent at `sent_at` has shown that the run is ours."""
        self.confirmed_at = max(self.confirmed_at, sent_at)

    def break_off(self, error: LogError) -> None:
        """Nothing goes on here: whoever waits, and whoever comes, gets `error`."""
        self.broken = self.broken or error
        for future in self._futures.values():
            if not future.done():
                future.set_exception(self.broken)
                future.exception()  # it may be that nobody waits any more
        self._futures.clear()
        self.unsent.clear()
