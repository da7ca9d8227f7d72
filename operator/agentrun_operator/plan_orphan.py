"""What to do about a run whose object is gone. Pure.

Who calls: `plan`. What holds: a run without a given id is cancelled, one with a given
id is parked, to be adopted by another object of its name; either way its pod goes.
The owner reference lets Kubernetes delete the pod; this only waits, and helps where
that does not happen.
"""

from __future__ import annotations

from dataclasses import replace

from agentrun.log.store import AttemptOutcome, AttemptRow
from agentrun.log.summary import Phase
from agentrun_operator.actions import CloseAttempt, DeletePod, EndRun, SetLevels, Step
from agentrun_operator.endings import NEVER_STARTED, Ending, ending_of
from agentrun_operator.facts import Observation, parse_owner
from agentrun_operator.settings import Settings
from agentrun_operator.waits import lost_in, soonest

ORPHANED_SECONDS = 5.0
"""What Kubernetes gets to delete the pod by itself."""

POLL_SECONDS = 5.0


def is_parked_for_good(*, suspend: bool, run_id: object, owner: str) -> bool:
    """A run with a given id whose object is gone, and that is parked: nothing is left to do."""
    parsed = parse_owner(owner)
    return parsed is not None and suspend and str(run_id) != parsed.uid


def orphan(o: Observation, settings: Settings) -> Step:
    """The step for a run whose owner is not there any more."""
    info = o.info
    if o.store_problem:
        return Step(silent=True, requeue=POLL_SECONDS)
    if info is None or info.run.ended:
        return Step(silent=True)
    owner = parse_owner(info.run.owner)
    assert owner is not None
    given = str(info.run.run_id) != owner.uid
    stored = info.run.levels
    wanted = replace(
        stored, generation=stored.generation + 1, **({"suspend": True} if given else {"shutdown": "Stop"})
    )
    asked = stored.suspend if given else bool(stored.shutdown)
    if not asked:
        return Step(silent=True, actions=(SetLevels(levels=wanted),), again=True)
    row = o.last
    if row is not None and (waiting := _settle(o, row, settings, given)) is not None:
        return waiting
    if given:
        return Step(silent=True)
    end = EndRun(expected=info.run.attempt, phase=Phase.CANCELLED, reason="Cancelled", message="deleted")
    return Step(silent=True, actions=() if o.unreadable else (end,), again=not o.unreadable)


def _settle(o: Observation, row: AttemptRow, settings: Settings, given: bool) -> Step | None:
    """Waits for the pod and closes the attempt; None: both are settled."""
    pod = o.pod
    lost = lost_in(o, row, settings.times)
    if pod is not None and not pod.runner_ended and not (lost is not None and lost <= 0):
        step = Step(silent=True, asking="Delete", requeue=soonest(lost, POLL_SECONDS))
        asked, seconds = o.memory.asked
        if pod.terminating or asked != "Delete" or seconds < ORPHANED_SECONDS:
            return step
        return replace(step, actions=(DeletePod(name=pod.name, uid=pod.uid),))
    if row.outcome is not None:
        return None
    if pod is not None:
        ending = ending_of(pod)
    elif row.claimed or o.memory.made_pod_of >= row.attempt:
        ending = Ending(outcome=AttemptOutcome.DISRUPTED, reason="PodDeleted")
    else:
        left = settings.times.never_started - row.confirmed_age_seconds
        if left > 0:
            return Step(silent=True, requeue=soonest(left))
        ending = Ending(outcome=AttemptOutcome.DISRUPTED, reason=NEVER_STARTED)
    if given and ending.outcome is AttemptOutcome.DISRUPTED:
        ending = Ending(outcome=AttemptOutcome.PAUSED, reason="Suspended", message="deleted")
    return Step(silent=True, actions=(CloseAttempt(attempt=row.attempt, ending=ending),), again=True)
