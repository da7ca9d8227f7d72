"""One run's log in the hands of the process that claimed it.

Who calls: the graph's executor. `append` returns when the record is durable;
`confirm` returns when a call to the outside may be launched; both raise `Fenced`
when the run is somebody else's, and from then on nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar
from uuid import UUID

from agentrun.log.appender import Appender
from agentrun.log.blobs import BlobStore
from agentrun.log.errors import BlobMissing, CorruptLog, Fenced, StoreUnavailable
from agentrun.log.replay import FORMAT, History, decode
from agentrun.log.store import InboxRow, LogRow, Look
from agentrun.log.tail import FRESH_SECONDS_MAX, Tail
from agentrun.proto import log_pb2 as pb

INLINE_BYTES_MAX = 8 * 1024
"""A payload over this goes to the blob store, and the record holds where it is."""

LOOK_SECONDS = 10.0
"""How often a process looks at the epoch, whatever it appends; the bound is 30 s."""


T = TypeVar("T")


class RunLog:
    """Made by `claim`. `history` is the fold of all that is acknowledged."""

    def __init__(
        self,
        *,
        appender: Appender,
        blobs: BlobStore,
        history: History,
        epoch: int,
        attempt: int,
        writer: bytes,
        own: LogRow,
        server: str,
    ) -> None:
        self.run_id: UUID = history.run_id
        self.history = history
        self.epoch = epoch
        self.attempt = attempt
        self.writer = writer
        self.clock = appender.clock
        self.store = appender.store
        self.on_look: Callable[[Look], None] = lambda look: None
        self._appender = appender
        self._blobs = blobs
        self._tail = Tail(
            self.run_id,
            epoch=epoch,
            attempt=attempt,
            writer=writer,
            head=history.head,
            on_ack=self._acknowledged,
            put_blob=self._put_blob,
            server=server,
        )
        self._tail.retain(own)
        self._news = asyncio.Event()
        self._pushed: dict[str, int] = {}
        self.sealed = False
        """A final record is on its way: nothing can be appended behind it."""
        self._wall_us = max(self.clock.wall_us(), history.totals.busy.end_us)
        self._monotonic = self.clock.monotonic()

    # --- writing

    async def append(self, record: pb.NodeRecord, *, check: Callable[[], None] = lambda: None) -> None:
        """Makes the record durable: its blobs first, then itself; stamps who wrote it.

        `check` is called between the two, which may take long, and may raise. A cancelled append
        may still become durable: its place in the log is taken.
        """
        blobs = await self._store_blobs(record)
        check()
        if self.sealed or record.id in self._pushed or record.id in self.history.ids:
            raise CorruptLog(self.run_id, self._tail.next_seq, f"{record.id!r} would break the log")
        self.sealed = record.HasField("final")
        self._pushed[record.id] = self._tail.next_seq
        record.format = FORMAT
        record.attempt = self.attempt
        record.epoch = self.epoch
        record.writer = self.writer
        future = self._tail.push(record.SerializeToString(), final=self.sealed, blobs=blobs)
        self._appender.submit(self._tail)
        await future

    def knows(self, record_id: str) -> bool:
        """A record of that id stands, or is on its way."""
        return record_id in self._pushed or record_id in self.history.ids

    async def landed(self, record_id: str) -> None:
        """Waits while that record is on its way, and not broken off."""
        if (seq := self._pushed.get(record_id)) is not None:
            await self._tail.reached(seq)

    async def settled(self) -> None:
        """Waits until all that was appended is acknowledged, whoever gave up waiting for it."""
        await self._tail.flushed()

    def _acknowledged(self, row: LogRow) -> None:
        record = decode(self.run_id, row.seq, row.record)
        self.history.fold(row.seq, record)
        self._pushed.pop(record.id, None)
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def past(self, head: int) -> None:
        """Waits until the log's head is greater."""
        while self.history.head <= head:
            await self._news.wait()

    async def _store_blobs(self, record: pb.NodeRecord) -> list[pb.Payload]:
        """Stores what is too large for the record, which names it from then on. Returns what must
        be kept at hand: what a failover of the log's store would lose with the record."""
        large = [
            (payload, pb.Payload(inline=payload.inline, media_type=payload.media_type))
            for payload in (record.output, *record.attachments, *(spawn.input for spawn in record.spawned))
            if len(payload.inline) > INLINE_BYTES_MAX
        ]
        server = None
        while large and server != self._tail.server:  # again where one came while they were stored
            server = self._tail.server
            for payload, whole in large:
                payload.blob.CopyFrom(await self._retried(partial(self._put_blob, whole)))
        return [whole for _, whole in large] if self._blobs.with_log else []

    async def _put_blob(self, payload: pb.Payload) -> pb.BlobRef:
        return await self._blobs.put(self.run_id, payload.inline, payload.media_type)

    def now_us(self) -> int:
        """Microseconds since 1970 by this process's wall clock at the claim, and not before what an
        earlier process has stamped, moved on by the monotonic one: what is stamped with it has the
        right length, and lies behind what went before, whatever the wall clocks do."""
        return self._wall_us + round((self.clock.monotonic() - self._monotonic) * 1e6)

    # --- reading

    async def payload(self, payload: pb.Payload) -> bytes:
        """The bytes of a payload, from wherever they are."""
        if payload.WhichOneof("where") != "blob":
            return payload.inline
        server = None
        while True:
            try:
                return await self._retried(partial(self._blobs.get, self.run_id, payload.blob))
            except BlobMissing:
                if not self._blobs.with_log:
                    raise
                # Where a failover has lost it, a look has it stored again, with its record.
                if server == (server := (await self.look()).server):
                    raise

    async def inbox(self) -> list[InboxRow]:
        """What people have posted, oldest first."""
        return await self._retried(partial(self.store.inbox, self.run_id))

    # --- the fence

    @property
    def fenced(self) -> bool:
        """True: stop at once."""
        return self._tail.broken is not None

    def fresh(self) -> bool:
        """True: a confirmation was sent at most FRESH_SECONDS_MAX ago, and nothing that a failover
        has lost is still to be appended again. Says nothing about later."""
        tail = self._tail
        return tail.acked >= tail.stood_to and self.clock.monotonic() - tail.confirmed_at <= FRESH_SECONDS_MAX

    async def confirm(self) -> None:
        """Returns when the confirmation is fresh; await it as the last step before a call."""
        while True:
            if self._tail.broken is not None:
                raise self._tail.broken
            if self.fresh():
                return
            await self.look()

    async def look(self) -> Look:
        """Looks at the epoch, the levels and the head; Fenced where the run is not ours."""
        look = await self._retried(self._look)
        self.on_look(look)
        return look

    async def _look(self) -> Look:
        sent_at = self.clock.monotonic()
        stood_to = self._tail.stood_to
        look = await self.store.look(self.run_id, attempt=self.attempt)
        if why := self._tail.refusal(look):
            self._tail.break_off(Fenced(self.run_id, why))
        if self._tail.broken is not None:
            raise self._tail.broken
        assert look is not None
        if look.head < stood_to:
            # A failover lost records. They go in again before anything is launched.
            self._tail.token = None
            self._appender.submit(self._tail)
            raise StoreUnavailable("the store has lost records; appending them again")
        self._tail.confirm(sent_at)
        return look

    async def _retried(self, call: Callable[[], Awaitable[T]]) -> T:
        return await self._appender.retried(call)


def check_kinds(history: History, known: frozenset[str]) -> None:
    """CorruptLog, by name, where the log holds a kind that this build cannot run."""
    for record in history.done.values():
        if record.kind not in known:
            raise CorruptLog(history.run_id, 0, f"node {record.id!r} is of the unknown kind {record.kind!r}")
    for spawn in history.spawned.values():
        if spawn.kind not in known:
            raise CorruptLog(history.run_id, 0, f"node {spawn.id!r} is of the unknown kind {spawn.kind!r}")
