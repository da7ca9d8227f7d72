"""Claiming a run: the steps by which a process becomes the only one that may append.

Who calls: whatever starts a process for a run, with the attempt that was allocated
for it. What holds when `claim` returns: the epoch is ours, the whole log is folded,
and our `attempt` record stands behind all of it, so that whatever an older process
still sends meets a taken place. Until that record stands, rows of an older epoch
that turn up are work that landed before the claim: absorbed.
"""

from __future__ import annotations

from uuid import UUID

from agentrun.log.appender import Appender
from agentrun.log.blobs import BlobStore
from agentrun.log.clock import Clock
from agentrun.log.errors import Fenced, RunEnded, StoreUnavailable
from agentrun.log.replay import ATTEMPT, FORMAT, History, decode
from agentrun.log.runlog import RunLog
from agentrun.log.store import AttemptOutcome, LogRow, LogStore, Token
from agentrun.proto import log_pb2 as pb


async def claim(
    *, appender: Appender, blobs: BlobStore, run_id: UUID, attempt: int, writer: bytes, process: str = ""
) -> RunLog:
    """The run's log, to append to. RunEnded: it has ended; Fenced: `attempt` is not its newest.

    `writer`: 16 random bytes of this process. `process`: a few words on it, for people.
    """
    claiming = _Claim(appender, run_id, attempt, writer, process)
    epoch = await appender.retried(claiming.take_epoch)
    history = await appender.retried(claiming.enter)
    own = LogRow(run_id=run_id, seq=history.head, record=claiming.record)
    return RunLog(
        appender=appender,
        blobs=blobs,
        history=history,
        epoch=epoch,
        attempt=attempt,
        writer=writer,
        own=own,
        server=claiming.server,
    )


class _Claim:
    def __init__(self, appender: Appender, run_id: UUID, attempt: int, writer: bytes, process: str) -> None:
        self.store: LogStore = appender.store
        self.clock: Clock = appender.clock
        self.run_id = run_id
        self.attempt = attempt
        self.writer = writer
        self.process = process
        self.epoch = 0
        self.record = b""
        self.sent: set[bytes] = set()
        self.crashes_since = 0
        self.record_at = 0
        self.history = History(run_id)
        self.server = ""

    async def take_epoch(self) -> int:
        """Repeated after a lost reply, the same claimer gets the same epoch."""
        self.server = (await self.store.connect()).server
        epoch = await self.store.claim(self.run_id, attempt=self.attempt, claimer=self.writer)
        if epoch is None:
            info = await self.store.get_run(self.run_id)
            if info is not None and info.run.ended:
                history = History(self.run_id)
                history.fold_rows(await self.store.read_rows(self.run_id))
                raise RunEnded(self.run_id, history.final_seq)
            why = "there is no such run" if info is None else f"attempt {self.attempt} is not the newest"
            raise Fenced(self.run_id, why)
        self.epoch = epoch
        return epoch

    async def enter(self) -> History:
        """Reads the log and puts our attempt record behind it. Safe to repeat from its start."""
        while True:
            # The token comes before the read: a failover between what is read and what is
            # written, which may have taken rows back, then refuses the insert.
            token = await self.store.connect()
            if token.server != self.server:
                await self._check_epoch(token)  # the failover may have taken the claim back, too
                self.server = token.server
                self.history = History(self.run_id)
                self.record_at = 0
            await self._read()
            if self.record_at:
                return self.history
            if not self.record or self.crashes_since != self.history.attempt:
                # Not sent yet; or another attempt's record was absorbed, and with it the
                # crashes that it has drawn. What was sent before cannot land any more: the
                # place that it was sent to is taken.
                self.record = await self._attempt_record()
            self.sent.add(self.record)
            row = LogRow(run_id=self.run_id, seq=self.history.head + 1, record=self.record)
            if await self.store.insert_next(row, token):
                self._fold(row.seq, row.record)
                return self.history
            await self._check_epoch(token)

    async def _read(self) -> None:
        """Folds what is new."""
        for seq, data in await self.store.read_rows(self.run_id, after=self.history.head):
            self._fold(seq, data)
        if self.history.final is not None:
            raise RunEnded(self.run_id, self.history.final_seq)

    def _fold(self, seq: int, data: bytes) -> None:
        record = decode(self.run_id, seq, data)
        ours = data in self.sent
        if record.epoch > self.epoch or (record.epoch == self.epoch and not ours):
            raise Fenced(self.run_id, f"record {seq} is of epoch {record.epoch}, ours is {self.epoch}")
        if ours:
            self.record = data
            self.record_at = seq
        self.history.fold(seq, record)

    async def _check_epoch(self, token: Token) -> None:
        look = await self.store.look(self.run_id, attempt=self.attempt)
        if look is None:
            raise Fenced(self.run_id, "there is no such run any more")
        if look.epoch != self.epoch or look.claimer not in (b"", self.writer):
            raise Fenced(self.run_id, f"the run's epoch is {look.epoch}, ours is {self.epoch}")
        if look.server != token.server:
            self.store.give_up(token)
            raise StoreUnavailable("the server behind the connection was replaced")

    async def _attempt_record(self) -> bytes:
        """Draws one retry for each crash since the attempt that the log knows last."""
        crashed = [
            row
            for row in await self.store.attempts(self.run_id)
            if row.outcome is AttemptOutcome.CRASHED and self.history.attempt <= row.attempt < self.attempt
        ]
        self.crashes_since = self.history.attempt  # not before: the store may be away
        now = self.clock.wall_us()
        record = pb.NodeRecord(
            format=FORMAT,
            id=f"attempt-{self.attempt}.{self.epoch}",
            kind=ATTEMPT,
            output=pb.Payload(inline=self.process.encode(), media_type="text/plain"),
            cost=pb.Cost(retries=len(crashed)),
            attempt=self.attempt,
            epoch=self.epoch,
            writer=self.writer,
            started_us=now,
            finished_us=now,
        )
        return record.SerializeToString()
