"""A look at everything, once a minute: what no event has told is found here.

Who calls: the app. What holds: the store is read first and the objects second, so that
a run whose object is missing was there before the objects were listed; each missing
object is asked for by name before anything is done; runs of others (another
installation, the command) are never touched.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from agentrun.log.errors import LogError
from agentrun.log.store import LogStore, Standing
from agentrun_operator.facts import Key, parse_owner
from agentrun_operator.hints import differs
from agentrun_operator.kube import Kube, KubeError, KubeUnavailable
from agentrun_operator.memories import Memories
from agentrun_operator.metrics import Metrics
from agentrun_operator.objects import key_of
from agentrun_operator.plan import is_terminal
from agentrun_operator.plan_orphan import is_parked_for_good
from agentrun_operator.podspec import POD_SELECTOR
from agentrun_operator.queue import WorkQueue
from agentrun_operator.settings import Settings
from agentrun_operator.watching import WatchProbe

log = logging.getLogger(__name__)

SPREAD_SECONDS = 10.0
"""What is found is looked at within so many seconds, not all at once."""


class Sweep:
    """See the module's docstring."""

    def __init__(
        self,
        kube: Kube,
        store: LogStore,
        settings: Settings,
        *,
        queue: WorkQueue[Key],
        memories: Memories,
        metrics: Metrics,
        probe: WatchProbe,
    ) -> None:
        self._kube = kube
        self._store = store
        self._settings = settings
        self._queue = queue
        self._memories = memories
        self._metrics = metrics
        self._probe = probe
        self.problem = ""
        """Why the last one could not be finished; "": it was."""

    async def run(self) -> bool:
        """One sweep; False: it could not be finished."""
        try:
            await self._run()
        except (LogError, KubeError, KubeUnavailable) as error:
            self.problem = str(error)
            self._metrics.sweeps.labels("failed").inc()
            log.warning("a sweep could not be finished: %s", error)
            return False
        self.problem = ""
        self._metrics.sweeps.labels("done").inc()
        self._metrics.swept_at.set_to_current_time()
        return True

    async def _run(self) -> None:
        live = {standing.run_id: standing for standing in await self._store.live_runs(self._prefix)}
        pods = await self._pods()
        uids: set[str] = set()
        phases, versions, found, unknown = [], {}, [], 0
        for namespace in self._settings.namespaces or ("",):
            async for body in self._kube.list_runs(namespace):
                metadata, status = body.get("metadata") or {}, body.get("status") or {}
                uid = str(metadata.get("uid", ""))
                uids.add(uid)
                versions[uid] = str(metadata.get("resourceVersion", ""))
                phases.append(str(status.get("phase") or "Pending"))
                key = key_of(body)
                if self._is_news(body, live, pods):
                    found.append(key)
                    unknown += key not in self._queue
        self._metrics.phases(phases)
        self._probe.listed("agentruns", versions)
        self._probe.listed("pods", dict(pods.values()))
        for number, key in enumerate(found):
            self._queue.add(key, SPREAD_SECONDS * number / max(1, len(found)))
        self._metrics.found.inc(unknown)
        for standing in live.values():
            await self._check_owner(standing, uids)
        for key in self._memories.keys():  # noqa: SIM118 (no mapping)
            memory = self._memories.get(key)
            if memory is not None and memory.seen[0] and memory.uid not in uids:
                self._queue.add(key)

    @property
    def _prefix(self) -> str:
        return self._settings.owner_prefix

    async def _pods(self) -> dict[tuple[str, str], tuple[str, str]]:
        """Namespace and name of each runner pod → its uid and version."""
        found = {}
        for namespace in self._settings.namespaces or ("",):
            async for body in self._kube.list_pods(POD_SELECTOR, namespace):
                metadata = body.get("metadata") or {}
                place = (str(metadata.get("namespace", "")), str(metadata.get("name", "")))
                found[place] = (str(metadata.get("uid", "")), str(metadata.get("resourceVersion", "")))
        return found

    def _is_news(
        self,
        body: Mapping[str, Any],
        live: Mapping[UUID, Standing],
        pods: Mapping[tuple[str, str], tuple[str, str]],
    ) -> bool:
        """The object, its pod or its run is not as it was seen at the last look."""
        metadata, status = body.get("metadata") or {}, body.get("status") or {}
        memory = self._memories.get(key_of(body))
        if memory is None or memory.run_id is None:
            return True
        version, pod_version, standing = memory.seen
        if version != metadata.get("resourceVersion"):
            return True
        now = live.get(memory.run_id)
        if now is None:
            return not is_terminal(status) or (standing is not None and not standing.ended)
        if differs(standing, now):
            return True
        name = str((status.get("pod") or {}).get("name") or "")
        there = pods.get((str(metadata.get("namespace", "")), name))
        return name != "" and (there[1] if there is not None else "") != pod_version

    async def _check_owner(self, standing: Standing, uids: set[str]) -> None:
        """A live run whose object was not listed: is it gone?"""
        owner = parse_owner(standing.owner)
        if owner is None or owner.uid in uids or not self._serves(owner.namespace):
            return
        settled = standing.outcome is not None or standing.attempt == 0
        if settled and is_parked_for_good(
            suspend=standing.suspend, run_id=standing.run_id, owner=standing.owner
        ):
            return
        body = await self._kube.get_run(owner.namespace, owner.name)
        if body is not None and str((body.get("metadata") or {}).get("uid", "")) == owner.uid:
            return
        log.info("%s: the object of run %s is gone", owner.key, standing.run_id)
        self._memories.of(owner.key).suspect(standing.run_id)
        self._queue.add(owner.key)

    def _serves(self, namespace: str) -> bool:
        return not self._settings.namespaces or namespace in self._settings.namespaces
