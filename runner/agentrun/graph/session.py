"""One attempt of one run in this process: claim, execute, let go.

Who calls: whatever was given an attempt: the command, a runner pod. What holds: a pause that is asked for
before the claim is through ends the attempt at once, one that comes later ends it at
a node's boundary within the grace; either way the attempt says so, where the store can
be reached, lest it be taken for a crash. A process that is fenced off writes nothing.
The store is the caller's, and closes last; so is an appender that several runs share.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol
from uuid import UUID

from agentrun.graph.budget import limits_of
from agentrun.graph.drive import Drive, ResultText
from agentrun.graph.executor import Executor, Observer, Outcome
from agentrun.graph.types import NodeKind, Spawned
from agentrun.log.appender import Appender
from agentrun.log.blobs import BlobStore, TableBlobs
from agentrun.log.claim import claim
from agentrun.log.errors import Fenced, LogError, RunEnded, StoreUnavailable
from agentrun.log.runlog import RunLog
from agentrun.log.store import AttemptOutcome, LogStore
from agentrun.log.text import safe_text
from agentrun.proto import log_pb2 as pb

MARGIN_SECONDS_MAX = 2.0
MARGIN_SHARE = 0.2
"""What is kept of the grace to say how the attempt ended: 20 % of it, at most 2 s."""

CLOSE_SECONDS_MAX = 2.0
"""How long the attempt's last words may take."""

NOTE_CHARACTERS_MAX = 1000
"""Of what an attempt says about its end."""

TERMINATED = Outcome(outcome=pb.OUTCOME_UNSPECIFIED, reason="Terminated")


class Runnable(Protocol):
    """What to run; `agentrun.agent.Program` is it."""

    @property
    def kinds(self) -> Mapping[str, NodeKind]: ...
    @property
    def root(self) -> Spawned: ...
    @property
    def concurrency(self) -> int: ...
    @property
    def budget(self) -> Mapping[str, Any]: ...


class Session:
    """See the module's docstring. `stop` and `stop_at_once` are for signal handlers, in the loop."""

    def __init__(
        self,
        store: LogStore,
        program: Runnable,
        *,
        run_id: UUID,
        attempt: int,
        process: str = "",
        grace_seconds: float = 30.0,
        observer: Observer | None = None,
        blobs: BlobStore | None = None,
        on_claimed: Callable[[RunLog, Executor], None] | None = None,
        result_text: ResultText | None = None,
        appender: Appender | None = None,
    ) -> None:
        self._store = store
        self._program = program
        self._run_id = run_id
        self._attempt = attempt
        self._process = process
        self._grace_seconds = grace_seconds
        self._observer = observer
        self._blobs = blobs or TableBlobs(store)
        self._on_claimed = on_claimed or (lambda log, executor: None)
        self._result_text = result_text
        self._appender = appender
        self._claiming: asyncio.Task[RunLog] | None = None
        self._executor: Executor | None = None
        self._stopping = False

    def stop(self) -> None:
        """Pauses the run: what is in flight has the grace, less a margin, to be recorded."""
        margin = min(MARGIN_SECONDS_MAX, MARGIN_SHARE * self._grace_seconds)
        self._stop(self._grace_seconds - margin)

    def stop_at_once(self) -> None:
        """Pauses the run and gives up what is in flight."""
        self._stop(0.0)

    def _stop(self, within_seconds: float) -> None:
        self._stopping = True
        if self._executor is not None:
            self._executor.pause("Terminated", within_seconds=within_seconds)
        elif self._claiming is not None:
            self._claiming.cancel()

    async def run(self) -> Outcome:
        """Runs to the end or to a stop. Raises RunEnded, Fenced, CorruptLog, StoreRefused,
        StoreUnavailable (the store was away for longer than is waited for)."""
        appender = self._appender or Appender(self._store, on_outage=self._outage)
        try:
            return await self._run(appender)
        except Exception as error:
            await self._tell(error)
            raise
        finally:
            if self._appender is None:
                await _bounded(appender.close())

    def _outage(self, seconds: float, error: StoreUnavailable | None) -> None:
        if self._observer is not None:
            event = "store_back" if error is None else "store_away"
            with suppress(Exception):  # whoever watches cannot change what happens
                self._observer(event, "", {"seconds": seconds, "error": str(error or "")})

    async def _run(self, appender: Appender) -> Outcome:
        log = await self._claim(appender)
        if log is None:
            await self._close_attempt(AttemptOutcome.PAUSED, TERMINATED.reason)
            return TERMINATED
        program = self._program
        executor = Executor(
            log,
            program.kinds,
            program.root,
            limits=limits_of(program.budget),
            concurrency=program.concurrency,
            observer=self._observer,
        )
        self._executor = executor
        drive = Drive(executor, budget=program.budget, result_text=self._result_text)
        self._on_claimed(log, executor)
        with suppress(StoreUnavailable):  # hints only make it faster
            await self._store.listen(drive.hint)
        return await drive.run()

    async def _claim(self, appender: Appender) -> RunLog | None:
        """The run's log; None when a stop came first."""
        if self._was_stopped():
            return None
        claiming = self._claiming = asyncio.create_task(
            claim(
                appender=appender,
                blobs=self._blobs,
                run_id=self._run_id,
                attempt=self._attempt,
                writer=os.urandom(16),
                process=self._process,
            )
        )
        try:
            log = await claiming
        except asyncio.CancelledError:
            claiming.cancel()
            if self._was_stopped():
                return None
            raise
        # The stop may have come when the claim was through, and its task could not be cancelled any more.
        return None if self._was_stopped() else log

    def _was_stopped(self) -> bool:
        return self._stopping

    async def _tell(self, error: Exception) -> None:
        """Says why the attempt ended, where that is not somebody else's doing."""
        if isinstance(error, StoreUnavailable):
            await self._close_attempt(AttemptOutcome.PAUSED, "StoreUnavailable")
        elif not isinstance(error, Fenced | RunEnded):
            note = safe_text(f"{type(error).__name__}: {error}")
            await self._close_attempt(AttemptOutcome.FAILED, note[:NOTE_CHARACTERS_MAX])

    async def _close_attempt(self, outcome: AttemptOutcome, reason: str) -> None:
        async def close() -> None:
            await self._store.close_attempt(self._run_id, self._attempt, outcome, reason)
            await self._store.notify([self._run_id])

        with suppress(LogError):
            await _bounded(close())


async def _bounded(work: Any) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_SECONDS_MAX):
            await work
