"""Gathers what is known of a run: reads of the API server and of the store.

Who calls: the reconciler, before each plan. What holds: decisions come from these
reads and never from what an event said; where the pod has ended, the store is read
after it, so that whatever its runner wrote is seen; a store that cannot be read is a
fact like any other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from agentrun.log.asks import is_answered, waiting
from agentrun.log.errors import CorruptLog, LogError
from agentrun.log.replay import History, decode
from agentrun.log.store import AttemptOutcome, LogStore
from agentrun.log.summary import phase_of, summarize
from agentrun_operator.answers import unanswered
from agentrun_operator.endings import DRAINED, split_note
from agentrun_operator.facts import Final, Key, Memory, Observation, RunObject
from agentrun_operator.kube import Kube, KubeError
from agentrun_operator.objects import Objects
from agentrun_operator.pods import Node, Pod, Waiting, parse_node, parse_pod
from agentrun_operator.processes import is_pods, parse_process
from agentrun_operator.settings import Settings

STUCK_SECONDS = 20.0
"""A pod that has not started after this says why in its Events, if anywhere."""

SILENT_SECONDS = 30.0
"""A runner that has not confirmed itself for so long may sit on a lost node."""

_TROUBLES = frozenset({"FailedMount", "FailedCreatePodSandBox", "FailedAttachVolume"})


class Observer:
    """See the module's docstring."""

    def __init__(self, kube: Kube, store: LogStore, settings: Settings) -> None:
        self._kube = kube
        self._store = store
        self._settings = settings
        self.objects = Objects()

    async def object_of(self, key: Key) -> RunObject | None:
        """The object as it is now, or None."""
        body = await self._kube.get_run(key.namespace, key.name)
        return None if body is None else self.objects.parse(body)

    async def of_object(self, found: RunObject, memory: Memory) -> Observation:
        """What is known of an object's run."""
        base = Observation(
            object=found, now=datetime.now(UTC), memory=memory, installation=self._settings.installation
        )
        if found.run is None:
            return base
        return await self._with_run(base, found.run_id)

    async def of_orphan(self, key: Key, run_id: UUID, memory: Memory) -> Observation:
        """What is known of a run whose object is gone."""
        base = Observation(now=datetime.now(UTC), memory=memory, installation=self._settings.installation)
        return await self._with_run(base, run_id, key)

    async def _with_run(self, base: Observation, run_id: UUID, key: Key | None = None) -> Observation:
        try:
            o = await self._from_store(base, run_id)
        except LogError as error:
            return replace(base, store_problem=str(error))
        key = base.object.key if base.object is not None else key
        assert key is not None
        o = await self._with_pod(o, key)
        if o.pod is not None and o.pod.runner_ended and o.last is not None and o.last.outcome is None:
            try:  # what its runner wrote last may be newer than what was read before the pod
                return replace(await self._from_store(o, run_id), pod=o.pod)
            except LogError as error:
                return replace(base, store_problem=str(error))
        return o

    # --- the store

    async def _from_store(self, base: Observation, run_id: UUID) -> Observation:
        info = await self._store.get_run(run_id)
        if info is None:
            return replace(base, info=None)
        attempts = []
        if info.run.attempt > 1:
            attempts = await self._store.attempts(run_id)
        elif info.last_attempt is not None:
            attempts = [info.last_attempt]
        o = replace(
            base,
            info=info,
            now=info.read_at or base.now,
            attempts=tuple(attempts),
            summary=_summary(info.summary),
        )
        if info.run.ended:
            return await self._with_final(o, run_id)
        return await self._with_answers(o, run_id)

    async def _with_final(self, o: Observation, run_id: UUID) -> Observation:
        """The final record, from the end of the log; the whole log where the projection lags behind."""
        try:
            look = await self._store.look(run_id, attempt=0)
            assert look is not None
            rows = await self._store.read_rows(run_id, after=max(0, look.head - 1), limit=1)
            record = decode(run_id, *rows[0]) if rows else None
            whole = o.summary.get("head") == look.head and "phase" in o.summary
            if record is None or not record.HasField("final") or not whole:
                history = History(run_id)
                history.fold_rows(await self._store.read_rows(run_id))
                record = history.final
                if record is not None:
                    phase = phase_of(record.final.outcome)
                    kept = {"result": o.summary["result"]} if "result" in o.summary else {}
                    o = replace(o, summary=summarize(history, phase=phase) | kept)
        except CorruptLog as error:
            return replace(o, corrupt=str(error))
        if record is None:
            return o
        final = Final(
            phase=phase_of(record.final.outcome),
            reason=record.final.reason or phase_of(record.final.outcome).value,
            message=record.final.message,
            attempt=record.attempt,
        )
        return replace(o, final=final)

    def _waits_for_input(self, o: Observation) -> bool:
        last = o.last
        if last is None or last.outcome is not AttemptOutcome.PAUSED:
            return False
        return split_note(last.reason)[0] not in DRAINED | {"Suspended", "BudgetExceeded"}

    async def _with_answers(self, o: Observation, run_id: UUID) -> Observation:
        """What people have answered; the log is read only where it decides what follows."""
        assert o.info is not None
        rows = await self._store.inbox(run_id) if o.info.inbox else []
        said = unanswered(o.object.said, rows) if o.object is not None else []
        if not ((rows and self._waits_for_input(o)) or (said and waits_for_people(o.summary))):
            return replace(o, answers=tuple(rows))
        history = History(run_id)
        history.fold_rows(await self._store.read_rows(run_id))
        waits = is_answered(history, rows)
        return replace(
            o, answers=tuple(rows), asks=tuple(ask.id for ask in waiting(history)), input_waits=waits
        )

    # --- the cluster

    async def _with_pod(self, o: Observation, key: Key) -> Observation:
        rows = [row for row in o.attempts if is_pods(row)]
        name = parse_process(rows[-1].process).pod if rows else ""
        if not name or o.info is None or (o.memory.refused and o.memory.refused.attempt == rows[-1].attempt):
            return o
        body = await self._kube.get_pod(key.namespace, name)
        if body is None or not is_pod_of(body, o.info.run.run_id):
            return o
        pod = parse_pod(body)
        return replace(
            o,
            pod=pod,
            node=await self._node_of(pod, rows[-1].confirmed_age_seconds),
            pod_trouble=await self._trouble_of(key.namespace, pod, o),
            outdated=self._is_outdated(pod, o),
        )

    async def _node_of(self, pod: Pod, silent_seconds: float) -> Node | None:
        """The node, where there is reason to ask: None, and nothing is known to be wrong with it."""
        unready = pod.running and pod.ready is False
        suspect = pod.terminating or unready or silent_seconds > SILENT_SECONDS
        if not pod.node or pod.runner_ended or not suspect:
            return None
        try:
            body = await self._kube.get_node(pod.node)
        except KubeError as error:
            if error.status != 403:
                raise
            return None  # an installation may leave this right out: then a pod's grace decides
        return Node(name=pod.node, ready=False) if body is None else parse_node(body)

    async def _trouble_of(self, namespace: str, pod: Pod, o: Observation) -> Waiting | None:
        ordinary = pod.waiting is None or pod.waiting.reason in ("", "ContainerCreating", "PodInitializing")
        stuck = not pod.running and not pod.runner_ended and pod.scheduled is True and ordinary
        if not stuck or o.seconds_since(pod.created_at) < STUCK_SECONDS:
            return None
        try:
            events = await self._kube.events_of(namespace, pod.uid)
        except KubeError as error:
            if error.status != 403:
                raise
            return None
        found = [event for event in events if event.get("reason") in _TROUBLES]
        if not found:
            return None
        newest = max(found, key=lambda e: str(e.get("lastTimestamp") or e.get("eventTime") or ""))
        return Waiting(reason=str(newest["reason"]), message=str(newest.get("message") or ""))

    def _is_outdated(self, pod: Pod, o: Observation) -> bool:
        if o.object is None or o.object.run is None or not pod.image:
            return False
        return pod.image != self.objects.image_of(o.object, self._settings.pods)


def is_pod_of(body: Mapping[str, Any], run_id: UUID) -> bool:
    """The pod is the run's: by what its runner was told, which no webhook changes."""
    spec = body.get("spec")
    containers = spec.get("containers") if isinstance(spec, Mapping) else None
    for container in containers or []:
        for variable in container.get("env") or []:
            if variable.get("name") == "AGENTRUN_RUN_ID" and variable.get("value") == str(run_id):
                return True
    return False


def waits_for_people(summary: Mapping[str, Any]) -> bool:
    """Some call waits for an answer, as far as the projection knows."""
    found = summary.get("waiting")
    return isinstance(found, Mapping) and bool(found.get("count"))


def _summary(text: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text) if text else {}
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
