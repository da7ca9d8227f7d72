"""Runs whose object is gone: cancelled, or parked where an id was given."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from agentrun.log.store import AttemptOutcome
from agentrun.log.summary import Phase
from agentrun_operator.actions import CloseAttempt, DeletePod, EndRun, SetLevels
from agentrun_operator.facts import Memory, Observation
from agentrun_operator.plan import Plan, plan
from agentrun_operator.plan_orphan import is_parked_for_good
from tests.unit.operator.builders import SETTINGS, UID, attempt, found, observed, pod

GIVEN = UUID("11111111-2222-4333-8444-555555555555")


def step_of(o: Observation) -> Plan:
    return plan(o, SETTINGS)


def stopping(o: Observation) -> Observation:
    """As the store has it once the run was asked to stop."""
    assert o.info is not None
    given = str(o.info.run.run_id) != UID
    levels = replace(o.info.run.levels, **({"suspend": True} if given else {"shutdown": "Stop"}))
    return replace(o, info=replace(o.info, run=replace(o.info.run, levels=levels)))


def test_first_a_live_runner_is_asked_by_the_levels() -> None:
    o = observed(gone=True, attempts=(attempt(),), pod=pod())
    (action,) = step_of(o).actions
    assert isinstance(action, SetLevels) and action.levels.shutdown == "Stop"
    (action,) = step_of(observed(gone=True, run_id=GIVEN)).actions
    assert isinstance(action, SetLevels) and action.levels.suspend and not action.levels.shutdown


def test_the_pod_is_waited_for_and_helped_along() -> None:
    o = stopping(observed(gone=True, attempts=(attempt(),), pod=pod()))
    assert step_of(o).actions == () and step_of(o).step.asking == "Delete"
    late = replace(o, memory=Memory(asked=("Delete", 6.0)))
    assert [type(action) for action in step_of(late).actions] == [DeletePod]
    going = replace(late, pod=pod(evicted=3))
    assert step_of(going).actions == () and step_of(going).step.requeue


def test_a_run_without_a_given_id_is_cancelled_when_its_pod_is_gone() -> None:
    o = stopping(observed(gone=True, attempts=(attempt(),)))
    (action,) = step_of(o).actions
    assert isinstance(action, CloseAttempt) and action.ending.outcome is AttemptOutcome.DISRUPTED
    closed = stopping(observed(gone=True, attempts=(attempt(1, AttemptOutcome.DISRUPTED, "PodDeleted"),)))
    (action,) = step_of(closed).actions
    assert isinstance(action, EndRun) and action.phase is Phase.CANCELLED


def test_a_run_with_a_given_id_is_parked_for_another_object_of_its_name() -> None:
    o = stopping(observed(gone=True, attempts=(attempt(),), run_id=GIVEN))
    (action,) = step_of(o).actions
    assert isinstance(action, CloseAttempt) and action.ending.outcome is AttemptOutcome.PAUSED
    closed = stopping(
        observed(gone=True, attempts=(attempt(1, AttemptOutcome.PAUSED, "Suspended"),), run_id=GIVEN)
    )
    made = step_of(closed)
    assert (made.actions, made.step.requeue) == ((), None)
    assert closed.info is not None
    run = closed.info.run
    assert is_parked_for_good(suspend=True, run_id=run.run_id, owner=run.owner)


def test_what_has_ended_or_cannot_be_read_is_left_alone() -> None:
    assert step_of(observed(gone=True, ended=Phase.SUCCEEDED)).actions == ()
    away = step_of(observed(gone=True, no_run=True, store_problem="away"))
    assert away.actions == () and away.step.requeue
    assert step_of(observed(gone=True, no_run=True)).step.requeue is None


def test_nothing_is_told_of_an_object_that_is_gone() -> None:
    made = step_of(observed(found(), gone=True))
    assert (made.status, made.events) == (None, ())
