"""What a pod's status says about the runner in it. Pure.

Who calls: `observe` makes `Pod` and `Node`, `plan` asks `state_of`. What holds: the
runner container is found by its name, so that sidecars neither hold nor confuse it;
whatever an API server may say (no container statuses, dates of year 1, unknown
reasons) gives an answer and never an error.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from agentrun_operator.podspec_names import IMAGE_ANNOTATION, RUNNER_CONTAINER

EXIT_PAUSED, EXIT_CANNOT_START, EXIT_FENCED = 75, 2, 76


@dataclass(frozen=True, kw_only=True)
class Exit:
    """How the runner container ended. `words`: the runner's own last words, where it left some."""

    code: int
    reason: str = ""
    words: str = ""
    words_reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """Why a pod has not started. `reason` is CamelCase, as the kubelet or the scheduler has it."""

    reason: str
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A runner pod, as far as decisions need it. Times are the API server's."""

    name: str
    uid: str
    version: str = ""
    phase: str = ""
    node: str = ""
    created_at: datetime | None = None
    evicted_at: datetime | None = None
    """When it was deleted or evicted; None: it was not."""

    delete_by: datetime | None = None
    """When its grace is over."""

    scheduled: bool | None = None
    """None: not known."""

    scheduled_at: datetime | None = None
    waiting: Waiting | None = None
    running: bool = False
    running_since: datetime | None = None
    ready: bool | None = None
    """A node that is lost takes this from its pods; None: not known."""

    exit: Exit | None = None
    goes_on: bool = False
    """One of its containers has not ended."""

    reason: str = ""
    """The pod's own, which the kubelet and controllers set: Evicted, NodeLost, …"""

    message: str = ""
    disruption: str = ""
    """The reason of its condition DisruptionTarget."""

    init_failed: str = ""
    image: str = ""
    """What the operator made it with, whatever a webhook made of it."""

    @property
    def terminating(self) -> bool:
        """It was deleted, and is not gone yet."""
        return self.evicted_at is not None

    @property
    def runner_ended(self) -> bool:
        """The runner container has ended, or can never start any more."""
        return self.exit is not None or self.over

    @property
    def over(self) -> bool:
        """All of it has ended: the kubelet says so of containers a second before it does of the pod."""
        return self.phase in ("Succeeded", "Failed") or (self.exit is not None and not self.goes_on)


@dataclass(frozen=True, kw_only=True)
class Node:
    """The node of a pod that may be lost. `since`: when it was last seen to change; None: it is gone."""

    name: str
    ready: bool
    since: datetime | None = None


def parse_pod(body: Mapping[str, Any]) -> Pod:
    """A pod from the API server."""
    metadata, status = _dict(body.get("metadata")), _dict(body.get("status"))
    spec = _dict(body.get("spec"))
    conditions = {str(c.get("type")): c for c in _dicts(status.get("conditions"))}
    containers = _dicts(status.get("containerStatuses"))
    runner = _named(containers, RUNNER_CONTAINER)
    state = _dict(runner.get("state"))
    scheduled = conditions.get("PodScheduled")
    grace = metadata.get("deletionGracePeriodSeconds")
    delete_by = parse_time(metadata.get("deletionTimestamp"))
    disruption = _dict(conditions.get("DisruptionTarget"))
    return Pod(
        name=str(metadata.get("name", "")),
        uid=str(metadata.get("uid", "")),
        version=str(metadata.get("resourceVersion", "")),
        phase=str(status.get("phase", "")),
        node=str(spec.get("nodeName") or ""),
        created_at=parse_time(metadata.get("creationTimestamp")),
        evicted_at=_before(delete_by, grace),
        delete_by=delete_by,
        scheduled=None if scheduled is None else scheduled.get("status") == "True",
        scheduled_at=parse_time(_dict(scheduled).get("lastTransitionTime")),
        waiting=_waiting(status, scheduled, state),
        running="running" in state,
        running_since=parse_time(_dict(state.get("running")).get("startedAt")),
        ready=conditions["Ready"].get("status") == "True" if "Ready" in conditions else None,
        exit=_exit(state, _dict(runner.get("lastState"))),
        goes_on=any("terminated" not in _dict(container.get("state")) for container in containers),
        reason=str(status.get("reason") or ""),
        message=str(status.get("message") or ""),
        disruption=str(disruption.get("reason") or "Disrupted") if disruption.get("status") == "True" else "",
        init_failed=_init_failed(_dicts(status.get("initContainerStatuses")), _sidecars(spec)),
        image=str(_dict(metadata.get("annotations")).get(IMAGE_ANNOTATION, "")),
    )


