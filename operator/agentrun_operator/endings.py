"""How an attempt ended, from what became of its pod. Pure.

Who calls: `plan`, for an attempt without an outcome: its runner could not write one.
What holds: the log comes before all of this (a final record, an outcome that stands),
and being taken away comes before any exit code, for whoever takes a pod away kills it.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentrun.log.store import AttemptOutcome
from agentrun_operator.pods import EXIT_CANNOT_START, EXIT_FENCED, EXIT_PAUSED, Pod

UNKNOWN = "ContainerStatusUnknown"
NEVER_STARTED = "NeverStarted"
FENCED = "Fenced"
TOOL_SERVER_UNAVAILABLE = "ToolServerUnavailable"
"""The runner has parked the run: nobody need say when it may go on, for it is tried again."""

DRAINED = frozenset({"Terminated", "StoreUnavailable"})
"""Reasons with which a runner that was taken away closes its attempt as paused."""


@dataclass(frozen=True, kw_only=True)
class Ending:
    """An outcome with its reason (CamelCase) and some words for people."""

    outcome: AttemptOutcome
    reason: str
    message: str = ""

    @property
    def note(self) -> str:
        """As it stands in `run_attempt`: the reason, and what there is to say about it."""
        return f"{self.reason}: {self.message}" if self.message else self.reason


def split_note(note: str) -> tuple[str, str]:
    """Reason and message of an attempt's note."""
    reason, _, message = note.partition(": ")
    return reason.strip(), message


def ending_of(pod: Pod) -> Ending:
    """How an attempt ended whose runner container has ended, or can never start."""
    if (reason := _taken_away(pod)) is not None:
        return Ending(outcome=AttemptOutcome.DISRUPTED, reason=reason, message=pod.message)
    if pod.exit is None:
        if pod.init_failed:
            return Ending(
                outcome=AttemptOutcome.CRASHED, reason="InitContainerFailed", message=pod.init_failed
            )
        return Ending(outcome=AttemptOutcome.DISRUPTED, reason="PodEnded", message=pod.message)
    exit_ = pod.exit
    words = f": {exit_.words}" if exit_.words else ""
    if exit_.code == EXIT_FENCED:
        return Ending(outcome=AttemptOutcome.DISRUPTED, reason=FENCED, message=exit_.words)
    if exit_.code == EXIT_PAUSED:
        return Ending(outcome=AttemptOutcome.DISRUPTED, reason="Drained", message=exit_.words)
    if exit_.code == EXIT_CANNOT_START:
        return Ending(
            outcome=AttemptOutcome.FAILED,
            reason=exit_.words_reason or "CannotStart",
            message=exit_.words or "the runner ended with exit code 2: it cannot start",
        )
    if exit_.reason == "OOMKilled":
        return Ending(
            outcome=AttemptOutcome.CRASHED,
            reason="OOMKilled",
            message=f"the runner was out of memory (exit code {exit_.code})",
        )
    if exit_.code == 0:
        return Ending(
            outcome=AttemptOutcome.CRASHED,
            reason="NoResult",
            message="the runner ended with exit code 0, and its log does not end" + words,
        )
    reason = "StartError" if exit_.reason in ("StartError", "ContainerCannotRun") else "RunnerFailed"
    return Ending(
        outcome=AttemptOutcome.CRASHED,
        reason=reason,
        message=f"the runner ended with exit code {exit_.code}{words}",
    )


def _taken_away(pod: Pod) -> str | None:
    """Why the pod was taken away; None: it was not."""
    if pod.disruption:
        return pod.disruption
    if pod.reason and pod.reason != "DeadlineExceeded" and (pod.exit is None or pod.phase == "Failed"):
        return pod.reason
    if pod.terminating:
        return "PodDeleted"
    if pod.exit is not None and pod.exit.reason == UNKNOWN:
        return "NodeLost"
    return None
