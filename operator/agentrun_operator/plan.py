"""From what is known of a run to what is done about it and told of it. Pure.

Who calls: the reconciler, again and again, whatever woke it: what happened is never
asked, only what is. What holds: the same observation gives the same plan; where the
run stands is a function of log, object and pod; a phase that ended a run stays, unless
a new retryToken continues a failed one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from agentrun.log.store import AttemptOutcome
from agentrun.log.summary import Phase
from agentrun.spec import PodRetentionPolicy, definition_bytes, same_definition
from agentrun_operator.actions import (
    Action,
    Adopt,
    CloseAttempt,
    CreateRun,
    DeleteObject,
    DeletePod,
    PostAnswer,
    Reopen,
    SetLevels,
    StartAttempt,
    Step,
)
from agentrun_operator.answers import to_post
from agentrun_operator.crd_status import RunStatus
from agentrun_operator.endings import Ending
from agentrun_operator.events import Told, events_of
from agentrun_operator.facts import Observation, Owner, RunObject, parse_owner
from agentrun_operator.plan_live import live
from agentrun_operator.plan_next import BUDGET_EXCEEDED, between, keeps
from agentrun_operator.plan_orphan import orphan
from agentrun_operator.settings import Settings
from agentrun_operator.status import build_status, unreadable_status
from agentrun_operator.waits import soonest

SUMMARY_SECONDS = 3.0
"""What a runner gets, behind its final record, to write what came of the run."""

STORE_RETRY_SECONDS = 5.0
_TERMINAL = frozenset(phase.value for phase in Phase if phase.terminal)
_OUTCOMES = {
    Phase.SUCCEEDED: AttemptOutcome.SUCCEEDED,
    Phase.FAILED: AttemptOutcome.FAILED,
    Phase.CANCELLED: AttemptOutcome.CANCELLED,
}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The step, and what is told: None and () where nothing is to be told now."""

    step: Step
    status: RunStatus | None = None
    events: tuple[Told, ...] = ()

    @property
    def actions(self) -> tuple[Action, ...]:
        return self.step.actions


def plan(o: Observation, settings: Settings) -> Plan:
    """See the module's docstring."""
    if o.object is None:
        return Plan(step=orphan(o, settings))
    if o.object.run is not None and o.store_problem:
        return _unreadable(o, o.object)
    step = _invalid(o.object) if o.object.run is None else _step(o, o.object, settings)
    if step.again or step.silent:
        return Plan(step=step)
    status = build_status(o, step)
    return Plan(step=step, status=status, events=events_of(o.object.status, status, step, o.answers))


def _unreadable(o: Observation, found: RunObject) -> Plan:
    """Nothing is made, replaced or deleted, and no phase changes."""
    step = Step(silent=True, requeue=STORE_RETRY_SECONDS)
    if is_terminal(found.status):
        return Plan(step=step)
    return Plan(step=step, status=unreadable_status(o, found))


def _invalid(found: RunObject) -> Step:
    """It never starts as it is; what has ended before this operator came stays as it ended."""
    if is_terminal(found.status):
        return Step(silent=True)
    return Step(reason=found.problem_reason, message=found.problem, stalled=True)


def _step(o: Observation, found: RunObject, settings: Settings) -> Step:
    if o.info is None:
        if o.corrupt:
            return Step(phase=Phase.FAILED, reason="CorruptLog", message=o.corrupt)
        if found.deleting:
            return Step(silent=True)
        return Step(actions=(CreateRun(),), again=True)
    if (foreign := _ownership(o, found)) is not None:
        return foreign
    levels, stored = found.levels(), o.info.run.levels
    if not o.info.run.ended and replace(stored, generation=0) != replace(levels, generation=0):
        generation = max(levels.generation, stored.generation + 1)
        return Step(actions=(SetLevels(levels=replace(levels, generation=generation)),), again=True)
    if o.info.run.ended:
        return _ended(o, found, settings)
    if answers := to_post(found.said, o.answers, o.asks):
        return Step(actions=tuple(PostAnswer(said=said) for said in answers), again=True)
    row = o.last
    if row is not None and row.outcome is None:
        return live(o, row, settings)
    step = between(o, settings)
    if step.phase is Phase.FAILED and not step.again and wants_retry(o, found):
        return Step(actions=(StartAttempt(expected=o.info.run.attempt),), again=True)
    return step


