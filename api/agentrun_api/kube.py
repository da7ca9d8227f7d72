"""The Kubernetes API, as little of it as this server uses.

Who calls: `cluster`, `kubernetes_executor`. What holds: bodies are plain dicts, each request has a
bound in time, nothing here retries, and every answer is an object, a `KubeError` with the server's
own words, or `KubeUnavailable`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import aiohttp
from kubernetes.aio import client, config

CONNECT_SECONDS_MAX = 5.0
REQUEST_SECONDS_MAX = 10.0
MESSAGE_CHARACTERS_MAX = 1000
MERGE_PATCH = "application/merge-patch+json"

_RUNS = "/apis/agentrun.dev/v1alpha1/namespaces/{}/agentruns"

Body = dict[str, Any]


class KubeUnavailable(Exception):
    """No answer, or one that says that the server is in trouble: the same call may go well later."""


class KubeError(Exception):
    """The server said no. `status` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Kube:
    """See the module's docstring. Made by `connect`; `close` it in the end."""

    def __init__(self, configuration: client.Configuration) -> None:
        self._client = client.ApiClient(configuration)
        self._client.user_agent = "agentrun-api"
        self._timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS_MAX, sock_connect=CONNECT_SECONDS_MAX)

    @classmethod
    async def connect(cls) -> Kube:
        """By the service account of this pod, else by the kubeconfig. KubeUnavailable without either."""
        configuration = client.Configuration()
        try:
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        except config.ConfigException:
            try:
                await config.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
            except (config.ConfigException, OSError) as error:
                raise KubeUnavailable(f"there is no cluster: {error}") from error
        return cls(configuration)

    async def close(self) -> None:
        """Closes all connections."""
        await self._client.close()  # type: ignore[no-untyped-call]

    async def review_token(self, token: str) -> Body:
        """The status of a TokenReview."""
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token},
        }
        answer = await self._call("POST", "/apis/authentication.k8s.io/v1/tokenreviews", body)
        return dict(answer.get("status") or {})

    async def review_access(self, spec: Mapping[str, Any]) -> bool:
        """Whether a SubjectAccessReview allows it."""
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": dict(spec),
        }
        answer = await self._call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
        return (answer.get("status") or {}).get("allowed") is True

    async def create_run(self, namespace: str, body: Mapping[str, Any]) -> Body:
        """The AgentRun as the server made it."""
        return await self._call("POST", _RUNS.format(quote(namespace)), body)

    async def get_run(self, namespace: str, name: str) -> Body | None:
        """The AgentRun, or None."""
        try:
            return await self._call("GET", f"{_RUNS.format(quote(namespace))}/{quote(name)}")
        except KubeError as error:
            if error.status == 404:
                return None
            raise

    async def patch_run(self, namespace: str, name: str, patch: Mapping[str, Any]) -> Body:
        """Merges `patch` into the AgentRun. A uid in its metadata must be the object's (else 409)."""
        path = f"{_RUNS.format(quote(namespace))}/{quote(name)}"
        return await self._call("PATCH", path, patch, content_type=MERGE_PATCH)

    async def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        content_type: str = "application/json",
    ) -> Body:
        try:
            request = await self._client.param_serialize(
                method,
                path,
                header_params={"Accept": "application/json", "Content-Type": content_type},
                body=body,
                auth_settings=["BearerToken"],
            )
            answer = await self._client.call_api(*request, _request_timeout=self._timeout)
            data: bytes = await answer.read()  # type: ignore[no-untyped-call]
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise KubeUnavailable(f"{method} {path}: {type(error).__name__}: {error}") from error
        try:
            value = json.loads(data) if data else {}
        except ValueError:
            value = {}
        message = str(value.get("message") if isinstance(value, dict) else "")[:MESSAGE_CHARACTERS_MAX]
        if answer.status == 429 or answer.status >= 500:
            raise KubeUnavailable(f"{method} {path}: HTTP {answer.status}: {message}")
        if not 200 <= answer.status < 300:
            raise KubeError(answer.status, message or f"HTTP {answer.status}")
        return value if isinstance(value, dict) else {}
