"""The projection of a log that status shows: small, of constant size, JSON.

Who calls: the process that runs the run writes it; commands and the operator read
it. `summarize` is pure. The shape is stable: keys are only added.
"""

from __future__ import annotations

import json
from enum import StrEnum
from hashlib import sha256
from typing import Any

from agentrun.log.asks import Waiting, waiting
from agentrun.log.replay import OWN_KINDS, History
from agentrun.proto import log_pb2 as pb

WAITING_SHOWN_MAX = 10
"""Calls that wait for people, in a summary and in an object's status."""

PREVIEW_BYTES_MAX = 1024
"""Of an answer, in a summary and in an object's status."""


class Phase(StrEnum):
    """Where a run stands."""

    PENDING = "Pending"
    RUNNING = "Running"
    PAUSING = "Pausing"
    PAUSED = "Paused"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"

    @property
    def terminal(self) -> bool:
        """It never changes again (but for a retry of a failed run)."""
        return self in _OF_OUTCOME.values()


_OF_OUTCOME = {
    pb.OUTCOME_SUCCEEDED: Phase.SUCCEEDED,
    pb.OUTCOME_FAILED: Phase.FAILED,
    pb.OUTCOME_CANCELLED: Phase.CANCELLED,
}


def phase_of(outcome: pb.Outcome) -> Phase:
    """The phase of a final record's outcome; Paused for none."""
    return _OF_OUTCOME.get(outcome, Phase.PAUSED)


def budget_used(history: History) -> dict[str, Any]:
    """What the run has used, from its log: tokens, seconds, counts."""
    totals = history.totals
    return {
        "tokens": totals.tokens,
        "tokensIn": totals.tokens_in,
        "tokensOut": totals.tokens_out,
        "tokensCached": totals.tokens_cached,
        "tokensReasoning": totals.tokens_reasoning,
        "wallSeconds": round(totals.wall_seconds, 3),
        "turns": totals.turns,
        "retries": totals.retries,
        "estimated": totals.estimated,
    }


def summarize(
    history: History, *, phase: Phase, reason: str = "", message: str = "", in_flight: int = 0
) -> dict[str, Any]:
    """The summary. A final record in the log decides over `phase`."""
    final = history.final
    if final is not None:
        phase, reason, message = phase_of(final.final.outcome), final.final.reason, final.final.message
    nodes = [id_ for id_, record in history.done.items() if record.kind not in OWN_KINDS]
    pending = 0 if phase.terminal else len(history.spawned.keys() - history.done.keys()) - in_flight
    return {
        "phase": str(phase),
        "reason": reason,
        "message": message,
        "head": history.head,
        "attempt": history.attempt,
        "progress": {
            "done": len(nodes),
            "inFlight": in_flight,
            "pending": max(0, pending),
            "last": nodes[-1] if nodes else "",
        },
        "budget": budget_used(history),
        "waiting": _waiting(waiting(history)),
    }


def _waiting(calls: list[Waiting]) -> dict[str, Any]:
    """What waits for people, and how many there are of it."""
    shown = [
        {"id": c.id, "tool": c.what, "reason": c.reason, "arguments": c.detail}
        for c in calls[:WAITING_SHOWN_MAX]
    ]
    return {"count": len(calls), "calls": shown}


def result_of(text: str) -> dict[str, Any]:
    """A summary's `result`: how an answer begins, its size, and a digest of all of it."""
    data = text.encode("utf-8", "replace")
    return {
        "preview": data[:PREVIEW_BYTES_MAX].decode("utf-8", "ignore").replace("\0", ""),
        "sizeBytes": len(data),
        "digest": "sha256:" + sha256(data).hexdigest(),
    }


def to_json(summary: dict[str, Any]) -> str:
    """One line."""
    return json.dumps(summary, ensure_ascii=False, separators=(",", ":"))
