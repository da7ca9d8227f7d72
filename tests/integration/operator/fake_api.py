"""A Kubernetes API server in memory, as much of it as the operator and Kopf talk to.

It assigns uids, versions and generations, keeps status apart from spec, merges patches,
heeds preconditions, streams watches, gives pods their grace, and collects what a deleted
object owned. `faults` lets a test refuse, delay or cut requests; `writes` lists what was
written. Nothing runs in it: tests play the kubelet (`kubelet.py`).
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from aiohttp import web

Body = dict[str, Any]
Fault = Callable[[web.Request, Body], Awaitable[web.StreamResponse | None]]

KINDS = {"agentruns": "AgentRun", "pods": "Pod", "events": "Event", "nodes": "Node"}
CLUSTER_WIDE = {"nodes"}


@dataclass
class Write:
    """One write that was accepted."""

    verb: str
    resource: str
    name: str
    about: str
    body: Body


@dataclass
class FakeApi:
    """See the module's docstring."""

    objects: dict[str, dict[tuple[str, str], Body]] = field(
        default_factory=lambda: {resource: {} for resource in KINDS}
    )
    history: list[tuple[int, str, str, Body]] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    status_fields: set[str] | None = None
    """What the served CRD's status has; None: everything."""

    forgotten: int = 0
    """Versions up to this one are gone: a watch from there is answered with 410."""

    served: bool = True
    url: str = ""
    version: int = 0
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    # --- for tests

    def get(self, resource: str, name: str, namespace: str = "demo") -> Body | None:
        found = self.objects[resource].get(("" if resource in CLUSTER_WIDE else namespace, name))
        return copy.deepcopy(found)

    def all(self, resource: str) -> list[Body]:
        return [copy.deepcopy(body) for body in self.objects[resource].values()]

    def pods_of(self, name: str, namespace: str = "demo") -> list[Body]:
        return [
            pod
            for pod in self.all("pods")
            if pod["metadata"]["namespace"] == namespace
            and any(owner["name"] == name for owner in pod["metadata"].get("ownerReferences") or [])
        ]

    def events_about(self, name: str) -> list[Body]:
        return [e for e in self.all("events") if e["involvedObject"]["name"] == name]

    def writes_about(self, name: str) -> list[Write]:
        return [write for write in self.writes if write.about == name]

    def put(self, resource: str, body: Body) -> Body:
        """Makes an object, or replaces it, as its writer would through the API."""
        metadata = body.setdefault("metadata", {})
        if resource not in CLUSTER_WIDE:
            metadata.setdefault("namespace", "demo")
        if not metadata.get("name"):
            metadata["name"] = metadata["generateName"] + uuid4().hex[:5]
        place = (metadata.get("namespace", ""), metadata["name"])
        before = self.objects[resource].get(place)
        if before is None:
            metadata["uid"] = str(uuid4())
            metadata["creationTimestamp"] = _now()
            metadata["generation"] = 1
            body.pop("status", None) if resource == "agentruns" else None
        elif before.get("spec") != body.get("spec"):
            metadata["generation"] = before["metadata"]["generation"] + 1
        if resource == "pods":
            body.setdefault("status", {"phase": "Pending"})
        self._store(resource, place, "ADDED" if before is None else "MODIFIED", body)
        return copy.deepcopy(body)

    def edit(self, resource: str, name: str, change: Callable[[Body], None], namespace: str = "demo") -> Body:
        """Changes an object in place."""
        place = ("" if resource in CLUSTER_WIDE else namespace, name)
        body = copy.deepcopy(self.objects[resource][place])
        spec = copy.deepcopy(body.get("spec"))
        change(body)
        if body.get("spec") != spec:
            body["metadata"]["generation"] += 1
        self._store(resource, place, "MODIFIED", body)
        return copy.deepcopy(body)

    def remove(self, resource: str, name: str, namespace: str = "demo", grace: float | None = None) -> None:
        """Deletes as `kubectl delete` does: a pod on a node gets its grace, what was owned goes too."""
        place = ("" if resource in CLUSTER_WIDE else namespace, name)
        body = self.objects[resource][place]
        over = body.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if resource == "pods" and body["spec"].get("nodeName") and grace != 0 and not over:
            seconds = grace if grace is not None else body["spec"].get("terminationGracePeriodSeconds", 30)
            if "deletionTimestamp" not in body["metadata"]:
                body = copy.deepcopy(body)
                at = datetime.now(UTC) + timedelta(seconds=seconds)
                body["metadata"]["deletionTimestamp"] = at.strftime("%Y-%m-%dT%H:%M:%SZ")
                body["metadata"]["deletionGracePeriodSeconds"] = int(seconds)
                self._store(resource, place, "MODIFIED", body)
            return
        self.vanish(resource, name, namespace)

    def vanish(self, resource: str, name: str, namespace: str = "demo") -> None:
        """The object is gone now."""
        place = ("" if resource in CLUSTER_WIDE else namespace, name)
        body = self.objects[resource].pop(place)
        self._tell(resource, "DELETED", body)
        uid = body["metadata"]["uid"]
        for pod in list(self.objects["pods"].values()):
            if any(owner["uid"] == uid for owner in pod["metadata"].get("ownerReferences") or []):
                self.remove("pods", pod["metadata"]["name"], pod["metadata"]["namespace"])

    def _store(self, resource: str, place: tuple[str, str], kind: str, body: Body) -> None:
        body.setdefault("apiVersion", "agentrun.dev/v1alpha1" if resource == "agentruns" else "v1")
        body.setdefault("kind", KINDS[resource])
        self._tell(resource, kind, body)
        self.objects[resource][place] = body

    def _tell(self, resource: str, kind: str, body: Body) -> None:
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        self.history.append((self.version, resource, kind, copy.deepcopy(body)))
        news, self._news = self._news, asyncio.Event()
        news.set()

    # --- the wire

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[FakeApi]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        text = await request.text()
        body = json.loads(text) if text else {}
        for fault in list(self.faults):
            if (answer := await fault(request, body)) is not None:
                return answer
        parts = [part for part in request.path.split("/") if part]
        if (found := self._discovery(parts)) is not None:
            return web.json_response(found)
        parts = parts[3:] if parts[0] == "apis" else parts[2:]
        namespace = ""
        if parts[0] == "namespaces" and len(parts) > 2:
            namespace, parts = parts[1], parts[2:]
        resource, name = parts[0], parts[1] if len(parts) > 1 else ""
        if resource not in KINDS or (resource == "agentruns" and not self.served):
            return _status(404, "NotFound", "the server could not find the requested resource")
        if request.method == "GET" and request.query.get("watch"):
            with suppress(ConnectionResetError):  # who watched has gone
                return await self._watch(request, resource, namespace)
            return web.Response()
        return self._answer(request, resource, namespace, name, parts[2:] == ["status"], body)

    def _answer(
        self, request: web.Request, resource: str, namespace: str, name: str, status: bool, body: Body
    ) -> web.Response:
        if request.method == "GET" and not name:
            return self._list(request, resource, namespace)
        if request.method == "POST":
            return self._create(resource, namespace, body)
        found = self.objects[resource].get((namespace, name))
        if found is None:
            return _status(404, "NotFound", f'{resource} "{name}" not found')
        if request.method == "GET":
            return web.json_response(found)
        if request.method == "PATCH":
            return self._patch(resource, namespace, name, status, body)
        uid = (body.get("preconditions") or {}).get("uid")
        if uid is not None and uid != found["metadata"]["uid"]:
            return _status(409, "Conflict", "the UID in the precondition does not match")
        self._wrote("delete", resource, found, body)
        self.remove(resource, name, namespace, body.get("gracePeriodSeconds"))
        return web.json_response({"kind": "Status", "status": "Success"})

    def _create(self, resource: str, namespace: str, body: Body) -> web.Response:
        body["metadata"]["namespace"] = namespace
        name = body["metadata"].get("name")
        if name and (namespace, name) in self.objects[resource]:
            return _status(409, "AlreadyExists", f'{resource} "{name}" already exists')
        made = self.put(resource, body)
        self._wrote("create", resource, made, body)
        owners = {owner["uid"] for owner in made["metadata"].get("ownerReferences") or []}
        if owners - {run["metadata"]["uid"] for run in self.objects["agentruns"].values()}:
            # Its owner went meanwhile: the garbage collector takes it.
            asyncio.get_running_loop().call_later(0.1, self._collect, made)
        return web.json_response(made, status=201)

    def _collect(self, body: Body) -> None:
        metadata = body["metadata"]
        if (metadata["namespace"], metadata["name"]) in self.objects["pods"]:
            self.remove("pods", metadata["name"], metadata["namespace"])

    def _patch(self, resource: str, namespace: str, name: str, status: bool, patch: Body) -> web.Response:
        before = self.objects[resource][(namespace, name)]
        wanted = (patch.get("metadata") or {}).pop("resourceVersion", None)
        if wanted is not None and wanted != before["metadata"]["resourceVersion"]:
            return _status(409, "Conflict", "the object has been modified; please apply your changes again")
        after = copy.deepcopy(before)
        merged = _merge(after, patch)
        if status:
            after["status"] = merged.get("status", {})
            if self.status_fields is not None:
                after["status"] = {k: v for k, v in after["status"].items() if k in self.status_fields}
        else:
            merged["status"] = before.get("status", {})
            after = merged
        self._wrote("patch", resource + ("/status" if status else ""), before, patch)
        if after == before:
            return web.json_response(before)
        if after.get("spec") != before.get("spec"):
            after["metadata"]["generation"] += 1
        self._store(resource, (namespace, name), "MODIFIED", after)
        return web.json_response(after)

    def _wrote(self, verb: str, resource: str, body: Body, sent: Body) -> None:
        about = body["metadata"]["name"]
        if resource == "events":
            about = body["involvedObject"]["name"]
        if resource == "pods":
            about = next((o["name"] for o in body["metadata"].get("ownerReferences") or []), about)
        self.writes.append(Write(verb, resource, body["metadata"]["name"], about, copy.deepcopy(sent)))

    def _selected(self, request: web.Request, resource: str, namespace: str, body: Body) -> bool:
        metadata = body["metadata"]
        if namespace and metadata.get("namespace") != namespace:
            return False
        for term in filter(None, request.query.get("labelSelector", "").split(",")):
            key, _, value = term.partition("=")
            if (metadata.get("labels") or {}).get(key) != value:
                return False
        field_selector = request.query.get("fieldSelector", "")
        if field_selector.startswith("involvedObject.uid="):
            return bool(body["involvedObject"].get("uid") == field_selector.partition("=")[2])
        return True

    def _list(self, request: web.Request, resource: str, namespace: str) -> web.Response:
        found = [
            b for b in self.objects[resource].values() if self._selected(request, resource, namespace, b)
        ]
        start, limit = int(request.query.get("continue", 0)), int(request.query.get("limit", 0))
        page = found[start : start + limit] if limit else found
        metadata = {"resourceVersion": str(self.version)}
        if limit and start + limit < len(found):
            metadata["continue"] = str(start + limit)
        kind = KINDS[resource] + "List"
        return web.json_response({"kind": kind, "apiVersion": "v1", "metadata": metadata, "items": page})

    async def _watch(self, request: web.Request, resource: str, namespace: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        since = int(request.query.get("resourceVersion") or 0)
        if since < self.forgotten:
            error = {
                "kind": "Status",
                "code": 410,
                "reason": "Expired",
                "message": "too old resource version",
            }
            await response.write(json.dumps({"type": "ERROR", "object": error}).encode() + b"\n")
            return response
        position = next((i for i, item in enumerate(self.history) if item[0] > since), len(self.history))
        loop = asyncio.get_running_loop()
        end = loop.time() + float(request.query.get("timeoutSeconds", 60))
        while (left := end - loop.time()) > 0:
            news = self._news
            while position < len(self.history):
                _, which, kind, body = self.history[position]
                position += 1
                if which == resource and self._selected(request, resource, namespace, body):
                    event = {"type": kind, "object": body}
                    await response.write(json.dumps(event).encode() + b"\n")
            try:
                async with asyncio.timeout(min(left, 1.0)):
                    await news.wait()
            except TimeoutError:
                pass
        return response

    def _discovery(self, parts: list[str]) -> Body | None:
        resources = [
            {"name": "pods", "singularName": "pod", "kind": "Pod", "namespaced": True},
            {"name": "events", "singularName": "event", "kind": "Event", "namespaced": True},
            {"name": "nodes", "singularName": "node", "kind": "Node", "namespaced": False},
            {"name": "namespaces", "singularName": "namespace", "kind": "Namespace", "namespaced": False},
        ]
        ours = [{"name": "agentruns", "singularName": "agentrun", "kind": "AgentRun", "namespaced": True}]
        verbs = {"verbs": ["get", "list", "watch", "create", "patch", "delete"]}
        version = {"groupVersion": "agentrun.dev/v1alpha1", "version": "v1alpha1"}
        answers: dict[tuple[str, ...], Body] = {
            ("api",): {"versions": ["v1"]},
            ("apis",): {
                "groups": [{"name": "agentrun.dev", "versions": [version], "preferredVersion": version}]
            },
            ("api", "v1"): {"resources": [item | verbs for item in resources]},
            ("apis", "agentrun.dev", "v1alpha1"): {"resources": [item | verbs for item in ours]},
        }
        return answers.get(tuple(parts))


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _merge(base: Body, patch: Body) -> Body:
    merged = dict(base)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            before = merged.get(key)
            merged[key] = _merge(before if isinstance(before, dict) else {}, value)
        else:
            merged[key] = value
    return merged


def _status(code: int, reason: str, message: str, **details: Any) -> web.Response:
    body = {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": code}
    return web.json_response(body | ({"details": details} if details else {}), status=code)


refuse = _status
"""An answer that says no, for faults."""
