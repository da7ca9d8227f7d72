"""What is done while an attempt is under way: object × log × pod × clock."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentrun.log.store import AttemptOutcome, Levels
from agentrun.log.summary import Phase
from agentrun_operator.actions import Action, CloseAttempt, DeletePod, MakePod, SetLevels, StartAttempt
from agentrun_operator.facts import Memory, Observation
from agentrun_operator.plan import Plan, plan
from agentrun_operator.pods import Node, Waiting
from tests.unit.operator.builders import (
    SETTINGS,
    ago,
    attempt,
    found,
    lost_node,
    observed,
    pod,
    refused,
)


def step_of(o: Observation) -> Plan:
    return plan(o, SETTINGS)


def closing(made: Plan) -> tuple[AttemptOutcome, str]:
    (action,) = [a for a in made.actions if isinstance(a, CloseAttempt)]
    return action.ending.outcome, action.ending.reason


def stands(made: Plan) -> tuple[str, str]:
    assert made.status is not None
    return str(made.status.phase), made.status.reason or ""


def of_type(made: Plan, kind: type[Action]) -> list[Action]:
    return [action for action in made.actions if isinstance(action, kind)]


# --- an ordinary life


def test_a_claimed_attempt_with_a_pod_is_a_running_run() -> None:
    made = step_of(observed(attempts=(attempt(),), pod=pod()))
    assert (made.actions, stands(made)) == ((), ("Running", ""))


def test_an_unclaimed_attempt_with_a_pod_is_pending() -> None:
    made = step_of(observed(attempts=(attempt(claimed=False),), pod=pod(phase="Pending", scheduled=None)))
    assert (made.actions, stands(made)) == ((), ("Pending", "Starting"))


def test_a_pod_that_ended_closes_its_attempt_before_anything_else() -> None:
    made = step_of(observed(attempts=(attempt(),), pod=pod(phase="Failed", exit_code=1)))
    assert closing(made) == (AttemptOutcome.CRASHED, "RunnerFailed")
    assert made.step.again and made.status is None


# --- why a pod does not start

WAITING = {
    "no image": (("ImagePullBackOff", 'Back-off pulling image "x"'), "ImagePullBackOff"),
    "no image yet": (("ErrImagePull", "not found"), "ErrImagePull"),
    "no secret": (("CreateContainerConfigError", 'secret "keys" not found'), "SecretMissing"),
    "no key of a secret": (
        ("CreateContainerConfigError", "couldn't find key key in Secret demo/keys"),
        "SecretMissing",
    ),
    "no secret of the store": (
        ("CreateContainerConfigError", 'secret "agentrun-store" not found'),
        "StoreSecretMissing",
    ),
    "no config map": (("CreateContainerConfigError", 'configmap "texts" not found'), "ConfigMapMissing"),
    "something else": (("CreateContainerError", "boom"), "CreateContainerError"),
    "an ordinary start": (("ContainerCreating", ""), "Starting"),
}


@pytest.mark.parametrize("name", WAITING)
def test_why_a_pod_waits_is_in_status_at_once(name: str) -> None:
    waiting, reason = WAITING[name]
    o = observed(attempts=(attempt(claimed=False),), pod=pod(phase="Pending", waiting=waiting))
    assert stands(step_of(o)) == ("Pending", reason)


def test_a_pod_that_fits_nowhere_says_so() -> None:
    conditions = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"}
    ]
    stuck = pod(phase="Pending", scheduled=None, conditions=conditions, node="")
    made = step_of(observed(attempts=(attempt(claimed=False),), pod=stuck))
    assert stands(made) == ("Pending", "Unschedulable")
    assert made.status is not None and made.status.message == "0/2 nodes"
    assert {c.type.value: c.status.value for c in made.status.conditions}["PodScheduled"] == "False"


def test_a_config_map_that_cannot_be_mounted_is_told_from_the_pods_events() -> None:
    trouble = Waiting(reason="FailedMount", message='MountVolume failed: configmap "texts" not found')
    o = observed(
        attempts=(attempt(claimed=False),),
        pod=pod(phase="Pending", waiting=("ContainerCreating", "")),
        pod_trouble=trouble,
    )
    assert stands(step_of(o)) == ("Pending", "ConfigMapMissing")


def test_an_image_that_cannot_be_pulled_keeps_one_reason() -> None:
    before = {"phase": "Pending", "reason": "ImagePullBackOff", "message": "Back-off"}
    o = observed(
        found(status=before),
        attempts=(attempt(claimed=False),),
        pod=pod(phase="Pending", waiting=("ErrImagePull", "not found")),
    )
    made = step_of(o)
    assert stands(made) == ("Pending", "ImagePullBackOff")
    assert made.status is not None and made.status.message == "Back-off"


def test_a_runner_that_does_not_claim_is_told_of() -> None:
    claimed_not = attempt(claimed=False)
    young = replace(pod(), running_since=ago(10))
    assert stands(step_of(observed(attempts=(claimed_not,), pod=young))) == ("Pending", "Starting")
    old = replace(pod(), running_since=ago(31))
    assert stands(step_of(observed(attempts=(claimed_not,), pod=old))) == ("Pending", "NotClaimed")


# --- the start deadline


def test_the_start_deadline_fails_a_run_that_was_never_claimed() -> None:
    o = observed(
        found(startDeadlineSeconds=300),
        attempts=(attempt(claimed=False, started=301),),
        pod=pod(phase="Pending", waiting=("ImagePullBackOff", "no such image"), created=301),
    )
    made = step_of(o)
    assert closing(made) == (AttemptOutcome.FAILED, "StartDeadlineExceeded")
    (action,) = of_type(made, CloseAttempt)
    assert isinstance(action, CloseAttempt) and "ImagePullBackOff: no such image" in action.ending.message


@pytest.mark.parametrize(
    "changes",
    [
        {"attempts": (attempt(started=301),)},  # claimed
        {"attempts": (attempt(1, AttemptOutcome.DISRUPTED), attempt(2, claimed=False, started=301))},
        {"attempts": (attempt(claimed=False, started=299),)},
    ],
)
def test_the_start_deadline_holds_until_the_first_claim_only(changes: dict[str, object]) -> None:
    waiting = pod(phase="Pending", waiting=("ImagePullBackOff", ""), created=301)
    waiting = replace(waiting, created_at=None)
    o = observed(found(startDeadlineSeconds=300), pod=waiting, **changes)  # type: ignore[arg-type]
    assert not of_type(step_of(o), CloseAttempt)


def test_the_start_deadline_does_not_count_over_quota_nor_while_gated() -> None:
    deadline = found(startDeadlineSeconds=10)
    row = attempt(claimed=False, started=500)
    over = observed(deadline, attempts=(row,), memory=refused(1))
    assert stands(step_of(over)) == ("Pending", "ExceededQuota")
    gate = [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]
    gated = observed(deadline, attempts=(row,), pod=pod(phase="Pending", scheduled=None, conditions=gate))
    assert stands(step_of(gated)) == ("Pending", "SchedulingGated")
    # Room was found 5 s ago: from then on it counts.
    fresh = observed(deadline, attempts=(row,), pod=pod(phase="Pending", created=5))
    made = step_of(fresh)
    assert stands(made)[0] == "Pending" and 4.9 < (made.step.requeue or 0) < 5.2


# --- pods that were refused


def test_a_refused_pod_waits_with_the_servers_words() -> None:
    made = step_of(observed(attempts=(attempt(claimed=False),), memory=refused(1, retry_in=7.0)))
    assert stands(made) == ("Pending", "ExceededQuota")
    assert made.status is not None and made.status.message == "exceeded quota: q"
    assert made.step.requeue == pytest.approx(7.05)


def test_a_refused_pod_is_made_again_when_its_time_has_come() -> None:
    made = step_of(observed(attempts=(attempt(claimed=False),), memory=refused(1, retry_in=-0.1)))
    assert made.actions == (MakePod(attempt=1),)


def test_a_terminating_namespace_is_left_alone() -> None:
    from agentrun_operator.facts import Refused
    from agentrun_operator.refusals import Refusal

    refusal = Refusal(reason="NamespaceTerminating", retry=None)
    memory = Memory(refused=Refused(attempt=1, refusal=refusal, retry_in=0.0))
    made = step_of(observed(attempts=(attempt(claimed=False),), memory=memory))
    assert (made.actions, made.status, made.step.requeue) == ((), None, None)


# --- pods that are not there


def test_a_pod_that_was_there_and_is_gone_was_a_disruption() -> None:
    assert closing(step_of(observed(attempts=(attempt(),)))) == (AttemptOutcome.DISRUPTED, "PodDeleted")
    seen = observed(attempts=(attempt(claimed=False),), memory=Memory(made_pod_of=1))
    assert closing(step_of(seen)) == (AttemptOutcome.DISRUPTED, "PodDeleted")


def test_an_attempt_whose_pod_may_yet_come_is_waited_for_a_while() -> None:
    young = step_of(observed(attempts=(attempt(claimed=False, silent=3),)))
    assert young.actions == () and young.step.requeue == pytest.approx(12.05)
    old = step_of(observed(attempts=(attempt(claimed=False, silent=16),)))
    assert closing(old) == (AttemptOutcome.DISRUPTED, "NeverStarted")


def test_an_attempt_of_this_very_process_gets_its_pod() -> None:
    made = step_of(observed(attempts=(attempt(claimed=False),), memory=Memory(identity="op")))
    assert made.actions == (MakePod(attempt=1),)


# --- lost nodes


def test_a_lost_node_shows_before_its_pod_is_replaced() -> None:
    o = observed(attempts=(attempt(),), pod=pod(), node=lost_node(since=20))
    made = step_of(o)
    assert (made.actions, stands(made)) == ((), ("Running", "NodeUnreachable"))
    assert made.step.requeue == pytest.approx(25.05)


def test_a_pod_on_a_lost_node_is_replaced_a_set_time_after_its_eviction_whatever_its_grace() -> None:
    evicted = pod(evicted=16, grace=3600)
    made = step_of(observed(attempts=(attempt(),), pod=evicted, node=lost_node()))
    assert closing(made) == (AttemptOutcome.DISRUPTED, "NodeLost")
    early = pod(evicted=14, grace=3600)
    made = step_of(observed(attempts=(attempt(),), pod=early, node=lost_node()))
    assert made.actions == () and made.step.requeue == pytest.approx(1.05)


def test_a_pod_on_a_lost_node_that_nobody_evicts_is_deleted_and_replaced() -> None:
    made = step_of(observed(attempts=(attempt(),), pod=pod(), node=lost_node(since=46)))
    assert closing(made) == (AttemptOutcome.DISRUPTED, "NodeLost")
    assert of_type(made, DeletePod)


def test_a_node_that_is_gone_is_told_by_the_runners_silence() -> None:
    node = Node(name="node-1", ready=False)
    silent = step_of(observed(attempts=(attempt(silent=46),), pod=pod(), node=node))
    assert closing(silent) == (AttemptOutcome.DISRUPTED, "NodeLost")
    heard = step_of(observed(attempts=(attempt(silent=5),), pod=pod(), node=node))
    assert stands(heard) == ("Running", "NodeUnreachable")


def test_a_pod_that_long_outlives_its_grace_counts_as_lost() -> None:
    made = step_of(observed(attempts=(attempt(),), pod=pod(evicted=91, grace=30)))
    assert closing(made) == (AttemptOutcome.DISRUPTED, "PodStuck")


def test_a_pod_that_is_being_taken_away_is_pausing() -> None:
    made = step_of(observed(attempts=(attempt(),), pod=pod(evicted=5, disruption="EvictionByEvictionAPI")))
    assert stands(made) == ("Pausing", "EvictionByEvictionAPI")
    assert made.status is not None
    assert {c.type.value: c.status.value for c in made.status.conditions}["Disrupted"] == "True"


# --- stopping a live run


def test_what_the_object_wants_is_written_as_levels_first() -> None:
    stored = found().levels()
    o = observed(found(suspend=True), attempts=(attempt(),), pod=pod(), levels=stored)
    (action,) = step_of(o).actions
    assert isinstance(action, SetLevels)
    assert action.levels.suspend and action.levels.generation > stored.generation


@pytest.mark.parametrize(
    ("spec", "want", "patience"),
    [
        ({"suspend": True}, "Suspend", 30.0),
        ({"shutdown": "Stop"}, "Stop", 30.0),
        ({"shutdown": "Terminate"}, "Terminate", 10.0),
    ],
)
def test_a_live_runner_is_asked_first_and_its_pod_goes_when_that_takes_too_long(
    spec: dict[str, object], want: str, patience: float
) -> None:
    base = observed(found(**spec), attempts=(attempt(),), pod=pod())
    first = step_of(base)
    assert (first.actions, first.step.asking) == ((), want)
    assert first.step.requeue == pytest.approx(patience + 0.05)
    assert stands(first)[0] == "Pausing"
    late = step_of(replace(base, memory=Memory(asked=(want, patience + 1))))
    assert [type(action) for action in late.actions] == [DeletePod]
    gone = replace(base, pod=pod(evicted=3), memory=Memory(asked=(want, patience + 1)))
    assert step_of(gone).actions == ()


@pytest.mark.parametrize("spec", [{"suspend": True}, {"shutdown": "Stop"}, {"shutdown": "Terminate"}])
def test_a_runner_that_has_not_claimed_has_nothing_to_finish(spec: dict[str, object]) -> None:
    o = observed(found(**spec), attempts=(attempt(claimed=False),), pod=pod(phase="Pending"))
    assert closing(step_of(o)) == (AttemptOutcome.PAUSED, "Suspended")


def test_a_suspend_that_is_taken_back_before_the_pod_is_gone_is_no_disruption() -> None:
    called_off = attempt(claimed=False, outcome=AttemptOutcome.PAUSED, reason="Suspended")
    going = observed(attempts=(called_off,), pod=pod(phase="Pending", evicted=1))
    assert of_type(step_of(going), StartAttempt)
    on_again = observed(
        attempts=(called_off, attempt(2, claimed=False)), pod=pod(phase="Pending", scheduled=None)
    )
    made = step_of(on_again)
    assert made.status is not None and made.status.disruptions == 0
    assert {c.type.value: c.status.value for c in made.status.conditions}["Disrupted"] == "False"


def test_a_runner_that_claims_though_it_was_called_off_is_waited_for() -> None:
    row = attempt(outcome=AttemptOutcome.PAUSED, reason="Suspended", ended=1)
    made = step_of(observed(attempts=(row,), pod=pod()))
    assert (made.actions, stands(made)) == ((), ("Pausing", "Suspended"))


def test_a_pod_that_went_for_a_suspend_was_parked_and_not_disrupted() -> None:
    o = observed(found(suspend=True), attempts=(attempt(),), pod=pod(exit_code=75, evicted=10))
    assert closing(step_of(o)) == (AttemptOutcome.PAUSED, "Suspended")
    cancelled = observed(found(shutdown="Stop"), attempts=(attempt(),), pod=pod(exit_code=143, evicted=10))
    assert closing(step_of(cancelled))[0] is AttemptOutcome.DISRUPTED


def test_at_the_completion_deadline_the_pod_goes() -> None:
    o = observed(found(completionDeadlineSeconds=500), attempts=(attempt(started=501),), pod=pod())
    made = step_of(o)
    assert [type(action) for action in made.actions] == [DeletePod]
    assert stands(made) == ("Pausing", "DeadlineExceeded")
    early = observed(found(completionDeadlineSeconds=620), attempts=(attempt(started=600),), pod=pod())
    assert step_of(early).step.requeue == pytest.approx(20.05)


# --- a new image


def test_a_new_image_takes_a_pod_down_only_where_there_is_room() -> None:
    o = observed(attempts=(attempt(),), pod=pod(), outdated=True)
    assert step_of(o).actions == ()
    made = step_of(replace(o, memory=Memory(rollout_room=True)))
    assert [type(action) for action in made.actions] == [DeletePod]
    assert stands(made) == ("Pausing", "Rollout") and made.step.rolling


def test_a_new_image_leaves_a_pod_alone_that_has_not_claimed_or_goes_anyway() -> None:
    room = Memory(rollout_room=True)
    o = observed(attempts=(attempt(claimed=False),), pod=pod(), outdated=True, memory=room)
    assert step_of(o).actions == ()
    o = observed(attempts=(attempt(),), pod=pod(evicted=2), outdated=True, memory=room)
    assert step_of(o).actions == ()


# --- the store is away


def test_while_the_store_cannot_be_read_nothing_is_done_and_no_phase_changes() -> None:
    before = {
        "phase": "Running",
        "attempt": 1,
        "conditions": [
            {
                "type": "Succeeded",
                "status": "Unknown",
                "reason": "Running",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ],
    }
    object_ = found(status=before, suspend=True)
    o = observed(object_, no_run=True, store_problem="connection refused")
    made = step_of(o)
    assert made.actions == () and made.events == () and made.step.requeue
    assert made.status is not None
    assert (made.status.phase, made.status.attempt) == (Phase.RUNNING, 1)
    conditions = {c.type.value: c for c in made.status.conditions}
    assert conditions["Reconciling"].reason == "StoreUnavailable"
    assert conditions["Succeeded"].status.value == "Unknown"


def test_a_finished_run_is_told_nothing_of_the_store() -> None:
    o = observed(found(status={"phase": "Succeeded"}), no_run=True, store_problem="gone")
    assert step_of(o).status is None


# --- levels


def test_levels_of_a_later_object_of_the_name_are_newer() -> None:
    earlier = found(metadata={"creationTimestamp": "2026-11-30T10:00:00Z", "generation": 900})
    later = found(metadata={"creationTimestamp": "2026-11-30T10:00:01Z", "generation": 1})
    assert later.levels().generation > earlier.levels().generation


def test_levels_that_somebody_else_wrote_are_put_right() -> None:
    wanted = found().levels()
    stored = Levels(generation=wanted.generation + 5, suspend=True)
    (action,) = step_of(observed(attempts=(attempt(),), pod=pod(), levels=stored)).actions
    assert isinstance(action, SetLevels)
    assert action.levels.generation == stored.generation + 1 and not action.levels.suspend


def test_no_new_attempt_is_made_for_an_object_that_is_being_deleted() -> None:
    going = found(metadata={"deletionTimestamp": "2026-11-30T12:00:00Z", "finalizers": ["x/y"]})
    assert step_of(observed(going, no_run=True)).actions == ()
    o = observed(going, attempts=(attempt(1, AttemptOutcome.DISRUPTED, "PodDeleted"),))
    assert not of_type(step_of(o), StartAttempt)
