"""What is done when no attempt is under way: start, back off, park, end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agentrun.log.store import AttemptOutcome, AttemptRow
from agentrun.log.summary import Phase
from agentrun.spec import definition_bytes
from agentrun_operator.actions import (
    Action,
    Adopt,
    CloseAttempt,
    CreateRun,
    DeleteObject,
    DeletePod,
    EndRun,
    Reopen,
    StartAttempt,
)
from agentrun_operator.facts import Memory, Observation
from agentrun_operator.plan import Plan, plan
from tests.unit.operator.builders import SETTINGS, attempt, found, observed, pod, stamp

CRASHED, DISRUPTED, PAUSED = AttemptOutcome.CRASHED, AttemptOutcome.DISRUPTED, AttemptOutcome.PAUSED


def step_of(o: Observation) -> Plan:
    return plan(o, SETTINGS)


def stands(made: Plan) -> tuple[str, str]:
    assert made.status is not None
    return str(made.status.phase), made.status.reason or ""


def ends(made: Plan) -> tuple[Phase, str]:
    (action,) = [a for a in made.actions if isinstance(a, EndRun)]
    return action.phase, action.reason


def starts(o: Observation) -> bool:
    return any(isinstance(action, StartAttempt) for action in step_of(o).actions)


def kinds(made: Plan) -> list[type[Action]]:
    return [type(action) for action in made.actions]


def summary(attempt: int = 1, message: str = "", **used: Any) -> dict[str, Any]:
    return {"phase": "Paused", "attempt": attempt, "message": message, "budget": used}


# --- beginning


def test_a_new_object_gets_a_run_and_the_run_an_attempt() -> None:
    assert step_of(observed(no_run=True)).actions == (CreateRun(),)
    assert step_of(observed()).actions == (StartAttempt(expected=0),)


def test_an_object_that_cannot_run_stalls_and_says_why() -> None:
    made = step_of(observed(found(concurrency=0), no_run=True))
    assert stands(made) == ("Pending", "InvalidSpec") and made.actions == ()
    assert made.status is not None and "concurrency" in (made.status.message or "")
    assert {c.type.value: c.status.value for c in made.status.conditions}["Stalled"] == "True"
    over = found(concurrency=0, status={"phase": "Succeeded"})
    assert step_of(observed(over, no_run=True)).status is None
    template = found(podTemplate={"spec": {"hostNetwork": True}})
    assert stands(step_of(observed(template, no_run=True))) == ("Pending", "InvalidPodTemplate")


def test_a_run_that_begins_suspended_has_no_pod() -> None:
    made = step_of(observed(found(suspend=True)))
    assert (made.actions, stands(made)) == ((), ("Paused", "Suspended"))


# --- the next attempt

NEXT: dict[str, tuple[AttemptRow, bool]] = {
    "disrupted: at once": (attempt(1, DISRUPTED, "EvictionByEvictionAPI", ended=0), True),
    "drained, as its runner said: at once": (attempt(1, PAUSED, "Terminated", ended=0), True),
    "never started: at once": (attempt(1, DISRUPTED, "NeverStarted", claimed=False), True),
    "crashed: not yet": (attempt(1, CRASHED, "OOMKilled", ended=9), False),
    "crashed a while ago": (attempt(1, CRASHED, "OOMKilled", ended=11), True),
    "fenced: not yet": (attempt(1, DISRUPTED, "Fenced", ended=4), False),
    "fenced a while ago": (attempt(1, DISRUPTED, "Fenced", ended=6), True),
    "the store was away: not yet": (attempt(1, PAUSED, "StoreUnavailable", ended=9), False),
    "the store was away a while ago": (attempt(1, PAUSED, "StoreUnavailable", ended=11), True),
    "resumed": (attempt(1, PAUSED, "Suspended", ended=0), True),
}


@pytest.mark.parametrize("name", NEXT)
def test_when_the_next_attempt_starts(name: str) -> None:
    row, wanted = NEXT[name]
    o = observed(attempts=(row,))
    assert starts(o) is wanted
    if not wanted:
        made = step_of(o)
        assert stands(made) == ("Pending", "BackOff") and made.step.requeue is not None


def test_a_run_whose_tool_server_is_away_is_parked_and_tried_again() -> None:
    def rows(count: int, ended: float) -> tuple[AttemptRow, ...]:
        return tuple(
            attempt(n, PAUSED, "ToolServerUnavailable", started=ended + 10, ended=ended)
            for n in range(1, count + 1)
        )

    made = step_of(observed(attempts=rows(1, 9)))
    assert stands(made) == ("Paused", "ToolServerUnavailable")
    assert made.step.requeue is not None and made.step.requeue < 2
    assert starts(observed(attempts=rows(1, 11)))
    assert not starts(observed(attempts=rows(3, 39))) and starts(observed(attempts=rows(3, 41)))
    assert not starts(observed(attempts=rows(9, 299))) and starts(observed(attempts=rows(9, 301)))


def test_failures_in_a_row_wait_longer_up_to_a_bound() -> None:
    def rows(count: int, ended: float) -> tuple[AttemptRow, ...]:
        return tuple(
            attempt(n, CRASHED, "RunnerFailed", started=ended + 10, ended=ended) for n in range(1, count + 1)
        )

    assert not starts(observed(attempts=rows(3, 39))) and starts(observed(attempts=rows(3, 41)))
    assert not starts(observed(attempts=rows(9, 299))) and starts(observed(attempts=rows(9, 301)))


def test_an_attempt_that_lived_long_lets_the_count_begin_anew() -> None:
    short = [attempt(n, CRASHED, "RunnerFailed", started=4000, ended=3990) for n in (1, 2, 3)]
    long = attempt(4, CRASHED, "RunnerFailed", started=3000, ended=11)
    assert starts(observed(attempts=(*short, long)))


def test_disruptions_in_a_row_are_slowed_down_after_a_few() -> None:
    def rows(count: int) -> tuple[AttemptRow, ...]:
        return tuple(attempt(n, DISRUPTED, "Evicted", started=20, ended=1) for n in range(1, count + 1))

    assert starts(observed(attempts=rows(3)))
    assert not starts(observed(attempts=rows(5)))


def test_the_next_attempt_waits_for_the_runner_before_it_to_end() -> None:
    row = attempt(1, PAUSED, "Terminated", ended=3)
    going = step_of(observed(attempts=(row,), pod=pod(evicted=5)))
    assert going.actions == () and stands(going) == ("Pausing", "PodDeleted")
    evicted = step_of(observed(attempts=(row,), pod=pod(evicted=5, disruption="EvictionByEvictionAPI")))
    assert stands(evicted) == ("Pausing", "EvictionByEvictionAPI")
    ended = step_of(observed(attempts=(row,), pod=pod(exit_code=75, evicted=5)))
    assert kinds(ended) == [StartAttempt]


def test_a_pod_that_never_had_the_run_is_not_waited_for() -> None:
    row = attempt(1, AttemptOutcome.FAILED, "StartDeadlineExceeded: ImagePullBackOff", claimed=False)
    made = step_of(observed(attempts=(row,), pod=pod(phase="Pending")))
    assert kinds(made) == [DeletePod, EndRun]


def test_a_runner_that_does_not_exit_loses_its_pod_after_a_while() -> None:
    row = attempt(1, PAUSED, "Suspended", ended=31)
    made = step_of(observed(found(suspend=True), attempts=(row,), pod=pod()))
    assert kinds(made) == [DeletePod]


# --- failures


def test_crashes_draw_from_the_retries_of_the_budget() -> None:
    crashes = tuple(attempt(n, CRASHED, "RunnerFailed", ended=400) for n in (1, 2, 3))
    within = observed(found(budget={"retries": 3}), attempts=crashes)
    assert starts(within)
    beyond = observed(found(budget={"retries": 2}), attempts=crashes)
    made = step_of(beyond)
    assert (made.actions, stands(made)) == ((), ("Paused", "BudgetExceeded"))
    assert made.status is not None and made.status.budget is not None
    assert (made.status.budget.retries.used, made.status.failures) == (3, 3)


def test_retries_in_the_log_and_crashes_that_it_has_not_counted_are_added_up() -> None:
    crashes = tuple(attempt(n, CRASHED, "RunnerFailed", ended=400) for n in (1, 2))
    counted = summary(attempt=2, retries=5)  # attempt 2 claimed, and counted attempt 1
    o = observed(found(budget={"retries": 6}), attempts=crashes, summary=counted)
    assert o.retries_used() == 6 and starts(o)
    o = observed(found(budget={"retries": 5}), attempts=crashes, summary=counted)
    assert stands(step_of(o)) == ("Paused", "BudgetExceeded")


def test_failures_used_up_fail_the_run_where_the_budget_says_so() -> None:
    row = attempt(1, CRASHED, "OOMKilled: out of memory", ended=400)
    o = observed(found(budget={"retries": 0, "onExceeded": "Fail"}), attempts=(row,))
    assert ends(step_of(o)) == (Phase.FAILED, "BudgetExceeded")


def test_more_retries_let_a_run_go_on_whose_failures_were_used_up() -> None:
    row = attempt(1, CRASHED, "OOMKilled", ended=400)
    assert not starts(observed(found(budget={"retries": 0}), attempts=(row,)))
    assert starts(observed(found(budget={"retries": 1}), attempts=(row,)))


def test_disruptions_draw_nothing() -> None:
    rows = tuple(attempt(n, DISRUPTED, "Evicted", ended=400) for n in range(1, 20))
    o = observed(found(budget={"retries": 0}), attempts=rows)
    assert starts(o) and o.retries_used() == 0


def test_what_cannot_start_ends_the_run_with_its_reason() -> None:
    row = attempt(1, AttemptOutcome.FAILED, "InvalidDefinition: spec.x: is wrong", claimed=False)
    made = step_of(observed(attempts=(row,)))
    assert ends(made) == (Phase.FAILED, "InvalidDefinition")


@pytest.mark.parametrize("reason", ["CorruptLog", "NewerFormat"])
def test_a_log_that_nobody_can_read_fails_without_a_final_record(reason: str) -> None:
    row = attempt(1, AttemptOutcome.FAILED, f"{reason}: run x, record 3: a hole")
    made = step_of(observed(attempts=(row,)))
    assert (made.actions, stands(made)) == ((), ("Failed", reason))
    retried = found(retryToken="2", status={"phase": "Failed", "observedRetryToken": "1"})
    assert starts(observed(retried, attempts=(row,)))


def test_a_log_that_the_operator_could_not_end_is_not_tried_for_ever() -> None:
    rows = (
        attempt(1, DISRUPTED, "PodDeleted"),
        attempt(2, AttemptOutcome.FAILED, "CorruptLog: a hole", ends=True),
    )
    made = step_of(observed(found(shutdown="Stop"), attempts=rows))
    assert (made.actions, stands(made)) == ((), ("Failed", "CorruptLog"))


# --- parked


def test_a_run_that_used_its_budget_up_waits_until_it_is_raised() -> None:
    object_ = found(budget={"tokens": 1000})
    generation = object_.levels().generation
    row = attempt(1, PAUSED, "BudgetExceeded: 1000 of 1000 tokens are used", generation=generation)
    o = observed(object_, attempts=(row,), summary=summary(tokens=1000))
    made = step_of(o)
    assert (made.actions, stands(made)) == ((), ("Paused", "BudgetExceeded"))
    assert made.status is not None
    assert {c.type.value: c.status.value for c in made.status.conditions}["BudgetExceeded"] == "True"
    raised = found(budget={"tokens": 2000}, metadata={"generation": 2})
    assert starts(observed(raised, attempts=(row,), summary=summary(tokens=1000)))
    other = found(budget={"tokens": 1000, "turns": 500}, metadata={"generation": 2})
    assert not starts(observed(other, attempts=(row,), summary=summary(tokens=1000)))


def test_a_budget_that_was_not_changed_is_not_tried_again() -> None:
    object_ = found(budget={"tokens": 1000})
    row = attempt(1, PAUSED, "BudgetExceeded", generation=object_.levels().generation)
    assert not starts(observed(object_, attempts=(row,), summary=summary(tokens=10)))


def test_retries_that_are_just_used_up_stop_only_who_needs_one() -> None:
    object_ = found(budget={"retries": 3, "turns": 20}, metadata={"generation": 2})
    used = summary(message="3 of 3 retries are used", retries=3, turns=5)
    row = attempt(1, PAUSED, "BudgetExceeded")
    assert not starts(observed(object_, attempts=(row,), summary=used))
    used = summary(message="10 of 10 turns are used", retries=3, turns=10)
    assert starts(observed(object_, attempts=(row,), summary=used))


def test_a_run_that_waits_for_somebody_goes_on_when_there_is_something_in_its_inbox() -> None:
    row = attempt(1, PAUSED, "ApprovalRequired: may I send it?")
    made = step_of(observed(attempts=(row,)))
    assert (made.actions, stands(made)) == ((), ("Paused", "ApprovalRequired"))
    assert starts(observed(attempts=(row,), input_waits=True))


# --- ended by the object


def test_a_shutdown_ends_a_run_without_a_process() -> None:
    made = step_of(observed(found(shutdown="Stop"), attempts=(attempt(1, PAUSED, "Suspended"),)))
    assert ends(made) == (Phase.CANCELLED, "Cancelled")
    assert ends(step_of(observed(found(shutdown="Terminate", suspend=True)))) == (
        Phase.CANCELLED,
        "Cancelled",
    )


def test_the_completion_deadline_fails_a_parked_run_too() -> None:
    row = attempt(1, PAUSED, "Suspended", started=501)
    object_ = found(completionDeadlineSeconds=500, suspend=True)
    assert ends(step_of(observed(object_, attempts=(row,)))) == (Phase.FAILED, "DeadlineExceeded")


# --- ended


def test_a_phase_that_ended_a_run_comes_from_its_final_record() -> None:
    for phase in (Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED):
        row = attempt(1, AttemptOutcome.SUCCEEDED)
        o = observed(attempts=(row,), ended=phase, final_reason="Because", pod=pod(exit_code=137, evicted=3))
        assert stands(step_of(o)) == (phase.value, "Because")


def test_an_exit_code_changes_nothing_behind_a_final_record() -> None:
    o = observed(attempts=(attempt(),), ended=Phase.SUCCEEDED, pod=pod(phase="Failed", exit_code=143))
    made = step_of(o)
    (action,) = made.actions
    assert isinstance(action, CloseAttempt) and action.ending.outcome is AttemptOutcome.SUCCEEDED


def test_an_attempt_beside_the_one_that_ended_the_run_is_fenced() -> None:
    rows = (attempt(1, DISRUPTED, "NodeLost"), attempt(2, claimed=False))
    o = observed(attempts=rows, ended=Phase.SUCCEEDED, pod=pod(phase="Failed", exit_code=76))
    o = replace(o, final=replace(o.final, attempt=1))  # type: ignore[type-var]
    (action,) = step_of(o).actions
    assert isinstance(action, CloseAttempt) and action.ending.outcome is AttemptOutcome.FENCED


RETENTION = [
    ("OnFailure", Phase.SUCCEEDED, AttemptOutcome.SUCCEEDED, True),
    ("OnFailure", Phase.CANCELLED, AttemptOutcome.CANCELLED, True),
    ("OnFailure", Phase.FAILED, AttemptOutcome.FAILED, False),
    ("Always", Phase.SUCCEEDED, AttemptOutcome.SUCCEEDED, False),
    ("Never", Phase.FAILED, AttemptOutcome.FAILED, True),
]


@pytest.mark.parametrize(("policy", "phase", "outcome", "goes"), RETENTION)
def test_which_ended_pods_are_kept(policy: str, phase: Phase, outcome: AttemptOutcome, goes: bool) -> None:
    ended = pod(phase="Failed" if phase is Phase.FAILED else "Succeeded", exit_code=0)
    o = observed(found(podRetentionPolicy=policy), attempts=(attempt(1, outcome),), ended=phase, pod=ended)
    assert kinds(step_of(o)) == ([DeletePod] if goes else [])


@pytest.mark.parametrize("phase", ["Running", "Failed"])
def test_a_failed_pod_is_kept_also_while_the_kubelet_calls_it_running(phase: str) -> None:
    ended = pod(phase=phase, exit_code=1, sidecar=False)
    o = observed(attempts=(attempt(1, AttemptOutcome.CRASHED, ended=0),), pod=ended)
    assert stands(step_of(o)) == ("Pending", "BackOff")
    assert kinds(step_of(o)) == []


def test_a_pod_whose_sidecars_go_on_is_never_kept() -> None:
    o = observed(
        found(podRetentionPolicy="Always"),
        attempts=(attempt(1, AttemptOutcome.SUCCEEDED),),
        ended=Phase.SUCCEEDED,
        pod=pod(phase="Running", exit_code=0),
    )
    assert kinds(step_of(o)) == [DeletePod]


def test_a_runner_gets_time_to_say_its_last_words_behind_the_final_record() -> None:
    fresh = observed(attempts=(attempt(),), ended=Phase.SUCCEEDED, ended_ago=1, pod=pod())
    assert step_of(fresh).status is None and step_of(fresh).step.requeue
    later = observed(attempts=(attempt(),), ended=Phase.SUCCEEDED, ended_ago=4, pod=pod())
    assert stands(step_of(later)) == ("Succeeded", "Completed") and step_of(later).actions == ()
    hung = observed(
        attempts=(attempt(1, AttemptOutcome.SUCCEEDED),), ended=Phase.SUCCEEDED, ended_ago=31, pod=pod()
    )
    assert kinds(step_of(hung)) == [DeletePod]


def test_parked_and_drained_pods_go_and_failed_ones_stay() -> None:
    crashed = attempt(1, CRASHED, "OOMKilled", ended=11)
    o = observed(attempts=(crashed,), pod=pod(phase="Failed", exit_code=137))
    assert kinds(step_of(o)) == [StartAttempt]
    drained = attempt(1, PAUSED, "Terminated")
    o = observed(attempts=(drained,), pod=pod(phase="Failed", exit_code=75))
    assert kinds(step_of(o)) == [DeletePod, StartAttempt]
    parked = attempt(1, PAUSED, "Suspended")
    o = observed(found(suspend=True), attempts=(parked,), pod=pod(phase="Failed", exit_code=75))
    assert kinds(step_of(o)) == [DeletePod]


# --- time to live


def test_an_object_goes_when_its_time_is_over_and_people_have_seen_its_end() -> None:
    row = attempt(1, AttemptOutcome.SUCCEEDED)
    object_ = found(ttlSecondsAfterFinished=100, status={"phase": "Succeeded"})
    waits = step_of(observed(object_, attempts=(row,), ended=Phase.SUCCEEDED, ended_ago=40))
    assert waits.actions == () and waits.step.requeue == pytest.approx(60.05)
    over = step_of(observed(object_, attempts=(row,), ended=Phase.SUCCEEDED, ended_ago=101))
    assert kinds(over) == [DeleteObject]
    unseen = found(ttlSecondsAfterFinished=0)
    made = step_of(observed(unseen, attempts=(row,), ended=Phase.SUCCEEDED))
    assert made.actions == () and made.status is not None


def test_an_object_that_adopts_what_ended_long_ago_has_its_time_as_well() -> None:
    row = attempt(1, AttemptOutcome.SUCCEEDED)

    def made(seconds_ago: float) -> Plan:
        object_ = found(
            metadata={"creationTimestamp": stamp(seconds_ago)},
            ttlSecondsAfterFinished=100,
            status={"phase": "Succeeded"},
        )
        return step_of(observed(object_, attempts=(row,), ended=Phase.SUCCEEDED, ended_ago=5000))

    young, old = made(40), made(101)
    assert young.actions == () and young.step.requeue == pytest.approx(60.05)
    assert kinds(old) == [DeleteObject]


# --- retryToken


def failed(**changes: Any) -> Observation:
    object_ = found(**changes)
    return observed(object_, attempts=(attempt(1, AttemptOutcome.FAILED),), ended=Phase.FAILED)


def test_a_new_retry_token_continues_a_failed_run_once() -> None:
    told = {"phase": "Failed", "observedRetryToken": "1"}
    o = failed(retryToken="2", status=told)
    assert step_of(o).actions == (Reopen(token="2"),)
    spent = step_of(replace(o, memory=Memory(spent_token="2")))
    assert spent.actions == () and spent.status is not None
    assert spent.status.observed_retry_token == "2"
    assert step_of(failed(retryToken="1", status=told)).actions == ()


def test_a_token_that_was_there_from_the_beginning_is_no_new_one() -> None:
    made = step_of(failed(retryToken="1"))  # adopted: status is empty yet
    assert made.actions == () and made.status is not None
    assert made.status.observed_retry_token == "1"


def test_a_retry_token_does_nothing_to_what_succeeded() -> None:
    object_ = found(retryToken="2", status={"phase": "Succeeded"})
    o = observed(object_, attempts=(attempt(1, AttemptOutcome.SUCCEEDED),), ended=Phase.SUCCEEDED)
    assert step_of(o).actions == ()


def test_a_reopened_run_starts_whatever_its_last_attempt_said() -> None:
    row = attempt(1, AttemptOutcome.FAILED, "CannotStart")
    o = observed(found(retryToken="2"), attempts=(row,), attempt_number=2)
    assert step_of(o).actions == (StartAttempt(expected=2),)


# --- whose run it is


def test_a_run_of_somebody_else_is_left_alone() -> None:
    for owner in (
        "local/hello",
        "agentrun/demo/other/uid",
        "elsewhere/demo/hello/uid",
        "agentrun/x/hello/uid",
    ):
        made = step_of(observed(owner=owner))
        assert (made.actions, stands(made)) == ((), ("Pending", "RunIDTaken"))
        assert made.status is not None
        assert {c.type.value: c.status.value for c in made.status.conditions}["Stalled"] == "True"


def test_a_re_created_object_adopts_the_log_of_its_name() -> None:
    owner = "agentrun/demo/hello/an-earlier-uid"
    assert step_of(observed(owner=owner)).actions == (Adopt(owner=owner),)
    made = step_of(observed(owner=owner, definition=b'{"prompt":"another"}'))
    assert (made.actions, stands(made)) == ((), ("Pending", "DefinitionDiffers"))


def test_a_definition_that_was_stored_with_other_numbers_is_the_same() -> None:
    model = {"name": "openai:x", "settings": {"extra": {"top": 1}}}
    object_ = found(agent={"model": model})
    assert object_.run is not None
    stored = definition_bytes(object_.run).replace(b'"top":1', b'"top":1.0')
    owner = "agentrun/demo/hello/an-earlier-uid"
    assert step_of(observed(object_, owner=owner, definition=stored)).actions == (Adopt(owner=owner),)
