"""The end of an executor's run: what its log says, or the record that says it.

Who calls: the executor, when nothing of it is in flight any more. What holds: a run has
one final record; what was appended, whoever gave up waiting for it, decides first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agentrun.graph.outcome import Outcome
from agentrun.graph.scopes import Scopes
from agentrun.log.final import final_record
from agentrun.log.runlog import RunLog
from agentrun.proto import log_pb2 as pb


async def conclude(
    log: RunLog,
    scopes: Scopes,
    stop: Outcome | None,
    observe: Callable[[str, str, Mapping[str, Any]], None],
) -> Outcome:
    """How the run ended; appends the final record where no node of the graph has."""
    await log.settled()
    final = log.history.final
    if final is not None:
        return Outcome(outcome=final.final.outcome, reason=final.final.reason, message=final.final.message)
    stop = stop or _complete(scopes)
    if not stop.paused:
        record = final_record(stop.outcome, stop.reason, stop.message, epoch=log.epoch, now_us=log.now_us())
        last = scopes.last("")
        if stop.outcome == pb.OUTCOME_SUCCEEDED and last is not None:
            record.output.CopyFrom(last.output)
        await log.append(record)
        observe("finished", record.id, {"record": record})
    return stop


def _complete(scopes: Scopes) -> Outcome:
    """Nothing is left to run, and no node has ended the run."""
    if scopes.unfinished(""):
        message = "waiting for parents that nothing spawns: " + ", ".join(scopes.stuck()[:5])
        return Outcome(outcome=pb.OUTCOME_FAILED, reason="Stuck", message=message)
    return Outcome(outcome=pb.OUTCOME_SUCCEEDED, reason="Completed")
