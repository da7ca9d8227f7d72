"""What is told as Kubernetes Events: transitions, once each. Pure.

Who calls: `plan`. What holds: an Event is told of what status did not say before, so
that looking again tells nothing again; an ordinary run has at most three.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentrun.log.summary import Phase
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


def events_of(before: Mapping[str, Any], after: RunStatus, step: Step) -> tuple[Told, ...]:
    """What is to be told of the difference between two statuses."""
    found = []
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
