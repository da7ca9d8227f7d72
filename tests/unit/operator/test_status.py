"""What people are told: status, its conditions, what is urgent, Events."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from agentrun.log.store import AttemptOutcome
from agentrun.log.summary import Phase
from agentrun_operator.crd_status import RunStatus
from agentrun_operator.events import Told
from agentrun_operator.facts import Observation
from agentrun_operator.plan import plan
from agentrun_operator.status import is_urgent
from tests.unit.operator.builders import NOW, SETTINGS, ago, attempt, found, observed, pod, stamp

SUMMARY = {
    "phase": "Running",
    "attempt": 1,
    "head": 9,
    "progress": {"done": 5, "inFlight": 2, "pending": 1, "last": "call-2-0"},
    "budget": {"tokens": 1234, "wallSeconds": 12.7, "turns": 3, "retries": 1, "estimated": True},
    "result": {"preview": "the answer", "sizeBytes": 10, "digest": "sha256:ab"},
}


def status_of(o: Observation) -> RunStatus:
    status = plan(o, SETTINGS).status
    assert status is not None
    return status


def conditions(status: RunStatus) -> dict[str, str]:
    return {c.type.value: c.status.value for c in status.conditions}


def running(**changes: Any) -> Observation:
    return observed(found(**changes), attempts=(attempt(),), pod=pod(), summary=SUMMARY)


def ended(phase: Phase, **changes: Any) -> Observation:
    row = attempt(1, AttemptOutcome.SUCCEEDED)
    return observed(found(**changes), attempts=(row,), ended=phase, summary=SUMMARY)


def test_a_running_run_tells_its_pod_its_progress_and_its_budget() -> None:
    status = status_of(running(budget={"tokens": 5000, "turns": 20})).to_dict()
    assert status["pod"] == {"name": "hello-1", "uid": "pod-uid", "nodeName": "node-1"}
    assert status["progress"] == {"done": 5, "inFlight": 2, "pending": 1, "last": "call-2-0"}
    assert status["budget"] == {
        "tokens": {"used": 1234, "limit": 5000, "estimated": True},
        "wallSeconds": {"used": 12},
        "turns": {"used": 3, "limit": 20},
        "retries": {"used": 1, "limit": 10},
    }
    assert status["startTime"] == stamp(600)
    assert (status["attempt"], status["disruptions"], status["failures"]) == (1, 0, 0)
    assert "result" not in status and "completionTime" not in status


def test_a_run_that_succeeded_tells_its_result_and_when() -> None:
    status = status_of(ended(Phase.SUCCEEDED)).to_dict()
    assert status["result"] == {"preview": "the answer", "sizeBytes": 10, "digest": "sha256:ab"}
    assert status["completionTime"] == stamp(60)
    assert "result" not in status_of(ended(Phase.FAILED)).to_dict()


HEALTH = [
    (running(), "Unknown", "True", "False"),
    (observed(found(suspend=True)), "Unknown", "False", "False"),
    (ended(Phase.SUCCEEDED), "True", "False", "False"),
    (ended(Phase.FAILED), "False", "False", "True"),
    (ended(Phase.CANCELLED), "False", "False", "True"),
]


@pytest.mark.parametrize(("o", "succeeded", "reconciling", "stalled"), HEALTH)
def test_conditions_say_what_health_checks_read(
    o: Observation, succeeded: str, reconciling: str, stalled: str
) -> None:
    status = status_of(o)
    said = conditions(status)
    assert (said["Succeeded"], said["Reconciling"], said["Stalled"]) == (succeeded, reconciling, stalled)
    assert status.observed_generation == 1
    assert all(c.observed_generation == 1 and c.reason for c in status.conditions)


def test_a_conditions_time_changes_with_its_status_alone() -> None:
    first = status_of(running()).to_dict()
    later = running(status=first, metadata={"generation": 2})
    later = Observation(**{**later.__dict__, "now": NOW + timedelta(seconds=100)})
    again = status_of(later)
    assert all(c.last_transition_time == NOW for c in again.conditions)
    assert all(c.observed_generation == 2 for c in again.conditions)
    done = ended(Phase.SUCCEEDED, status=first)
    done = Observation(**{**done.__dict__, "now": NOW + timedelta(seconds=100)})
    times = {c.type.value: c.last_transition_time for c in status_of(done).conditions}
    assert times["Succeeded"] == NOW + timedelta(seconds=100)
    assert times["Suspended"] == NOW


def test_looking_again_at_the_same_changes_nothing() -> None:
    for o in (running(), ended(Phase.SUCCEEDED), ended(Phase.FAILED), observed(found(suspend=True))):
        first = status_of(o)
        assert o.object is not None
        again = Observation(
            **{
                **o.__dict__,
                "object": found(status=first.to_dict(), suspend=o.object.spec.suspend),
                "now": NOW + timedelta(hours=1),
            }
        )
        made = plan(again, SETTINGS)
        if made.status is not None:
            assert made.status.to_dict() == first.to_dict()
            assert made.events == ()


def test_what_a_pod_that_is_gone_had_said_is_of_the_object_as_it_is_now() -> None:
    scheduled = {
        "type": "PodScheduled",
        "status": "True",
        "reason": "Scheduled",
        "lastTransitionTime": "2026-11-30T11:00:00Z",
        "observedGeneration": 1,
    }
    object_ = found(metadata={"generation": 4}, status={"phase": "Succeeded", "conditions": [scheduled]})
    row = attempt(1, AttemptOutcome.SUCCEEDED)
    made = plan(observed(object_, attempts=(row,), ended=Phase.SUCCEEDED), SETTINGS)
    assert made.status is not None
    assert {condition.observed_generation for condition in made.status.conditions} == {4}
    (kept,) = [one for one in made.status.conditions if one.type.value == "PodScheduled"]
    assert kept.last_transition_time.isoformat() == "2026-11-30T11:00:00+00:00"


def test_the_going_of_a_pod_costs_no_write() -> None:
    row = attempt(1, AttemptOutcome.SUCCEEDED)
    gone_yet = observed(attempts=(row,), ended=Phase.SUCCEEDED, pod=pod(phase="Succeeded", exit_code=0))
    first = status_of(gone_yet).to_dict()
    after = observed(found(status=first), attempts=(row,), ended=Phase.SUCCEEDED)
    assert status_of(after).to_dict() == first


def test_everything_is_bounded() -> None:
    row = attempt(1, AttemptOutcome.FAILED, "X: " + "é" * 5000, claimed=False)
    long = observed(attempts=(row,), ended=Phase.FAILED, summary={"progress": {"last": "n" * 9000}})
    final = long.final
    assert final is not None
    long = Observation(
        **{**long.__dict__, "final": type(final)(phase=Phase.FAILED, reason="X", message="é" * 5000)}
    )
    status = status_of(long)
    assert len((status.message or "").encode()) <= 1024
    assert all(len(c.message.encode()) <= 1024 for c in status.conditions)
    assert all(len(told.message.encode()) <= 1024 for told in plan(long, SETTINGS).events)


# --- urgency


def test_progress_is_not_urgent_and_transitions_are() -> None:
    base = status_of(running()).to_dict()
    assert not is_urgent(base, {**base, "progress": {"done": 99}, "budget": {}, "message": "other"})
    assert not is_urgent(base, {**base, "pod": {**base["pod"], "nodeName": "another"}})
    for change in ({"phase": "Pausing"}, {"reason": "X"}, {"attempt": 2}, {"observedGeneration": 2}):
        assert is_urgent(base, {**base, **change})
    unscheduled = [c for c in base["conditions"] if c["type"] != "PodScheduled"]
    assert not is_urgent(base, {**base, "conditions": unscheduled})
    other = [{**c, "status": "True"} if c["type"] == "Suspended" else c for c in base["conditions"]]
    assert is_urgent(base, {**base, "conditions": other})


# --- Events


def events_of(o: Observation) -> list[tuple[str, str]]:
    return [(told.type, told.reason) for told in plan(o, SETTINGS).events]


def test_ends_and_pauses_are_told_once() -> None:
    before = {"phase": "Running"}
    assert events_of(ended(Phase.SUCCEEDED, status=before)) == [("Normal", "Succeeded")]
    assert events_of(ended(Phase.FAILED, status=before)) == [("Warning", "Failed")]
    assert events_of(ended(Phase.SUCCEEDED, status={"phase": "Succeeded", "reason": "Completed"})) == []
    assert events_of(observed(found(suspend=True, status=before))) == [("Normal", "Paused")]


def test_an_ordinary_run_is_told_of_at_its_end_alone() -> None:
    starting = observed(attempts=(attempt(claimed=False),), pod=pod(phase="Pending"))
    assert events_of(starting) == []
    assert events_of(running(status={"phase": "Pending", "reason": "Starting"})) == []


def test_disruptions_and_failures_are_told_by_their_number() -> None:
    rows = (attempt(1, AttemptOutcome.DISRUPTED, "Evicted"), attempt(2, claimed=False))
    o = observed(
        found(status={"phase": "Running", "disruptions": 0}), attempts=rows, pod=pod(phase="Pending")
    )
    assert events_of(o) == [("Normal", "Disrupted")]
    assert plan(o, SETTINGS).events[0].message == "the pod was taken away: Evicted"
    full = pod(phase="Pending", scheduled=False, waiting=("Unschedulable", "0/2 nodes are available"))
    waits = observed(o.object, attempts=rows, pod=full)
    assert plan(waits, SETTINGS).events[0].message == "the pod was taken away: Evicted"
    crash = (attempt(1, AttemptOutcome.CRASHED, "OOMKilled: out of memory", ended=1),)
    o = observed(found(status={"phase": "Running"}), attempts=crash)
    assert events_of(o) == [("Warning", "AttemptFailed")]
    assert "OOM" in plan(o, SETTINGS).events[0].message or "memory" in plan(o, SETTINGS).events[0].message


def test_why_a_pod_waits_is_told() -> None:
    waiting = pod(phase="Pending", waiting=("ImagePullBackOff", "no such image"))
    o = observed(
        found(status={"phase": "Pending", "reason": "Starting"}),
        attempts=(attempt(claimed=False),),
        pod=waiting,
    )
    assert plan(o, SETTINGS).events == (
        Told(type="Warning", reason="ImagePullBackOff", message="no such image"),
    )


def test_a_status_that_cannot_be_read_is_written_anew() -> None:
    odd = {"phase": 7, "conditions": "none", "pod": [], "completionTime": 3}
    assert status_of(running(status=odd)).phase is Phase.RUNNING
    o = observed(found(status=odd), no_run=True, store_problem="away")
    status = plan(o, SETTINGS).status
    assert status is not None and status.phase is Phase.PENDING


def test_start_time_is_of_the_first_claim() -> None:
    rows = (
        attempt(1, AttemptOutcome.DISRUPTED, "NeverStarted", claimed=False, started=900),
        attempt(2, AttemptOutcome.DISRUPTED, "Evicted", started=800, ended=700),
        attempt(3, started=600),
    )
    status = status_of(observed(attempts=rows, pod=pod()))
    assert status.start_time == ago(800)
    assert (status.attempt, status.disruptions) == (3, 1)
