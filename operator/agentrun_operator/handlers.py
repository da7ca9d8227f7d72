"""What Kopf tells: events that wake, and nothing else.

Who calls: Kopf. What holds: handlers only put keys into the queue and return nothing;
Kopf writes nothing on anybody's object (no finalizer, no annotation, no status, no
Event), for there are no handlers that would make it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import kopf

from agentrun_operator.facts import Key
from agentrun_operator.memories import Memories
from agentrun_operator.objects import key_of, run_id_of
from agentrun_operator.podspec import POD_SELECTOR
from agentrun_operator.queue import WorkQueue
from agentrun_operator.settings import Settings
from agentrun_operator.watching import WatchProbe

GROUP, VERSION, PLURAL = "agentrun.dev", "v1alpha1", "agentruns"
KIND = "AgentRun"
FORBIDDEN_SECONDS = 300
"""How long a refused or failing list or watch is tried again before the process ends, to be restarted."""


class Handlers:
    """See the module's docstring."""

    def __init__(self, queue: WorkQueue[Key], memories: Memories, probe: WatchProbe) -> None:
        self._queue = queue
        self._memories = memories
        self._probe = probe

    def registry(self) -> kopf.OperatorRegistry:
        """With the two event handlers and the login."""
        registry = kopf.OperatorRegistry()
        kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)(self.on_run)
        kopf.on.event("", "v1", "pods", registry=registry)(self.on_pod)
        kopf.on.login(registry=registry)(login)
        return registry

    async def on_run(self, event: Mapping[str, Any], **_: Any) -> None:
        """An AgentRun is there, changed, or went."""
        body = event.get("object") or {}
        metadata = body.get("metadata") or {}
        uid, version = str(metadata.get("uid", "")), str(metadata.get("resourceVersion", ""))
        gone = event.get("type") == "DELETED"
        self._probe.told("agentruns", uid, version, gone=gone)
        key = key_of(body)
        if gone and (run_id := run_id_of(body)) is not None:
            self._memories.of(key).suspect(run_id)
        memory = self._memories.get(key)
        if not gone and memory is not None and version in filter(None, (memory.told_version, memory.seen[0])):
            return  # our own write, or what was looked at: a watch that begins anew tells of everything
        self._queue.add(key)

    async def on_pod(self, event: Mapping[str, Any], **_: Any) -> None:
        """A runner pod is there, changed, or went."""
        body = event.get("object") or {}
        metadata = body.get("metadata") or {}
        gone = event.get("type") == "DELETED"
        uid, version = str(metadata.get("uid", "")), str(metadata.get("resourceVersion", ""))
        self._probe.told("pods", uid, version, gone=gone)
        for owner in metadata.get("ownerReferences") or []:
            if owner.get("kind") == KIND and str(owner.get("apiVersion", "")).startswith(f"{GROUP}/"):
                key = Key(namespace=str(metadata.get("namespace", "")), name=str(owner.get("name", "")))
                memory = self._memories.get(key)
                if not gone and memory is not None and version == memory.seen[1] != "":
                    continue
                self._queue.add(key)


def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
    """By the service account of this pod, else by the kubeconfig."""
    return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)


def kopf_settings(settings: Settings) -> kopf.OperatorSettings:
    """Kopf watches, with bounds in time; everything else that it can do is off."""
    made = kopf.OperatorSettings()
    made.posting.enabled = False
    made.scanning.disabled = True
    made.peering.standalone = True
    made.watching.server_timeout = int(settings.watch_timeout)  # the API server takes whole seconds
    made.watching.client_timeout = settings.watch_timeout + 15.0
    made.watching.connect_timeout = settings.request_timeout
    made.watching.inactivity_timeout = settings.watch_inactivity
    made.watching.reconnect_backoff = 0.5
    made.watching.chunk_size = 250
    made.watching.label_selectors["pods"] = POD_SELECTOR
    made.networking.request_timeout = settings.request_timeout * 3
    made.networking.connect_timeout = settings.request_timeout
    made.networking.error_backoffs = [1, 2, 3, 5, *[10] * (FORBIDDEN_SECONDS // 10)]
    made.queueing.worker_limit = None
    made.queueing.idle_timeout = 1.0
    made.queueing.exit_timeout = 0.5
    made.process.ultimate_exiting_timeout = None
    logging.getLogger("kopf").setLevel(logging.WARNING)
    return made
