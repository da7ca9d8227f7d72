"""What to do while the newest attempt has no outcome. Pure.

Who calls: `plan`. What holds: an attempt is closed before its pod is touched or
another one made, so that whoever is interrupted between the two goes on from there.
"""

from __future__ import annotations

from dataclasses import replace

from agentrun.log.store import AttemptOutcome, AttemptRow
from agentrun.log.summary import Phase
from agentrun_operator.actions import CloseAttempt, DeletePod, MakePod, Step
from agentrun_operator.endings import NEVER_STARTED, Ending, ending_of, split_note
from agentrun_operator.facts import Observation
from agentrun_operator.pods import Pod
from agentrun_operator.processes import parse_process
from agentrun_operator.settings import Settings
from agentrun_operator.waiting import STARTING, waiting_view
from agentrun_operator.waits import (
    completion_deadline_in,
    is_disruption,
    lost_in,
    soonest,
    start_deadline_in,
)

STOPPING = {
    "Suspend": "Suspending",
    "Stop": "Stopping",
    "Terminate": "Terminating",
    "Deadline": "DeadlineExceeded",
}
TERMINATE_GRACE_SECONDS = 10
RECHECK_SECONDS = 20.0
"""A start that does not get on is looked at so often."""

CLAIM_SECONDS = 30.0
"""A runner that has not claimed its run after this has a problem that people should see."""

_PARKED = Ending(outcome=AttemptOutcome.PAUSED, reason="Suspended")
"""Of an attempt that is called off before its runner has claimed the run: nothing was disrupted, also
where the run is to go on again before the pod is gone."""


def wanted_stop(o: Observation) -> str:
    """What the run is to be stopped for; "": it is to go on."""
    assert o.object is not None
    levels = o.object.levels()
    if levels.shutdown:
        return levels.shutdown
    deadline = completion_deadline_in(o)
    if deadline is not None and deadline <= 0:
        return "Deadline"
    return "Suspend" if levels.suspend else ""


def live(o: Observation, row: AttemptRow, settings: Settings) -> Step:
    """The step for an attempt without an outcome."""
    pod = o.pod
    if pod is None:
        return _without_pod(o, row, settings)
    if pod.runner_ended:
        return _close(row, _told(o, ending_of(pod)))
    lost = lost_in(o, row, settings.times)
    if lost is not None and lost <= 0:
        return _lost(o, row, pod)
    want = wanted_stop(o)
    if want and row.claimed:
        return _stop(o, row, pod, want, settings)
    if want:
        return _close(row, _PARKED)
    deadline = start_deadline_in(o)
    if deadline is not None and deadline <= 0:
        return _too_late(o, row, settings)
    if o.outdated and row.claimed and not pod.terminating and o.memory.rollout_room:
        step = _shown(o, row, pod, settings)
        return replace(
            step,
            actions=(DeletePod(name=pod.name, uid=pod.uid),),
            phase=Phase.PAUSING,
            reason="Rollout",
            disrupted="Rollout",
            rolling=True,
        )
    step = _shown(o, row, pod, settings)
    return replace(step, requeue=soonest(lost, deadline, completion_deadline_in(o), step.requeue))


def _close(row: AttemptRow, ending: Ending) -> Step:
    return Step(actions=(CloseAttempt(attempt=row.attempt, ending=ending),), again=True)


def _told(o: Observation, ending: Ending) -> Ending:
    """A pod that went because the run was to be suspended was parked, and not disrupted."""
    if ending.outcome is AttemptOutcome.DISRUPTED and wanted_stop(o) == "Suspend":
        return replace(ending, outcome=AttemptOutcome.PAUSED, reason="Suspended")
    return ending


def _without_pod(o: Observation, row: AttemptRow, settings: Settings) -> Step:
    refused = o.memory.refused
    want = wanted_stop(o)
    if refused is not None and refused.attempt == row.attempt and not row.claimed:
        if want:
            return _close(row, _PARKED)
        return _refused(o, row, settings)
    made = row.claimed or o.memory.made_pod_of >= row.attempt
    if made:
        return _close(row, _told(o, Ending(outcome=AttemptOutcome.DISRUPTED, reason="PodDeleted")))
    if want:
        return _close(row, _PARKED)
    if o.memory.identity and parse_process(row.process).operator == o.memory.identity:
        return Step(actions=(MakePod(attempt=row.attempt),), again=True)  # an answer was lost
    left = settings.times.never_started - row.confirmed_age_seconds
    if left > 0:  # another operator may be about to make it
        return Step(reason=STARTING, requeue=soonest(left))
    return _close(row, Ending(outcome=AttemptOutcome.DISRUPTED, reason=NEVER_STARTED))


