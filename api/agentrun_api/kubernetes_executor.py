"""Runs carried out by the cluster: each is an AgentRun object, which the operator reconciles.

Who calls: the app. What holds: what is wanted of a run is written into its object and nowhere else;
the run's row is made here exactly as the operator would make it, so that a run can be watched from
the moment that it is begun, and whoever comes second changes nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from hashlib import sha256
from typing import Any, Protocol
from uuid import UUID

from agentrun.local.holders import Standing, holder
from agentrun.local.levels import first_levels
from agentrun.local.process import this_machine
from agentrun.local.views import phase_now
from agentrun.log.store import LogStore, RunInfo, RunRow
from agentrun.log.summary import Phase
from agentrun.spec import AgentRun, ManifestError, definition_bytes, definition_digest, parse_object
from agentrun_api.executor import Signal, Stand, Started, StartRefused
from agentrun_api.kube import KubeError, KubeUnavailable

NAME_SUFFIX_CHARACTERS = 10
REFUSED = "RefusedByCluster"
SETTLED = frozenset({Phase.PAUSED, Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED})
WAIT_SECONDS = 0.5

Body = dict[str, Any]


class Objects(Protocol):
    """What of the cluster is used; `kube.Kube` is it."""

    async def create_run(self, namespace: str, body: Body) -> Body: ...

    async def get_run(self, namespace: str, name: str) -> Body | None: ...

    async def patch_run(self, namespace: str, name: str, patch: Body) -> Body: ...


class KubernetesRunExecutor:
    """See the module's docstring. `installation` is the operator's; `default_namespace` is that of
    manifests that name none."""

    def __init__(self, store: LogStore, kube: Objects, *, installation: str, default_namespace: str) -> None:
        self._store = store
        self._kube = kube
        self._installation = installation
        self._default_namespace = default_namespace
        self._machine = this_machine()

    async def start(self, manifest: AgentRun, *, key: str = "") -> Started:
        namespace = self.namespace(manifest)
        body = manifest.model_dump(mode="json", by_alias=True, exclude_unset=True)
        body["metadata"] = {**body["metadata"], "namespace": namespace}
        if key and "name" not in body["metadata"]:
            prefix = str(body["metadata"].pop("generateName", ""))
            body["metadata"]["name"] = prefix + sha256(key.encode()).hexdigest()[:NAME_SUFFIX_CHARACTERS]
        try:
            made, created = await self._made(namespace, body)
        except KubeUnavailable as error:
            raise StartRefused("ClusterUnavailable", str(error)) from error
        except KubeError as error:
            raise StartRefused(REFUSED, str(error)) from error
        return Started(run_id=await self._row(namespace, made), created=created)

    async def _made(self, namespace: str, body: Body) -> tuple[Body, bool]:
        try:
            return await self._kube.create_run(namespace, body), True
        except KubeError as error:
            if error.status != 409 or "name" not in body["metadata"]:
                raise
        name = body["metadata"]["name"]
        found = await self._kube.get_run(namespace, name)
        if found is None or _digest(found) != _digest(body):
            raise StartRefused("Conflict", f"{namespace}/{name} is there already, with another spec")
        return found, False

    async def _row(self, namespace: str, made: Body) -> UUID:
        """Makes the run's row, as the operator would."""
        run, metadata = parse_object(made), made["metadata"]
        run_id = run.spec.run_id or UUID(metadata["uid"])
        definition = definition_bytes(run)
        await self._store.create_run(
            RunRow(
                run_id=run_id,
                owner=f"{self._installation}/{namespace}/{metadata['name']}/{metadata['uid']}",
                name=f"{namespace}/{metadata['name']}",
                definition=definition,
                digest=definition_digest(definition),
                levels=replace(first_levels(run.spec), generation=0),
            )
        )
        return run_id

    async def signal(self, run: RunRow, signal: Signal) -> None:
        parts = run.owner.split("/")
        if len(parts) != 4 or parts[0] != self._installation:
            raise StartRefused("OwnedElsewhere", f"run {run.run_id} belongs to {run.owner}: change it there")
        _, namespace, name, uid = parts
        wanted: Body = {}
        if signal.suspend is not None:
            wanted["suspend"] = signal.suspend
        if signal.shutdown and run.levels.shutdown_how != "Terminate":  # which nothing takes back
            wanted["shutdown"] = signal.shutdown
        if signal.budget:
            wanted["budget"] = dict(signal.budget)
        if not wanted:
            return
        try:
            await self._kube.patch_run(namespace, name, {"metadata": {"uid": uid}, "spec": wanted})
        except KubeUnavailable as error:
            raise StartRefused("ClusterUnavailable", str(error)) from error
        except KubeError as error:
            if error.status in (404, 409):
                raise StartRefused("Gone", f"the object of run {run.run_id} is gone") from error
            raise StartRefused(REFUSED, str(error)) from error

    async def wait(self, run_id: UUID) -> Stand:
        while True:
            info = await self._store.get_run(run_id)
            if info is None:
                raise KeyError(run_id)
            stand, current = await self._told(info)
            if current and stand.phase in SETTLED:
                return stand
            await asyncio.sleep(WAIT_SECONDS)

    async def look(self, info: RunInfo) -> Stand:
        """As the object's status has it, which knows of pods too."""
        return (await self._told(info))[0]

    async def _told(self, info: RunInfo) -> tuple[Stand, bool]:
        """How the run stands, and whether that is of what is wanted now."""
        parts = info.run.owner.split("/")
        if info.run.ended or len(parts) != 4:
            return self.stand(info), True
        try:
            found = await self._kube.get_run(parts[1], parts[2]) or {}
        except (KubeError, KubeUnavailable):
            return self.stand(info), False
        status, metadata = found.get("status") or {}, found.get("metadata") or {}
        if status.get("phase") not in set(Phase):
            return Stand(phase=Phase.PENDING), False
        stand = Stand(
            phase=Phase(status["phase"]),
            reason=str(status.get("reason") or ""),
            message=str(status.get("message") or ""),
        )
        return stand, status.get("observedGeneration") == metadata.get("generation")

    def namespace(self, manifest: AgentRun) -> str:
        return manifest.metadata.namespace or self._default_namespace

    def owner_prefix(self, namespace: str) -> str:
        return f"{self._installation}/" + (f"{namespace}/" if namespace else "")

    def stand(self, info: RunInfo) -> Stand:
        who = holder(info.last_attempt, self._machine)
        if who.standing is Standing.LIVE and who.attempt is not None and not who.attempt.claimed:
            return Stand(phase=Phase.PENDING, reason="Starting")
        phase, reason, message = phase_now(info, who)
        return Stand(phase=phase, reason=reason, message=message)

    async def run(self) -> None:
        """The operator carries runs out."""
        await asyncio.Event().wait()


def _digest(body: Body) -> str:
    try:
        return definition_digest(definition_bytes(parse_object(body)))
    except ManifestError:
        return ""
