"""What is told as Kubernetes Events: transitions, once each. Pure.

Who calls: `plan`. What holds: an Event is told of what status did not say before, so
that looking again tells nothing again; an ordinary run has at most three.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agentrun.log.asks import WAITING_REASONS, read_answer
from agentrun.log.store import InboxRow
from agentrun.log.summary import Phase
from agentrun.proto import log_pb2 as pb
from agentrun_operator.actions import Step
from agentrun_operator.crd_status import RunStatus, clip
from agentrun_operator.waiting import STARTING

NORMAL, WARNING = "Normal", "Warning"


@dataclass(frozen=True, kw_only=True)
class Told:
    """One Event. `message` is at most 1 KiB."""

    type: str = NORMAL
    reason: str
    message: str = ""


def events_of(
    before: Mapping[str, Any], after: RunStatus, step: Step, answers: Iterable[InboxRow] = ()
) -> tuple[Told, ...]:
    """What is to be told of the difference between two statuses. `answers`: the run's inbox."""
    found = [*_answered(before, after, answers), *_asked(before, after)]
    if _more(before, "disruptions", after.disruptions):
        found.append(Told(reason="Disrupted", message=_why_taken(step)))
    if _more(before, "failures", after.failures):
        found.append(Told(type=WARNING, reason="AttemptFailed", message=_said(step, "the runner failed")))
    phase, reason = step.phase, step.reason
    changed = before.get("phase") != phase.value or before.get("reason", "") != reason
    if not changed:
        return tuple(found)
    if phase.terminal:
        kind = WARNING if phase is Phase.FAILED else NORMAL
        text = f"{reason}: {step.message}" if step.message else reason
        found.append(Told(type=kind, reason=phase.value, message=clip(text)))
    elif phase is Phase.PAUSED and reason in WAITING_REASONS and after.waiting is not None:
        pass  # told of the calls
    elif phase is Phase.PAUSED:
        kind = NORMAL if reason == "Suspended" else WARNING
        found.append(Told(type=kind, reason="Paused", message=_said(step, reason)))
    elif step.stalled:
        found.append(Told(type=WARNING, reason=reason, message=clip(step.message)))
    elif phase is Phase.PENDING and reason not in ("", STARTING, "BackOff"):
        if not step.disrupted or reason != step.disrupted:
            found.append(Told(type=WARNING, reason=reason, message=clip(step.message)))
    elif phase is Phase.PAUSING and step.disrupted:
        found.append(Told(reason="Pausing", message=_said(step, reason)))
    elif reason == "NodeUnreachable":
        found.append(Told(type=WARNING, reason=reason, message=clip(step.message)))
    return tuple(found)


def _waiting(status: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The calls that a status lists, by id."""
    waiting = status.get("waiting")
    calls = waiting.get("calls") if isinstance(waiting, Mapping) else None
    return {str(call.get("id")): call for call in calls or () if isinstance(call, Mapping)}


def _asked(before: Mapping[str, Any], after: RunStatus) -> list[Told]:
    """One Event a reason, of the calls that wait now and did not before."""
    known, found = _waiting(before), []
    calls = [call for call in (after.waiting.calls if after.waiting else ()) if call.id not in known]
    for reason in dict.fromkeys(call.reason for call in calls):
        text = "; ".join(f"{c.id} {c.tool}({c.arguments})" for c in calls if c.reason == reason)
        found.append(Told(type=WARNING, reason=reason, message=clip(text)))
    return found


def _answered(before: Mapping[str, Any], after: RunStatus, answers: Iterable[InboxRow]) -> list[Told]:
    """An Event a call that waited before and has its answer now."""
    still = {call.id for call in (after.waiting.calls if after.waiting else ())}
    gone = {id_: call for id_, call in _waiting(before).items() if id_ not in still}
    found = []
    for row in answers:
        if row.id in gone:
            answer = read_answer(row)
            reason = "Approved" if answer.decision == pb.DECISION_APPROVE else "Denied"
            why = f": {answer.reason}" if answer.reason else ""
            text = f"{row.id} {gone[row.id].get('tool', '')} by {answer.by}{why}"
            found.append(Told(reason=reason, message=clip(text)))
    return found


def _more(before: Mapping[str, Any], field: str, after: int | None) -> bool:
    value = before.get(field)
    return (after or 0) > (value if isinstance(value, int) else 0)


def _why_taken(step: Step) -> str:
    """What took the pod away; what the next one waits for, if it waits, is another Event's."""
    if step.reason == "BackOff":
        return _said(step, step.disrupted)
    return f"the pod was taken away: {step.disrupted}" if step.disrupted else "the pod was taken away"


def _said(step: Step, otherwise: str) -> str:
    return clip(": ".join(part for part in (step.reason, step.message) if part) or otherwise)
