"""The Kubernetes API, as little of it as the operator uses.

Who calls: `observe`, `apply`, `sweep`, `app`. What holds: bodies are plain dicts, each
request has a bound in time, nothing here retries, and every answer is an object, a
`KubeError` with the server's own words, or `KubeUnavailable`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any
from urllib.parse import quote

import aiohttp
from kubernetes.aio import client, config

GROUP_VERSION = "agentrun.dev/v1alpha1"
PLURAL = "agentruns"
PAGE_OBJECTS = 250
CONNECT_SECONDS_MAX = 5.0
MERGE_PATCH = "application/merge-patch+json"

Body = dict[str, Any]
OnAnswer = Callable[[str, str, str], None]
"""Called as on_answer(verb, resource, code) for each request; code "0": no answer."""


class KubeUnavailable(Exception):
    """No answer, or one that says that the server is in trouble: the same call may go well later."""


class KubeError(Exception):
    """The server said no."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"HTTP {status}: {_message(body)}")
        self.status = status
        self.body = body


class Kube:
    """See the module's docstring. Made by `connect` or on a configuration; `close` it in the end."""

    def __init__(
        self,
        configuration: client.Configuration,
        *,
        timeout_seconds: float = 10.0,
        on_answer: OnAnswer = lambda verb, resource, code: None,
    ) -> None:
        self._client = client.ApiClient(configuration)
        self._client.user_agent = "agentrun-operator"
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds, sock_connect=CONNECT_SECONDS_MAX)
        self._on_answer = on_answer

    @classmethod
    async def connect(cls, *, timeout_seconds: float, on_answer: OnAnswer) -> Kube:
        """By the service account of this pod, else by the kubeconfig."""
        configuration = client.Configuration()
        try:
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        except config.ConfigException:
            await config.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        return cls(configuration, timeout_seconds=timeout_seconds, on_answer=on_answer)

    async def close(self) -> None:
        """Closes all connections."""
        await self._client.close()  # type: ignore[no-untyped-call]

    # --- AgentRuns

    async def get_run(self, namespace: str, name: str) -> Body | None:
        """The object, or None."""
        return await self._get("agentruns", _runs(namespace, name))

    async def list_runs(self, namespace: str = "") -> AsyncIterator[Body]:
        """All objects, of one namespace or of all."""
        async for body in self._list("agentruns", _runs(namespace), {}):
            yield body

    async def patch_status(
        self, namespace: str, name: str, patch: Mapping[str, Any], *, resource_version: str
    ) -> Body:
        """Merges `patch` into the status, if the object is still of that version (else KubeError 409)."""
        body = {"metadata": {"resourceVersion": resource_version}, "status": patch}
        path = _runs(namespace, name) + "/status"
        return await self._call("PATCH", "agentruns/status", path, body=body, content_type=MERGE_PATCH)

    async def delete_run(self, namespace: str, name: str, *, uid: str) -> bool:
        """Deletes that very object; False: it is gone, or another one."""
        return await self._delete("agentruns", _runs(namespace, name), uid, None)

    # --- pods and nodes

    async def get_pod(self, namespace: str, name: str) -> Body | None:
        """The pod, or None."""
        return await self._get("pods", _pods(namespace, name))

    async def list_pods(self, selector: str, namespace: str = "") -> AsyncIterator[Body]:
        """All pods with these labels, of one namespace or of all."""
        async for body in self._list("pods", _pods(namespace), {"labelSelector": selector}):
            yield body

    async def create_pod(self, namespace: str, body: Mapping[str, Any]) -> Body:
        """The pod as the server made it."""
        return await self._call("POST", "pods", _pods(namespace), body=body)

    async def delete_pod(self, namespace: str, name: str, *, uid: str, grace: int | None = None) -> bool:
        """Deletes that very pod; False: it is gone, or another one."""
        return await self._delete("pods", _pods(namespace, name), uid, grace)

    async def get_node(self, name: str) -> Body | None:
        """The node, or None."""
        return await self._get("nodes", f"/api/v1/nodes/{quote(name)}")

    # --- Events

    async def create_event(self, namespace: str, body: Mapping[str, Any]) -> None:
        """Adds an Event."""
        await self._call("POST", "events", f"/api/v1/namespaces/{quote(namespace)}/events", body=body)

    async def events_of(self, namespace: str, uid: str) -> list[Body]:
        """The Events about an object; the newest hundred or so."""
        query = {"fieldSelector": f"involvedObject.uid={uid}", "limit": "100"}
        answer = await self._call(
            "GET", "events", f"/api/v1/namespaces/{quote(namespace)}/events", query=query
        )
        return list(answer.get("items") or [])

    # --- the wire

    async def _get(self, resource: str, path: str) -> Body | None:
        try:
            return await self._call("GET", resource, path)
        except KubeError as error:
            if error.status == 404:
                return None
            raise

    async def _list(self, resource: str, path: str, query: Mapping[str, str]) -> AsyncIterator[Body]:
        token = ""
        while True:
            page = {**query, "limit": str(PAGE_OBJECTS)} | ({"continue": token} if token else {})
            answer = await self._call("GET", resource, path, query=page)
            for item in answer.get("items") or []:
                yield item
            token = str((answer.get("metadata") or {}).get("continue") or "")
            if not token:
                return

    async def _delete(self, resource: str, path: str, uid: str, grace: int | None) -> bool:
        body: Body = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        try:
            await self._call("DELETE", resource, path, body=body)
        except KubeError as error:
            if error.status in (404, 409):
                return False
            raise
        return True

    async def _call(
        self,
        method: str,
        resource: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> Body:
        verb = method.lower()
        try:
            request = await self._client.param_serialize(
                method,
                path,
                query_params=list((query or {}).items()),
                header_params={"Accept": "application/json", "Content-Type": content_type},
                body=body,
                auth_settings=["BearerToken"],
            )
            answer = await self._client.call_api(*request, _request_timeout=self._timeout)
            data: bytes = await answer.read()  # type: ignore[no-untyped-call]
            text = data.decode("utf-8", "replace")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._on_answer(verb, resource, "0")
            raise KubeUnavailable(f"{method} {path}: {type(error).__name__}: {error}") from error
        self._on_answer(verb, resource, str(answer.status))
        if answer.status == 429 or (answer.status >= 500 and "failed calling webhook" not in text):
            raise KubeUnavailable(f"{method} {path}: HTTP {answer.status}: {_message(text)}")
        if not 200 <= answer.status < 300:
            raise KubeError(answer.status, text)
        value = json.loads(text) if text else {}
        return value if isinstance(value, dict) else {}


def _runs(namespace: str, name: str = "") -> str:
    place = f"/namespaces/{quote(namespace)}" if namespace else ""
    return f"/apis/{GROUP_VERSION}{place}/{PLURAL}" + (f"/{quote(name)}" if name else "")


def _pods(namespace: str, name: str = "") -> str:
    place = f"/namespaces/{quote(namespace)}" if namespace else ""
    return f"/api/v1{place}/pods" + (f"/{quote(name)}" if name else "")


def _message(body: str) -> str:
    try:
        value = json.loads(body)
    except ValueError:
        return body[:300]
    return str(value.get("message") or "")[:1000] if isinstance(value, dict) else body[:300]
