"""What this process should do for a run that it may carry out. Pure.

Who calls: `inprocess`. What holds: decided from what is read, never from what was told; a run that
somebody else carries out is left alone; who parked a run must have a reason to go on that is new
since then.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from agentrun.local.holders import Holder, Standing
from agentrun.local.levels import budget_of
from agentrun.local.process import parse_process
from agentrun.local.views import phase_now, summary_of
from agentrun.log.store import AttemptOutcome, AttemptRow, RunInfo
from agentrun_api.executor import Stand

BUDGET_EXCEEDED = "BudgetExceeded"
INTERRUPTED = frozenset({"Terminated", "StoreUnavailable", "Suspended"})
"""Why an attempt paused that nothing hinders any more."""


class Do(StrEnum):
    """The next thing."""

    NOTHING = "Nothing"
    START = "Start"
    END = "End"
    """Nobody runs it, and it is to end."""


def next_of(info: RunInfo, who: Holder, *, answered: bool) -> Do:
    """`answered`: something waits in the run's inbox that the run has not used."""
    levels = info.run.levels
    if info.run.ended or who.live:
        return Do.NOTHING
    if levels.shutdown:
        return Do.END
    if levels.suspend:
        return Do.NOTHING
    row = who.attempt
    if who.standing in (Standing.NEVER, Standing.CRASHED) or row is None:
        return Do.START
    if row.outcome is AttemptOutcome.FAILED:
        return Do.NOTHING
    if row.outcome is not AttemptOutcome.PAUSED or row.reason in INTERRUPTED:
        return Do.START
    if row.reason == BUDGET_EXCEEDED:
        return Do.START if _has_room(info, row) else Do.NOTHING
    return Do.START if answered else Do.NOTHING


def _has_room(info: RunInfo, row: AttemptRow) -> bool:
    """The budget was changed since the attempt began, and no limit stands in the way any more."""
    if parse_process(row.process).generation == info.run.levels.generation:
        return False
    summary = summary_of(info)
    limits, used = budget_of(info.run.levels), _mapping(summary.get("budget"))
    for name in ("tokens", "wallSeconds", "turns"):
        if limits.get(name) is not None and used.get(name, 0) >= limits[name]:
            return False
    # Retries that are just used up matter to who needs another one only.
    left = limits["retries"] - used.get("retries", 0)
    return left > 0 or (left == 0 and "retries" not in str(summary.get("message")))


def _mapping(value: Any) -> Mapping[str, float]:
    return value if isinstance(value, Mapping) else {}


def stand_of(info: RunInfo, who: Holder) -> Stand:
    """How the run stands, as the command tells it."""
    phase, reason, message = phase_now(info, who)
    return Stand(phase=phase, reason=reason, message=message)
