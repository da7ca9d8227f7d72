"""What to do when no attempt is under way: end the run, park it, wait, or start the next. Pure.

Who calls: `plan`. What holds: the next attempt starts only when the runner of the one
before has ended or counts as lost, and when what became of it is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agentrun.log.asks import WAITING_REASONS
from agentrun.log.store import AttemptOutcome, AttemptRow
from agentrun.log.summary import Phase
from agentrun.spec import OnExceeded, PodRetentionPolicy
from agentrun_operator.actions import Action, DeletePod, EndRun, StartAttempt, Step
from agentrun_operator.answers import unanswered
from agentrun_operator.crd_status import clip
from agentrun_operator.endings import DRAINED, split_note
from agentrun_operator.facts import Observation, generation_at_start
from agentrun_operator.pods import Pod
from agentrun_operator.settings import Settings
from agentrun_operator.waits import (
    before_next,
    completion_deadline_in,
    is_disruption,
    lost_in,
    soonest,
    waits_for_a_server,
)

STRAY_SHOWN_MAX = 3
"""Ids of annotations that fit no call, in a message."""

UNREADABLE = frozenset({"CorruptLog", "NewerFormat"})
"""Reasons of failed attempts that no final record can follow: nobody can read the log."""

BUDGET_EXCEEDED = "BudgetExceeded"
_FAILURES = frozenset({AttemptOutcome.CRASHED, AttemptOutcome.FAILED})


def between(o: Observation, settings: Settings) -> Step:
    """The step when the newest attempt is over, or there is none."""
    assert o.object is not None
    row = o.last
    leaving = _leaving(o, row, settings) if row is not None else None
    if leaving is not None:
        return leaving
    step = _next(o, settings)
    return replace(step, actions=(*_clean_up(o, row), *step.actions))


def _leaving(o: Observation, row: AttemptRow, settings: Settings) -> Step | None:
    """The attempt's runner has not ended yet, though its attempt is over; None: it has, is lost,
    or never had the run."""
    pod = o.pod
    if pod is None or pod.runner_ended or not row.claimed:
        return None
    lost = lost_in(o, row, settings.times)
    if lost is not None and lost <= 0:
        return None
    reason = split_note(row.reason)[0] or "Ending"
    if is_disruption(row) and pod.terminating:  # who took it away says more than its runner can
        reason = pod.disruption or "PodDeleted"
    disrupted = reason if is_disruption(row) else ""
    step = Step(phase=Phase.PAUSING, reason=reason, disrupted=disrupted)
    left = settings.times.leave - o.seconds_since(row.ended_at)
    if pod.terminating:
        return replace(step, requeue=soonest(lost))
    if left > 0:
        return replace(step, requeue=soonest(lost, left))
    return replace(step, actions=(DeletePod(name=pod.name, uid=pod.uid),))


def _clean_up(o: Observation, row: AttemptRow | None) -> tuple[Action, ...]:
    if row is None or o.pod is None or o.pod.terminating or keeps(o, row, o.pod):
        return ()
    return (DeletePod(name=o.pod.name, uid=o.pod.uid),)


def keeps(o: Observation, row: AttemptRow, pod: Pod) -> bool:
    """The ended pod stays, to be looked at. One whose sidecars go on never does."""
    assert o.object is not None
    policy = o.object.spec.pod_retention_policy
    if not pod.over or policy is PodRetentionPolicy.NEVER:
        return False
    return policy is PodRetentionPolicy.ALWAYS or row.outcome in _FAILURES


def _next(o: Observation, settings: Settings) -> Step:
    assert o.object is not None and o.info is not None
    levels, run, row = o.object.levels(), o.info.run, o.last
    if levels.shutdown:
        message = "deleted" if o.object.deleting else f"shutdown: {levels.shutdown}"
        return _end(o, Phase.CANCELLED, "Cancelled", message)
    deadline = completion_deadline_in(o)
    if deadline is not None and deadline <= 0:
        seconds = o.object.spec.completion_deadline_seconds
        return _end(o, Phase.FAILED, "DeadlineExceeded", f"not ended {seconds} s after its start")
    if row is not None and row.outcome is AttemptOutcome.FAILED:
        reason, message = split_note(row.reason)
        return _end(o, Phase.FAILED, reason or "RunnerFailed", message)
    if (used_up := _failures_used_up(o)) is not None:
        return replace(used_up, requeue=soonest(deadline))
    if levels.suspend:
        return Step(phase=Phase.PAUSED, reason="Suspended", requeue=soonest(deadline))
    wait = before_next(o, settings.times)
    if row is not None and (parked := _parked(o, row, wait)) is not None:
        return replace(parked, requeue=soonest(wait if waits_for_a_server(row) else None, deadline))
    if wait > 0 and row is not None:
        return replace(_backing_off(o, row), requeue=soonest(wait, deadline))
    return Step(actions=(StartAttempt(expected=run.attempt),), again=True)


def _end(o: Observation, phase: Phase, reason: str, message: str) -> Step:
    assert o.info is not None
    if o.unreadable:
        return Step(phase=Phase.FAILED, reason="CorruptLog", message=o.unreadable)
    if phase is Phase.FAILED and reason in UNREADABLE:
        return Step(phase=Phase.FAILED, reason=reason, message=message)
    end = EndRun(expected=o.info.run.attempt, phase=phase, reason=reason, message=message)
    return Step(phase=phase, reason=reason, message=message, actions=(end,), again=True)


def _failures_used_up(o: Observation) -> Step | None:
    """Crashes draw from the one number of retries; when it is used up the run pauses or fails."""
    assert o.object is not None
    row, budget = o.last, o.object.spec.budget
    if row is None or row.outcome is not AttemptOutcome.CRASHED:
        return None
    used = o.retries_used()
    if used <= budget.retries:
        return None
    message = f"{budget.retries} retries are used up; {row.reason}"
    if budget.on_exceeded is OnExceeded.FAIL:
        return _end(o, Phase.FAILED, BUDGET_EXCEEDED, message)
    return Step(phase=Phase.PAUSED, reason=BUDGET_EXCEEDED, message=message, over_budget=True)


def _parked(o: Observation, row: AttemptRow, wait: float) -> Step | None:
    """The run waits for somebody, or `wait` seconds for a tool server; None: it may go on."""
    assert o.object is not None
    if row.outcome is not AttemptOutcome.PAUSED:
        return None
    reason, message = split_note(row.reason)
    if reason in DRAINED or reason == "Suspended":
        return None
    message = message or str(o.summary.get("message") or "")
    if reason == BUDGET_EXCEEDED:
        if _has_room(o, row, message):
            return None
        return Step(phase=Phase.PAUSED, reason=reason, message=message, over_budget=True)
    if o.input_waits or (waits_for_a_server(row) and wait <= 0):
        return None
    if reason in WAITING_REASONS and (stray := unanswered(o.object.said, o.answers)):
        names = ", ".join(said.id for said in stray[:STRAY_SHOWN_MAX])
        message = clip(f"no call waits under the id that an annotation names: {names}; {message}")
    return Step(phase=Phase.PAUSED, reason=reason or "Waiting", message=message)


def _has_room(o: Observation, row: AttemptRow, message: str) -> bool:
    """The budget was changed since the attempt began, and no limit stands in the way any more."""
    assert o.object is not None and o.info is not None
    if generation_at_start(row) == o.info.run.levels.generation:
        return False
    budget, found = o.object.spec.budget, o.summary.get("budget")
    used: Mapping[str, float] = found if isinstance(found, Mapping) else {}
    limits = {"tokens": budget.tokens, "wallSeconds": budget.wall_seconds, "turns": budget.turns}
    if any(limit is not None and used.get(name, 0) >= limit for name, limit in limits.items()):
        return False
    # Retries that are just used up matter to who needs another one only.
    retries = o.retries_used()
    return retries < budget.retries or (retries == budget.retries and "retries" not in message)


def _backing_off(o: Observation, row: AttemptRow) -> Step:
    reason, message = split_note(row.reason)
    text = f"attempt {row.attempt}: {message or reason}"
    if row.outcome is AttemptOutcome.CRASHED:
        return Step(reason="BackOff", message=text)
    return Step(reason="BackOff", message=text, disrupted=reason or "Disrupted")
