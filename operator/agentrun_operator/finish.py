"""Ending a run that no process runs, and letting a failed one go on.

Who calls: `apply`. What holds: the end goes through an attempt and a claim of the
operator's own, so that what an older process still sends is absorbed or refused; one
retryToken continues a run once, for its log remembers the token.
"""

from __future__ import annotations

import os
from uuid import UUID

from agentrun.log.appender import Appender
from agentrun.log.blobs import TableBlobs
from agentrun.log.claim import claim
from agentrun.log.clock import Clock
from agentrun.log.errors import CorruptLog, Fenced, RunEnded
from agentrun.log.final import final_record
from agentrun.log.replay import FORMAT, REOPENED, History, decode
from agentrun.log.store import AttemptOutcome, LogRow, LogStore
from agentrun.log.summary import Phase, summarize, to_json
from agentrun.proto import log_pb2 as pb
from agentrun_operator.actions import EndRun
from agentrun_operator.facts import Observation

_PROTO = {Phase.FAILED: pb.OUTCOME_FAILED, Phase.CANCELLED: pb.OUTCOME_CANCELLED}
_OUTCOMES = {Phase.FAILED: AttemptOutcome.FAILED, Phase.CANCELLED: AttemptOutcome.CANCELLED}
TEXT = "text/plain"


class CannotEnd(Exception):
    """The log cannot be read, so that no final record can follow."""


async def end_run(store: LogStore, appender: Appender, run_id: UUID, action: EndRun, process: str) -> None:
    """Appends the final record, unless the run has ended or moved on. Raises CannotEnd, StoreUnavailable."""
    attempt = await store.allocate_attempt(
        run_id, expected=action.expected, process=process, previous=AttemptOutcome.DISRUPTED
    )
    if attempt is None:
        return
    try:
        log = await claim(
            appender=appender,
            blobs=TableBlobs(store),
            run_id=run_id,
            attempt=attempt,
            writer=os.urandom(16),
            process="operator",
        )
        record = final_record(
            _PROTO[action.phase],
            action.reason,
            action.message,
            epoch=log.epoch,
            now_us=log.clock.wall_us(),
        )
        await log.append(record)
        summary = to_json(summarize(log.history, phase=action.phase))
        await store.put_summary(run_id, epoch=log.epoch, head=log.history.head, summary=summary)
        await store.close_attempt(run_id, attempt, _OUTCOMES[action.phase], action.reason)
        await store.notify([run_id])
    except RunEnded:
        await store.close_attempt(run_id, attempt, AttemptOutcome.FENCED, "RunEnded")
    except Fenced:
        return
    except CorruptLog as error:
        await store.close_attempt(run_id, attempt, AttemptOutcome.FAILED, f"CorruptLog: {error}")
        raise CannotEnd(str(error)) from error


async def reopen(store: LogStore, o: Observation, token: str) -> bool:
    """Lets a run that has ended go on. False: it did so for this token before, or others were quicker."""
    assert o.info is not None
    run = o.info.run
    history, used = History(run.run_id), set()
    for seq, data in await store.read_rows(run.run_id):
        record = decode(run.run_id, seq, data)
        history.fold(seq, record)
        if record.kind == REOPENED:
            used.add(record.output.inline)
    if token.encode() in used:
        return False
    now, seq = Clock().wall_us(), history.head + 1
    record = pb.NodeRecord(
        format=FORMAT,
        id=f"reopened-{run.epoch + 1}",
        kind=REOPENED,
        output=pb.Payload(inline=token.encode(), media_type=TEXT),
        attempt=run.attempt + 1,
        epoch=run.epoch + 1,
        started_us=now,
        finished_us=now,
    )
    if not await store.reopen(LogRow(run_id=run.run_id, seq=seq, record=record.SerializeToString())):
        return False
    history.fold(seq, record)
    summary = to_json(summarize(history, phase=Phase.PENDING))
    await store.put_summary(run.run_id, epoch=run.epoch + 1, head=seq, summary=summary)
    await store.notify([run.run_id])
    return True
