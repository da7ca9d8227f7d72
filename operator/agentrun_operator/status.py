"""An object's status from what is known and decided. Pure.

Who calls: `plan`, and the reconciler to see how urgent a difference is. What holds: of
constant size; a condition's time changes with its status alone; what a pod that is gone
had said of itself stays until there is another one, so that its going costs no write.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from agentrun.log.summary import WAITING_SHOWN_MAX, Phase
from agentrun_operator.actions import Step
from agentrun_operator.crd_status import (
    AmountStatus,
    BudgetStatus,
    Condition,
    ConditionStatus,
    ConditionType,
    PodStatus,
    ProgressStatus,
    ResultStatus,
    RunStatus,
    TokensStatus,
    WaitingCall,
    WaitingStatus,
)
from agentrun_operator.facts import Observation, RunObject
from agentrun_operator.plan_live import STOPPING
from agentrun_operator.pods import parse_time
from agentrun_operator.waiting import reason_word
from agentrun_operator.waits import disruptions

_ACTIVE = frozenset({Phase.PENDING, Phase.RUNNING, Phase.PAUSING})
_PULLING = frozenset({"ErrImagePull", "ImagePullBackOff"})
TRUE, FALSE, UNKNOWN = ConditionStatus.TRUE, ConditionStatus.FALSE, ConditionStatus.UNKNOWN


def build_status(o: Observation, step: Step) -> RunStatus:
    """The whole status."""
    found = o.object
    assert found is not None
    reason, message = _steady(found, step)
    return RunStatus(
        observed_generation=found.generation,
        run_id=str(found.run_id),
        phase=step.phase,
        reason=reason_word(reason) if reason else None,
        message=message or None,
        start_time=o.started_at,
        completion_time=_completed_at(o, found, step),
        attempt=o.pod_attempts[-1].attempt if o.pod_attempts else None,
        disruptions=disruptions(o.pod_attempts),
        failures=o.failures,
        observed_retry_token=found.spec.retry_token if found.run is not None else None,
        pod=_pod(o, found),
        budget=_budget(o, found),
        progress=_progress(o.summary),
        waiting=None if step.phase.terminal else _waiting(o),
        result=_result(o.summary) if step.phase is Phase.SUCCEEDED else None,
        conditions=_conditions(o, found, step, reason, message),
    )


def unreadable_status(o: Observation, found: RunObject) -> RunStatus | None:
    """What it was, with a condition that says that the store cannot be read. None: better nothing."""
    try:
        before = RunStatus.model_validate(dict(found.status))
    except ValueError:
        before = RunStatus()
    if before.phase is None:
        before = before.model_copy(update={"phase": Phase.PENDING, "run_id": str(found.run_id)})
    told = _Told(found, o.now)
    said = told.make(ConditionType.RECONCILING, TRUE, "StoreUnavailable", o.store_problem)
    others = [c for c in before.conditions if c.type is not ConditionType.RECONCILING]
    return before.model_copy(update={"conditions": (*others, said)})


def is_urgent(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """The difference is more than progress."""
    return _essence(before) != _essence(after)


def _essence(status: Mapping[str, Any]) -> dict[str, Any]:
    essence = {key: value for key, value in status.items() if key not in ("progress", "budget", "message")}
    pod = essence.get("pod")
    if isinstance(pod, Mapping):
        essence["pod"] = {key: value for key, value in pod.items() if key != "nodeName"}
    conditions = essence.get("conditions")
    essence["conditions"] = sorted(
        (str(c.get("type")), str(c.get("status")), str(c.get("reason")), str(c.get("observedGeneration")))
        for c in (conditions if isinstance(conditions, list) else [])
        if isinstance(c, Mapping) and (c.get("type") != "PodScheduled" or c.get("status") == "False")
    )
    return essence


def _steady(found: RunObject, step: Step) -> tuple[str, str]:
    """An image that cannot be pulled says two things in turn: the one that stays is told."""
    before = found.status.get("reason")
    if step.reason == "ErrImagePull" and before == "ImagePullBackOff":
        return str(before), str(found.status.get("message") or step.message)
    return step.reason, step.message


def _completed_at(o: Observation, found: RunObject, step: Step) -> datetime | None:
    if not step.phase.terminal:
        return None
    if o.info is not None and o.info.run.ended_at is not None:
        return o.info.run.ended_at
    return found.completed_at or o.now


def _pod(o: Observation, found: RunObject) -> PodStatus | None:
    if o.pod is not None:
        return PodStatus(name=o.pod.name, uid=o.pod.uid or None, node_name=o.pod.node or None)
    before = found.status.get("pod")
    attempt = o.pod_attempts[-1].attempt if o.pod_attempts else None
    if not isinstance(before, Mapping) or found.status.get("attempt") != attempt:
        return None
    try:
        return PodStatus.model_validate(dict(before))
    except ValueError:
        return None


def _budget(o: Observation, found: RunObject) -> BudgetStatus | None:
    if found.run is None:
        return None
    budget, used = found.spec.budget, o.summary.get("budget")
    used = used if isinstance(used, Mapping) else {}
    return BudgetStatus(
        tokens=TokensStatus(
            used=_whole(used.get("tokens")),
            limit=budget.tokens,
            estimated=True if used.get("estimated") else None,
        ),
        wall_seconds=AmountStatus(used=_whole(used.get("wallSeconds")), limit=budget.wall_seconds),
        turns=AmountStatus(used=_whole(used.get("turns")), limit=budget.turns),
        retries=AmountStatus(used=o.retries_used(), limit=budget.retries),
    )


def _progress(summary: Mapping[str, Any]) -> ProgressStatus | None:
    found = summary.get("progress")
    if not isinstance(found, Mapping):
        return None
    return ProgressStatus(
        done=_whole(found.get("done")),
        in_flight=_whole(found.get("inFlight")),
        pending=_whole(found.get("pending")),
        last=str(found.get("last") or ""),
    )


def _waiting(o: Observation) -> WaitingStatus | None:
    """The calls that nobody has answered, as far as the projection lists them."""
    found = o.summary.get("waiting")
    listed = found.get("calls") if isinstance(found, Mapping) else None
    if not isinstance(found, Mapping) or not isinstance(listed, list):
        return None
    answered = {row.id for row in o.answers}
    calls = [call for call in listed if isinstance(call, Mapping) and call.get("id") not in answered]
    count = _whole(found.get("count")) - (len(listed) - len(calls))
    if count <= 0:
        return None
    return WaitingStatus(
        count=count,
        calls=tuple(
            WaitingCall(
                id=str(call.get("id") or ""),
                tool=str(call.get("tool") or ""),
                reason=reason_word(str(call.get("reason") or "")),
                arguments=str(call.get("arguments") or ""),
            )
            for call in calls[:WAITING_SHOWN_MAX]
        ),
    )


def _result(summary: Mapping[str, Any]) -> ResultStatus | None:
    found = summary.get("result")
    if not isinstance(found, Mapping):
        return None
    return ResultStatus(
        preview=str(found.get("preview") or ""),
        size_bytes=_whole(found.get("sizeBytes")),
        digest=str(found["digest"])[:80] if found.get("digest") else None,
    )


def _whole(value: object) -> int:
    return max(0, int(value)) if isinstance(value, int | float) else 0


class _Told:
    """Makes conditions, and keeps the time of those whose status stays."""

    def __init__(self, found: RunObject, now: datetime) -> None:
        conditions = found.status.get("conditions")
        listed = conditions if isinstance(conditions, list) else []
        self._before = {str(c.get("type")): c for c in listed if isinstance(c, Mapping)}
        self._generation = found.generation
        self._now = now

    def make(
        self, type_: ConditionType, status: ConditionStatus, reason: str, message: str = ""
    ) -> Condition:
        before = self._before.get(type_.value, {})
        same = before.get("status") == status.value
        since = parse_time(before.get("lastTransitionTime")) if same else None
        return Condition(
            type=type_,
            status=status,
            reason=reason_word(reason),
            message=message,
            last_transition_time=since or self._now,
            observed_generation=self._generation,
        )

    def kept(self, type_: ConditionType) -> Condition | None:
        """As it stands in the object, and still holds for what the object says now."""
        try:
            condition = Condition.model_validate(dict(self._before[type_.value]))
        except (KeyError, ValueError):
            return None
        return condition.model_copy(update={"observed_generation": self._generation})


def _conditions(
    o: Observation, found: RunObject, step: Step, reason: str, message: str
) -> tuple[Condition, ...]:
    told, phase = _Told(found, o.now), step.phase
    why = reason or phase.value
    ended = {Phase.SUCCEEDED: TRUE, Phase.FAILED: FALSE, Phase.CANCELLED: FALSE}.get(phase, UNKNOWN)
    suspended = phase is Phase.PAUSED and reason == "Suspended"
    suspending = reason == STOPPING["Suspend"]
    active = phase in _ACTIVE
    stalled = step.stalled or phase in (Phase.FAILED, Phase.CANCELLED)
    return tuple(
        condition
        for condition in (
            told.make(ConditionType.SUCCEEDED, ended, why if ended is not UNKNOWN else phase.value, message),
            told.make(
                ConditionType.SUSPENDED,
                TRUE if suspended else FALSE,
                "Suspended" if suspended else "Suspending" if suspending else "NotSuspended",
            ),
            _pod_scheduled(o, told, reason, message),
            told.make(
                ConditionType.DISRUPTED, TRUE if step.disrupted else FALSE, step.disrupted or "NotDisrupted"
            ),
            told.make(
                ConditionType.BUDGET_EXCEEDED,
                TRUE if step.over_budget else FALSE,
                "BudgetExceeded" if step.over_budget else "WithinBudget",
                message if step.over_budget else "",
            ),
            told.make(ConditionType.RECONCILING, TRUE if active else FALSE, why if active else phase.value),
            told.make(
                ConditionType.STALLED,
                TRUE if stalled else FALSE,
                why if stalled else "NotStalled",
                message if stalled else "",
            ),
        )
        if condition is not None
    )


def _pod_scheduled(o: Observation, told: _Told, reason: str, message: str) -> Condition | None:
    pod, refused, last = o.pod, o.memory.refused, o.last
    if pod is not None and pod.scheduled is not None:
        if pod.scheduled:
            return told.make(ConditionType.POD_SCHEDULED, TRUE, "Scheduled")
        waiting = pod.waiting
        return told.make(
            ConditionType.POD_SCHEDULED,
            FALSE,
            waiting.reason if waiting else "Unschedulable",
            waiting.message if waiting else "",
        )
    if pod is None and refused is not None and last is not None and refused.attempt == last.attempt:
        return told.make(ConditionType.POD_SCHEDULED, FALSE, reason or "PodRefused", message)
    return told.kept(ConditionType.POD_SCHEDULED)