def _ownership(o: Observation, found: RunObject) -> Step | None:
    """The run of that id may be somebody else's; None: it is this object's."""
    assert o.info is not None
    run = o.info.run
    ours = owner_of(found, o.installation)
    if run.owner == str(ours):
        return None
    theirs = parse_owner(run.owner)
    if theirs is None or replace(theirs, uid=ours.uid) != ours:
        message = f"run {run.run_id} belongs to {run.owner}"
        return Step(phase=Phase.PENDING, reason="RunIDTaken", message=message, stalled=True)
    assert found.run is not None
    if not same_definition(run.definition, definition_bytes(found.run)):
        message = f"run {run.run_id} has another definition than this object: give it another runID"
        return Step(phase=Phase.PENDING, reason="DefinitionDiffers", message=message, stalled=True)
    if found.deleting:
        return Step(silent=True)
    return Step(actions=(Adopt(owner=run.owner),), again=True)


def owner_of(found: RunObject, installation: str) -> Owner:
    """How the object's run names its owner."""
    return Owner(installation=installation, namespace=found.key.namespace, name=found.key.name, uid=found.uid)


def wants_retry(o: Observation, found: RunObject) -> bool:
    """The object has a retryToken that was not acted upon yet."""
    token = found.spec.retry_token
    if not token or not found.status.get("phase") or token == o.memory.spent_token or found.deleting:
        return False
    return bool(token != found.status.get("observedRetryToken"))


def _ended(o: Observation, found: RunObject, settings: Settings) -> Step:
    info, final, row, pod = o.info, o.final, o.last, o.pod
    assert info is not None
    if final is None:
        return Step(phase=Phase.FAILED, reason="CorruptLog", message=o.corrupt or "no final record")
    age = o.seconds_since(info.run.ended_at)
    runner_lives = pod is not None and not pod.runner_ended
    if runner_lives and str(o.summary.get("phase")) not in _TERMINAL and age < SUMMARY_SECONDS:
        return Step(silent=True, requeue=1.0)
    if row is not None and row.outcome is None and (not runner_lives or age > settings.times.leave):
        ours = row.attempt == final.attempt
        outcome = _OUTCOMES[final.phase] if ours else AttemptOutcome.FENCED
        ending = Ending(outcome=outcome, reason=final.reason if ours else "RunEnded")
        return Step(actions=(CloseAttempt(attempt=row.attempt, ending=ending),), again=True)
    if final.phase is Phase.FAILED and wants_retry(o, found):
        return Step(actions=(Reopen(token=str(found.spec.retry_token)),), again=True)
    step = Step(
        phase=final.phase,
        reason=final.reason,
        message=final.message,
        over_budget=final.reason == BUDGET_EXCEEDED,
        requeue=soonest(settings.times.leave - age) if runner_lives else None,
    )
    if pod is not None and not pod.terminating and not _stays(o, final.phase, age, settings):
        step = replace(step, actions=(DeletePod(name=pod.name, uid=pod.uid),))
    ttl = found.spec.ttl_seconds_after_finished
    if ttl is None or found.deleting:
        return step
    # An object that adopts a run which ended long ago has its time as well.
    return _with_ttl(step, found, ttl - min(age, o.seconds_since(found.created_at)))


def _stays(o: Observation, phase: Phase, age: float, settings: Settings) -> bool:
    assert o.pod is not None and o.object is not None
    if not o.pod.runner_ended:
        return age <= settings.times.leave
    policy = o.object.spec.pod_retention_policy
    if policy is PodRetentionPolicy.ON_FAILURE and phase is not Phase.FAILED:
        return False
    row = o.last
    return row is not None and keeps(o, row, o.pod)


def _with_ttl(step: Step, found: RunObject, left: float) -> Step:
    if left > 0:
        return replace(step, requeue=soonest(step.requeue, left))
    told = str(found.status.get("phase")) == step.phase.value
    if not told:  # first people see how it ended
        return replace(step, requeue=1.0)
    return replace(step, actions=(*step.actions, DeleteObject(uid=found.uid)))


def is_terminal(status: Mapping[str, Any]) -> bool:
    """What an object's status says of its phase."""
    return status.get("phase") in _TERMINAL
