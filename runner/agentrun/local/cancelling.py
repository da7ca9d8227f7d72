"""Ending a run before its time.

Who calls: the command. What holds: a live process is asked and ends the run itself;
without one an attempt is allocated and claimed, so that what an older process still
sends is absorbed or refused, and the final record goes behind all of it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from uuid import UUID

from agentrun.local.holders import holder
from agentrun.local.levels import change_levels, of_shutdown
from agentrun.local.process import Process, this_machine
from agentrun.local.runs import allocate, no_such_run
from agentrun.log.appender import Appender
from agentrun.log.blobs import TableBlobs
from agentrun.log.claim import claim
from agentrun.log.errors import RunEnded, StoreUnavailable
from agentrun.log.final import final_record
from agentrun.log.store import AttemptOutcome, LogStore, RunInfo
from agentrun.log.summary import Phase, summarize, to_json
from agentrun.proto import log_pb2 as pb

POLL_SECONDS = 1.0
"""How often a run that was asked to end is looked at, where no hint says that it has."""


async def cancel_run(
    store: LogStore,
    info: RunInfo,
    process: Process,
    *,
    at_once: bool,
    reason: str,
    wait_seconds: float,
    on_asked: Callable[[str], None],
) -> bool:
    """Ends the run. False: its live process was asked, and had not ended it after `wait_seconds`.
    True: it has ended, perhaps otherwise than cancelled: the log says how.

    `on_asked` is called, with who holds the run, before a live process is waited for.
    """
    run_id = info.run.run_id
    who = holder(info.last_attempt, this_machine())
    if who.live:
        await change_levels(store, info, of_shutdown("Terminate" if at_once else "Stop", reason))
        on_asked(who.describe())
        if not await _gone(store, run_id, wait_seconds):
            return False
    await end_run(store, run_id, process, reason)
    return True


async def _gone(store: LogStore, run_id: UUID, wait_seconds: float) -> bool:
    """Waits until the run has ended or nobody runs it; False when that takes too long."""
    hinted = asyncio.Event()
    with suppress(StoreUnavailable):
        await store.listen(lambda which: hinted.set() if which in (None, run_id) else None)
    machine = this_machine()
    with suppress(TimeoutError):
        async with asyncio.timeout(wait_seconds):
            while True:
                info = await store.get_run(run_id)
                if info is None:
                    raise no_such_run(str(run_id))
                if info.run.ended or not holder(info.last_attempt, machine).live:
                    return True
                with suppress(TimeoutError):
                    async with asyncio.timeout(POLL_SECONDS):
                        await hinted.wait()
                hinted.clear()
    return False


async def end_run(store: LogStore, run_id: UUID, process: Process, reason: str) -> None:
    """Appends the final record, unless one stands; for a run that nobody runs. Raises HeldElsewhere,
    Fenced."""
    allocated = await allocate(store, run_id, process, take_over=False)
    attempt = allocated.attempt
    if attempt is None:
        return
    appender = Appender(store)
    try:
        log = await claim(
            appender=appender,
            blobs=TableBlobs(store),
            run_id=run_id,
            attempt=attempt,
            writer=os.urandom(16),
            process=process.command,
        )
        await log.append(
            final_record(
                pb.OUTCOME_CANCELLED, "Cancelled", reason, epoch=log.epoch, now_us=log.clock.wall_us()
            )
        )
        summary = to_json(summarize(log.history, phase=Phase.CANCELLED))
        await store.put_summary(run_id, epoch=log.epoch, head=log.history.head, summary=summary)
        await store.close_attempt(run_id, attempt, AttemptOutcome.CANCELLED, "Cancelled")
        await store.notify([run_id])
    except RunEnded:
        await store.close_attempt(run_id, attempt, AttemptOutcome.FENCED, "RunEnded")
    finally:
        await appender.close()