def _refused(o: Observation, row: AttemptRow, settings: Settings) -> Step:
    assert o.memory.refused is not None
    refusal, retry_in = o.memory.refused.refusal, o.memory.refused.retry_in
    deadline = start_deadline_in(o)
    if deadline is not None and deadline <= 0:
        return _too_late(o, row, settings)
    if refusal.retry is None:
        return Step(silent=True)
    if retry_in <= 0:
        return Step(actions=(MakePod(attempt=row.attempt),), again=True)
    return Step(
        reason=refusal.reason,
        message=refusal.message,
        requeue=soonest(retry_in, deadline),
        stalled=refusal.stalled,
    )


def _lost(o: Observation, row: AttemptRow, pod: Pod) -> Step:
    node_is_gone = o.node is not None and not o.node.ready
    ending = Ending(
        outcome=AttemptOutcome.DISRUPTED,
        reason="NodeLost" if node_is_gone else "PodStuck",
        message=f"node {pod.node}" if pod.node else "",
    )
    step = _close(row, _told(o, ending))
    if pod.terminating:
        return step
    return replace(step, actions=(*step.actions, DeletePod(name=pod.name, uid=pod.uid)))


def _too_late(o: Observation, row: AttemptRow, settings: Settings) -> Step:
    refused = o.memory.refused
    if o.pod is not None:
        why = waiting_view(o.pod, o.pod_trouble, settings.pods)
        text = f"{why.reason}: {why.message}" if why.message else why.reason
    elif refused is not None:
        text = f"{refused.refusal.reason}: {refused.refusal.message}"
    else:
        text = ""
    return _close(
        row, Ending(outcome=AttemptOutcome.FAILED, reason="StartDeadlineExceeded", message=text[:900])
    )


def _stop(o: Observation, row: AttemptRow, pod: Pod, want: str, settings: Settings) -> Step:
    """A runner that lives is asked by the levels; its pod goes when that takes too long."""
    assert o.object is not None
    grace = o.object.spec.termination_grace_period_seconds
    asked, seconds = o.memory.asked
    seconds = seconds if asked == want else 0.0
    patience = {"Terminate": settings.times.terminate, "Deadline": 0.0}.get(want, float(grace))
    step = Step(phase=Phase.PAUSING, reason=STOPPING[want], asking=want)
    if pod.terminating:
        return replace(step, requeue=soonest(lost_in(o, row, settings.times)))
    if seconds < patience:
        return replace(step, requeue=soonest(patience - seconds, lost_in(o, row, settings.times)))
    short = min(grace, TERMINATE_GRACE_SECONDS) if want == "Terminate" else None
    return replace(step, actions=(DeletePod(name=pod.name, uid=pod.uid, grace=short),))


def _shown(o: Observation, row: AttemptRow, pod: Pod, settings: Settings) -> Step:
    """Nothing is to be done: where does the run stand?"""
    if o.node is not None and not o.node.ready:
        message = f"node {pod.node} is not ready; another pod takes over if it stays so"
        phase = Phase.PAUSING if pod.terminating else Phase.RUNNING if row.claimed else Phase.PENDING
        return Step(phase=phase, reason="NodeUnreachable", message=message, disrupted="NodeUnreachable")
    if pod.terminating:
        reason = pod.disruption or "PodDeleted"
        phase = Phase.PAUSING if row.claimed else Phase.PENDING
        return Step(phase=phase, reason=reason, disrupted=reason)
    if row.claimed:
        return Step(phase=Phase.RUNNING)
    if pod.running and o.seconds_since(pod.running_since) > CLAIM_SECONDS:
        message = "the runner runs and has not claimed the run: its log (kubectl logs) says why"
        return Step(reason="NotClaimed", message=message, disrupted=_disrupted_before(o))
    why = waiting_view(pod, o.pod_trouble, settings.pods)
    recheck = RECHECK_SECONDS if why.reason == STARTING and o.pod_trouble is None else None
    return Step(
        reason=why.reason,
        message=why.message,
        disrupted=_disrupted_before(o),
        requeue=recheck,
    )


def _disrupted_before(o: Observation) -> str:
    """Why the attempt before this one was taken away, if it was."""
    rows = o.pod_attempts
    if len(rows) < 2 or not is_disruption(rows[-2]):
        return ""
    return split_note(rows[-2].reason)[0] or "Disrupted"
