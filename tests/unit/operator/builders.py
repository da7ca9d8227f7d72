"""Observations for tables of tests: each says only what differs from an ordinary run.

The clock of all of them is `NOW`; times are given as seconds before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from agentrun.log.store import AttemptOutcome, AttemptRow, Levels, RunInfo, RunRow
from agentrun.log.summary import Phase
from agentrun.spec import definition_bytes, definition_digest
from agentrun_operator.facts import Final, Memory, Observation, Refused, RunObject
from agentrun_operator.objects import Objects
from agentrun_operator.pods import Node, Pod, parse_pod
from agentrun_operator.podspec import PodSettings
from agentrun_operator.processes import Process
from agentrun_operator.refusals import Refusal
from agentrun_operator.settings import Settings

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
UID = "0b0e6a52-6f0f-4a8e-9f53-0b7c5a3f5e11"
RUN = UUID(UID)
SETTINGS = Settings(database_url="postgresql://nowhere/", pods=PodSettings(image="runner:1"))
OUTCOME = AttemptOutcome


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def stamp(seconds: float) -> str:
    """A time of the API server, so many seconds before NOW."""
    return ago(seconds).strftime("%Y-%m-%dT%H:%M:%SZ")


def body(
    *, metadata: Mapping[str, Any] | None = None, status: Mapping[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    """An AgentRun of the API server."""
    model = {"name": "scripted:hello", "script": {"turns": [{"text": "hello"}]}}
    return {
        "apiVersion": "agentrun.dev/v1alpha1",
        "kind": "AgentRun",
        "metadata": {
            "name": "hello",
            "namespace": "demo",
            "uid": UID,
            "generation": 1,
            "resourceVersion": "7",
            "creationTimestamp": stamp(3600),
            **(metadata or {}),
        },
        "spec": {"prompt": "say hello", "agent": {"model": model}, **spec},
        "status": dict(status or {}),
    }


def found(**changes: Any) -> RunObject:
    return Objects().parse(body(**changes))


def attempt(
    number: int = 1,
    outcome: AttemptOutcome | None = None,
    reason: str = "",
    *,
    claimed: bool = True,
    started: float = 600,
    ended: float = 0,
    silent: float = 1,
    generation: int = 0,
    ends: bool = False,
) -> AttemptRow:
    """A row of run_attempt; `started` and `ended` in seconds before NOW."""
    process = Process(operator="op", pod=f"hello-{number}", generation=generation, ends=ends)
    return AttemptRow(
        attempt=number,
        process=process.to_json(),
        confirmed_age_seconds=silent,
        claimed=claimed,
        outcome=outcome,
        reason=reason,
        started_at=ago(started),
        ended_at=ago(ended) if outcome is not None else None,
    )


def pod(
    *,
    phase: str = "Running",
    exit_code: int | None = None,
    exit_reason: str = "",
    words: str = "",
    disruption: str = "",
    reason: str = "",
    evicted: float | None = None,
    grace: int = 30,
    node: str = "node-1",
    waiting: tuple[str, str] | None = None,
    scheduled: bool | None = True,
    created: float = 600,
    sidecar: bool = True,
    **more: Any,
) -> Pod:
    """A pod as the API server would give it. `evicted`: deleted so many seconds before NOW."""
    state: dict[str, Any] = {"running": {}} if phase == "Running" else {}
    if exit_code is not None:
        state = {"terminated": {"exitCode": exit_code, "reason": exit_reason or "Error", "message": words}}
    if waiting is not None:
        state = {"waiting": {"reason": waiting[0], "message": waiting[1]}}
    metadata: dict[str, Any] = {
        "name": "hello-1",
        "uid": "pod-uid",
        "creationTimestamp": stamp(created),
        "annotations": {"agentrun.dev/image": "runner:1"},
    }
    if evicted is not None:
        metadata |= {"deletionTimestamp": stamp(evicted - grace), "deletionGracePeriodSeconds": grace}
    conditions = []
    if scheduled is not None:
        conditions.append({"type": "PodScheduled", "status": "True" if scheduled else "False"})
    if disruption:
        conditions.append({"type": "DisruptionTarget", "status": "True", "reason": disruption})
    status: dict[str, Any] = {"phase": phase, "conditions": conditions, **more}
    if state:
        beside = [{"name": "proxy", "state": {"running": {}}}] if sidecar else []
        status["containerStatuses"] = [*beside, {"name": "runner", "state": state}]
    if reason:
        status["reason"] = reason
    return parse_pod({"metadata": metadata, "spec": {"nodeName": node}, "status": status})


def lost_node(since: float = 100) -> Node:
    return Node(name="node-1", ready=False, since=ago(since))


def observed(
    object_: RunObject | None = None,
    *,
    attempts: tuple[AttemptRow, ...] = (),
    no_run: bool = False,
    ended: Phase | None = None,
    ended_ago: float = 60,
    final_reason: str = "Completed",
    levels: Levels | None = None,
    owner: str = "",
    definition: bytes = b"",
    memory: Memory | None = None,
    attempt_number: int | None = None,
    gone: bool = False,
    run_id: UUID = RUN,
    **more: Any,
) -> Observation:
    """An observation whose store agrees with the object, but for what is given."""
    object_ = object_ or found()
    base = Observation(
        object=None if gone else object_, now=NOW, memory=memory or Memory(identity="me"), **more
    )
    if no_run:
        return base
    assert object_.run is not None
    definition = definition or definition_bytes(object_.run)
    number = attempt_number if attempt_number is not None else (attempts[-1].attempt if attempts else 0)
    run = RunRow(
        run_id=run_id,
        owner=owner or f"agentrun/demo/hello/{UID}",
        name="demo/hello",
        definition=definition,
        digest=definition_digest(definition),
        levels=levels or object_.levels(),
        epoch=len(attempts),
        attempt=number,
        ended=ended is not None,
        created_at=ago(3600),
        ended_at=ago(ended_ago) if ended else None,
    )
    info = RunInfo(run=run, last_attempt=attempts[-1] if attempts else None, read_at=NOW)
    final = None
    if ended is not None:
        final = Final(phase=ended, reason=final_reason, attempt=number)
    return replace(base, info=info, attempts=attempts, final=final)


def refused(
    number: int, reason: str = "ExceededQuota", retry_in: float = 5.0, message: str = "exceeded quota: q"
) -> Memory:
    refusal = Refusal(reason=reason, message=message)
    return Memory(identity="me", refused=Refused(attempt=number, refusal=refusal, retry_in=retry_in))
