"""From what the store says of a run to the bodies of answers. Pure.

Who calls: the routes. What holds: sizes are constant, whatever the run has done.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from agentrun.local.holders import CONFIRMED_SECONDS_MAX
from agentrun.local.levels import budget_of
from agentrun.local.process import parse_process
from agentrun.local.records import instant
from agentrun.local.views import summary_of
from agentrun.log.store import AttemptRow, RunInfo
from agentrun_api.access import namespace_of
from agentrun_api.executor import Stand
from agentrun_api.shapes import AttemptView, BudgetView, Limit, ResultView, RunEntry, RunView

ATTEMPTS_SHOWN = 20


def run_entry(info: RunInfo, stand: Stand) -> RunEntry:
    """A run in a list."""
    return RunEntry(**_entry(info, stand))


def _entry(info: RunInfo, stand: Stand) -> dict[str, Any]:
    summary = summary_of(info)
    used = summary.get("budget", {})
    return {
        "run_id": str(info.run.run_id),
        "name": info.run.name,
        "namespace": namespace_of(info.run.owner),
        "phase": stand.phase,
        "reason": stand.reason,
        "message": stand.message,
        "attempt": info.run.attempt,
        "head": summary.get("head", 0),
        "turns": used.get("turns", 0),
        "tokens": used.get("tokens", 0),
        "created_at": instant(info.run.created_at),
        "ended_at": instant(info.run.ended_at),
    }


def run_view(info: RunInfo, stand: Stand, attempts: Sequence[AttemptRow]) -> RunView:
    """All about a run that has a bounded size."""
    summary, levels = summary_of(info), info.run.levels
    result = summary.get("result")
    return RunView(
        **_entry(info, stand),
        budget=_budget(summary.get("budget", {}), budget_of(levels)),
        suspend=levels.suspend,
        shutdown=levels.shutdown_how,
        attempts=[_attempt(row) for row in attempts[-ATTEMPTS_SHOWN:]],
        progress=summary.get("progress", {}),
        result=ResultView(**result) if result else None,
    )


def _budget(used: dict[str, Any], limits: dict[str, Any]) -> BudgetView:
    def limit(name: str) -> Limit:
        return Limit(used=used.get(name, 0), limit=limits.get(name))

    return BudgetView(
        tokens=limit("tokens"),
        wall_seconds=limit("wallSeconds"),
        turns=limit("turns"),
        retries=limit("retries"),
        on_exceeded=limits.get("onExceeded", "Pause"),
    )


def _attempt(row: AttemptRow) -> AttemptView:
    return AttemptView(
        attempt=row.attempt,
        outcome=str(row.outcome) if row.outcome is not None else None,
        reason=row.reason,
        live=row.claimed and row.outcome is None and row.confirmed_age_seconds <= CONFIRMED_SECONDS_MAX,
        started_at=instant(row.started_at),
        ended_at=instant(row.ended_at),
        process=_process(row.process),
    )


def _process(text: str) -> str:
    """Of the command or this server, or of the operator, which names the pod."""
    found = parse_process(text)
    if found.pid:
        return f"{found.host}, pid {found.pid}"
    try:
        pod = json.loads(text).get("pod", "")
    except (ValueError, AttributeError):
        return ""
    return f"pod {pod}" if isinstance(pod, str) and pod else ""
