"""Does what a plan asks for.

Who calls: the reconciler, for one key at a time. What holds: every action says what it
expects and does nothing where that is so no more; an attempt is in the store before its
pod is in the cluster; what the API server refuses for good is remembered, not repeated.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from agentrun.log.appender import Appender
from agentrun.log.errors import LogError
from agentrun.log.store import AttemptOutcome, LogStore, RunRow
from agentrun.spec import API_VERSION, KIND, definition_bytes, definition_digest
from agentrun_operator import actions as do
from agentrun_operator.answers import row_of
from agentrun_operator.endings import NEVER_STARTED
from agentrun_operator.events import Told
from agentrun_operator.facts import Key, Observation, RunObject
from agentrun_operator.finish import CannotEnd, end_run, reopen
from agentrun_operator.kube import Kube, KubeError, KubeUnavailable
from agentrun_operator.memories import Remembered
from agentrun_operator.observe import is_pod_of
from agentrun_operator.plan import owner_of
from agentrun_operator.podspec import build_pod
from agentrun_operator.processes import Process
from agentrun_operator.refusals import Refusal, refusal_of
from agentrun_operator.settings import Settings

log = logging.getLogger(__name__)

CONFLICTS_MAX = 5
"""How often a pod is made again at once because its quota was being written."""

OUTAGE_SECONDS_MAX = 5.0
"""How long the end of one run waits for the store: others wait behind it."""

COMPONENT = "agentrun-operator"


@dataclass(frozen=True, kw_only=True)
class Context:
    """What the actions of one plan are about."""

    key: Key
    run_id: UUID
    o: Observation
    memory: Remembered

    @property
    def object(self) -> RunObject:
        """Actions on an object are planned only where there is one."""
        assert self.o.object is not None
        return self.o.object


class Applier:
    """See the module's docstring. `identity` names this process in attempts and Events."""

    def __init__(self, kube: Kube, store: LogStore, settings: Settings, identity: str) -> None:
        self._kube = kube
        self._store = store
        self._settings = settings
        self._identity = identity
        self._appender = Appender(store, outage_seconds_max=OUTAGE_SECONDS_MAX)

    async def apply(self, context: Context, actions: tuple[do.Action, ...]) -> None:
        """Does them in order. Raises KubeError, KubeUnavailable, LogError."""
        for action in actions:
            log.info("%s: %s", context.key, action)
            await self._do(context, action)

    async def _do(self, context: Context, action: do.Action) -> None:
        run_id, kube, store = context.run_id, self._kube, self._store
        match action:
            case do.CreateRun():
                await self._create_run(context)
            case do.Adopt():
                await store.adopt(
                    run_id,
                    owner=action.owner,
                    new_owner=str(owner_of(context.object, self._settings.installation)),
                    levels=context.object.levels(),
                )
            case do.SetLevels():
                await store.set_levels(run_id, action.levels)
                await store.notify([run_id])
            case do.PostAnswer():
                await store.post(run_id, row_of(action.said, str(context.key)))
                await store.notify([run_id])
            case do.StartAttempt():
                await self._start(context, action)
            case do.MakePod():
                await self._make_pod(context, action.attempt)
            case do.CloseAttempt():
                ending = action.ending
                await store.close_attempt(run_id, action.attempt, ending.outcome, ending.note)
            case do.DeletePod():
                await kube.delete_pod(context.key.namespace, action.name, uid=action.uid, grace=action.grace)
            case do.EndRun():
                await self._end(context, action)
            case do.Reopen():
                await reopen(store, context.o, action.token)
                context.memory.spent_token = action.token
            case do.DeleteObject():
                await kube.delete_run(context.key.namespace, context.key.name, uid=action.uid)

    async def _create_run(self, context: Context) -> None:
        found = context.object
        assert found.run is not None
        definition = definition_bytes(found.run)
        row = RunRow(
            run_id=context.run_id,
            owner=str(owner_of(found, self._settings.installation)),
            name=str(context.key),
            definition=definition,
            digest=definition_digest(definition),
            levels=found.levels(),
        )
        await self._store.create_run(row)

    async def _end(self, context: Context, action: do.EndRun) -> None:
        process = Process(operator=self._identity, ends=True).to_json()
        try:
            await end_run(self._store, self._appender, context.run_id, action, process)
        except CannotEnd as error:
            context.memory.corrupt = str(error)

    # --- pods

    async def _start(self, context: Context, action: do.StartAttempt) -> None:
        info, attempt = context.o.info, action.expected + 1
        assert info is not None
        process = Process(
            operator=self._identity,
            pod=self._pod(context, attempt)["metadata"]["name"],
            generation=info.run.levels.generation,
        )
        got = await self._store.allocate_attempt(
            context.run_id,
            expected=action.expected,
            process=process.to_json(),
            previous=AttemptOutcome.DISRUPTED,
        )
        if got == attempt:
            await self._make_pod(context, attempt)

    def _pod(self, context: Context, attempt: int) -> dict[str, Any]:
        found = context.object
        assert found.run is not None
        return build_pod(
            found.run,
            run_id=context.run_id,
            attempt=attempt,
            uid=found.uid,
            settings=self._settings.pods,
        )

    async def _make_pod(self, context: Context, attempt: int) -> None:
        body = self._pod(context, attempt)
        for number in range(1, CONFLICTS_MAX + 1):
            refusal = await self._try_pod(context, body, attempt)
            if refusal is None:
                return
            if refusal.retry != 0 or number == CONFLICTS_MAX:
                context.memory.refuse(attempt, refusal)
                return

    async def _try_pod(self, context: Context, body: Mapping[str, Any], attempt: int) -> Refusal | None:
        """Makes the pod; None: it is there, or can never be."""
        namespace, name = context.key.namespace, str(body["metadata"]["name"])
        try:
            await self._kube.create_pod(namespace, body)
        except KubeError as error:
            if error.status == 409 and '"AlreadyExists"' in error.body:
                await self._is_there(context, name, attempt)
                return None
            refusal = refusal_of(error.status, error.body, quota_retry=self._settings.times.quota_retry)
            if refusal is None:
                raise
            return refusal
        context.memory.made(attempt)
        await self.tell(context.object, Told(reason="PodCreated", message=f"attempt {attempt}: pod {name}"))
        return None

    async def _is_there(self, context: Context, name: str, attempt: int) -> None:
        """Somebody has made a pod of that name: another operator, this one, or a stranger."""
        found = await self._kube.get_pod(context.key.namespace, name)
        if found is None or is_pod_of(found, context.run_id):
            context.memory.made(attempt)
            return
        log.warning("%s: a pod %s that is not of this run is in the way", context.key, name)
        await self._store.close_attempt(
            context.run_id, attempt, AttemptOutcome.DISRUPTED, f"{NEVER_STARTED}: the pod's name is taken"
        )

    # --- Events

    async def tell(self, found: RunObject, told: Told) -> None:
        """Adds an Event about the object, where that can be done."""
        try:
            await self._kube.create_event(
                found.key.namespace, event_body(found, told, self._identity, datetime.now(UTC))
            )
        except (KubeError, KubeUnavailable) as error:
            log.debug("%s: an Event was not taken: %s", found.key, error)

    async def close(self) -> None:
        """Waits for what is being appended."""
        try:
            await self._appender.close()
        except LogError:
            pass


def event_body(found: RunObject, told: Told, instance: str, now: datetime) -> dict[str, Any]:
    """An Event of the core API."""
    time = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{found.key.name[:200].rstrip('.-')}.{uuid4().hex[:16]}",
            "namespace": found.key.namespace,
        },
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "namespace": found.key.namespace,
            "name": found.key.name,
            "uid": found.uid,
            "resourceVersion": found.resource_version,
        },
        "type": told.type,
        "reason": told.reason,
        "message": told.message,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": instance[:128],
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    }


def new_identity() -> str:
    """Of this process."""
    return f"{os.environ.get('HOSTNAME', 'operator')[:80]}-{uuid4().hex[:8]}"