def parse_node(body: Mapping[str, Any]) -> Node:
    """A node from the API server. No condition Ready counts as not ready."""
    status = _dict(body.get("status"))
    ready = next((c for c in _dicts(status.get("conditions")) if c.get("type") == "Ready"), {})
    return Node(
        name=str(_dict(body.get("metadata")).get("name", "")),
        ready=ready.get("status") == "True",
        since=parse_time(ready.get("lastTransitionTime")),
    )


def _waiting(
    status: Mapping[str, Any], scheduled: Mapping[str, Any] | None, runner: Mapping[str, Any]
) -> Waiting | None:
    """The first thing that keeps the runner from starting, in the order in which pods start."""
    if scheduled is not None and scheduled.get("status") != "True":
        return Waiting(
            reason=str(scheduled.get("reason") or "Unschedulable"),
            message=str(scheduled.get("message") or ""),
        )
    for container in _dicts(status.get("initContainerStatuses")):
        found = _dict(_dict(container.get("state")).get("waiting"))
        if found and found.get("reason") not in ("PodInitializing", None, ""):
            return Waiting(reason=str(found["reason"]), message=str(found.get("message") or ""))
    found = _dict(runner.get("waiting"))
    if not found:
        return None
    return Waiting(reason=str(found.get("reason") or ""), message=str(found.get("message") or ""))


def _exit(state: Mapping[str, Any], last: Mapping[str, Any]) -> Exit | None:
    ended = _dict(state.get("terminated"))
    if not ended and "waiting" in state:
        # A node that was lost leaves this behind: waiting, with the end in the past.
        ended = _dict(last.get("terminated"))
        if ended.get("reason") != "ContainerStatusUnknown":
            ended = {}
    if not ended:
        return None
    words, words_reason = _last_words(str(ended.get("message") or ""))
    code = ended.get("exitCode")
    return Exit(
        code=code if isinstance(code, int) else -1,
        reason=str(ended.get("reason") or ""),
        words=words,
        words_reason=words_reason,
    )


def _last_words(text: str) -> tuple[str, str]:
    """The message and the reason in what the runner wrote as it ended (JSON, or any text)."""
    try:
        value = json.loads(text)
    except ValueError:
        return text, ""
    if not isinstance(value, dict):
        return text, ""
    return str(value.get("message") or ""), str(value.get("reason") or "")


def _sidecars(spec: Mapping[str, Any]) -> set[str]:
    """Init containers that are started again when they end: how they end decides nothing."""
    listed = _dicts(spec.get("initContainers"))
    return {str(one.get("name")) for one in listed if one.get("restartPolicy") == "Always"}


def _init_failed(statuses: Iterable[Mapping[str, Any]], sidecars: set[str]) -> str:
    """What became of the first init container that failed."""
    for status in statuses:
        ended = _dict(_dict(status.get("state")).get("terminated"))
        if ended and str(status.get("name")) not in sidecars and ended.get("exitCode") != 0:
            return f"init container {status.get('name')} ended with exit code {ended.get('exitCode')}"
    return ""


def _before(at: datetime | None, grace: object) -> datetime | None:
    if at is None or not isinstance(grace, int | float) or at.timestamp() <= grace:
        return at
    return datetime.fromtimestamp(at.timestamp() - grace, UTC)


def parse_time(value: object) -> datetime | None:
    """An RFC 3339 time; None for what is none, or is the year 1 that Go writes for no time."""
    if not isinstance(value, str):
        return None
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        return None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return time if time.year > 1 else None


def _named(statuses: Iterable[Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    return next((status for status in statuses if status.get("name") == name), {})


def _dict(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _dicts(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
