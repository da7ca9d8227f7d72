"""Where the operator is measured: before the stand-in of the tests, or on a cluster with pretended nodes.

Who calls: `operator`. Either has AgentRuns made, tells of pods that run, and ends them; nothing in
them runs. The stand-in counts each write by the run that it is about; on a cluster the operator's own
figures have to do.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from base64 import b64decode
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Protocol

import aiohttp
import yaml

from tests.integration.operator.bench import manifest, node
from tests.integration.operator.fake_api import Body, FakeApi, Write
from tests.integration.operator.kubelet import end_pod, start_pod

PROGRESS = {"progress", "budget"}
AT_ONCE = 16
WATCH_SECONDS = 300
LIGHT = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class World(Protocol):
    """See the module's docstring."""

    namespace: str

    def kubeconfig(self, folder: Path) -> Path:
        """For the operator."""

    async def make(self, names: list[str]) -> None:
        """AgentRuns of these names."""

    def pods(self) -> AsyncIterator[Body]:
        """Each pod once, as soon as it runs; until cancelled."""

    async def end(self, pod: str) -> None:
        """Its runner has exited with 0."""

    async def in_phase(self, phase: str) -> int:
        """How many runs are."""

    async def pods_left(self) -> int:
        """How many pods are there."""

    def writes(self, runs: int) -> dict[str, float]:
        """Writes a run, by what they were; {}: it cannot tell."""


class StandIn:
    """The API server of the tests, in this process."""

    namespace = "demo"

    def __init__(self, api: FakeApi) -> None:
        self._api = api
        api.put("nodes", node("node-1"))

    def kubeconfig(self, folder: Path) -> Path:
        return write_kubeconfig(folder, {"server": self._api.url}, {})

    async def make(self, names: list[str]) -> None:
        for name in names:
            self._api.put("agentruns", manifest(name))

    async def pods(self) -> AsyncIterator[Body]:
        position = 0
        while True:
            news = self._api.history[position:]
            position += len(news)
            for _, resource, kind, body in news:
                if resource == "pods" and kind == "ADDED":
                    yield start_pod(self._api, str(body["metadata"]["name"]))
            await asyncio.sleep(0.02)

    async def end(self, pod: str) -> None:
        end_pod(self._api, pod, 0)

    async def in_phase(self, phase: str) -> int:
        runs = self._api.objects["agentruns"].values()
        return sum((run.get("status") or {}).get("phase") == phase for run in runs)

    async def pods_left(self) -> int:
        return len(self._api.objects["pods"])

    def writes(self, runs: int) -> dict[str, float]:
        real = [write for write in self._api.writes if not is_progress(write)]
        kinds = Counter(f"{write.verb} {write.resource}" for write in real)
        found = {f"a run: {kind}": number / runs for kind, number in sorted(kinds.items())}
        found["a run: writes of progress"] = (len(self._api.writes) - len(real)) / runs
        most = Counter(write.about for write in real).most_common(1)[0][1]
        return found | {"writes a run": len(real) / runs, "writes of the busiest run": float(most)}


def is_progress(write: Write) -> bool:
    """A write that tells how far a run is, and nothing else."""
    return write.verb == "patch" and set(write.body.get("status") or {}) <= PROGRESS


class Pretended:
    """A cluster with nodes of KWOK, whose pods turn Running and run nothing."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self.namespace = namespace
        self._file = kubeconfig
        value = yaml.safe_load(kubeconfig.read_text())
        self._cluster, self._user = value["clusters"][0]["cluster"], value["users"][0]["user"]
        self._turn = asyncio.Semaphore(AT_ONCE)
        headers = {"Authorization": f"Bearer {self._user['token']}"} if "token" in self._user else {}
        connector = aiohttp.TCPConnector(ssl=_context(self._cluster, self._user), limit=0)
        self._session = aiohttp.ClientSession(connector=connector, headers=headers)
        self._runs = f"/apis/agentrun.dev/v1alpha1/namespaces/{namespace}/agentruns"
        self._pods = f"/api/v1/namespaces/{namespace}/pods"

    async def __aenter__(self) -> Pretended:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        await self._call("POST", "/api/v1/namespaces", body)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._call("DELETE", f"/api/v1/namespaces/{self.namespace}")
        await self._session.close()

    def kubeconfig(self, folder: Path) -> Path:
        return self._file

    async def make(self, names: list[str]) -> None:
        where = {"nodeSelector": {"type": "kwok"}}
        where["tolerations"] = [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}]  # type: ignore[assignment]

        async def one(name: str) -> None:
            body = manifest(name, podTemplate={"spec": where})
            body["metadata"]["namespace"] = self.namespace
            await self._call("POST", self._runs, body)

        await asyncio.gather(*map(one, names))

    async def pods(self) -> AsyncIterator[Body]:
        told: set[str] = set()
        while True:
            page = await self._call("GET", self._pods)
            for pod in page["items"] or []:
                if is_new(pod, told):
                    yield pod
            async for pod in self._watch(page["metadata"]["resourceVersion"]):
                if is_new(pod, told):
                    yield pod

    async def _watch(self, version: str) -> AsyncIterator[Body]:
        url = f"{self._cluster['server']}{self._pods}?watch=true&timeoutSeconds={WATCH_SECONDS}"
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._session.get(f"{url}&resourceVersion={version}", timeout=timeout) as answer:
            buffer = b""
            async for data in answer.content.iter_any():
                *lines, buffer = (buffer + data).split(b"\n")
                for line in lines:
                    yield json.loads(line)["object"]

    async def end(self, pod: str) -> None:
        change = {"metadata": {"annotations": {"pretend.agentrun.dev/finish": "true"}}}
        await self._call("PATCH", f"{self._pods}/{pod}", change)

    async def in_phase(self, phase: str) -> int:
        return await self._count(f"{self._runs}?fieldSelector=status.phase={phase}")

    async def pods_left(self) -> int:
        return await self._count(self._pods)

    def writes(self, runs: int) -> dict[str, float]:
        return {}

    async def _count(self, path: str) -> int:
        return len((await self._call("GET", path, accept=LIGHT))["items"] or [])

    async def _call(
        self, method: str, path: str, body: Any = None, accept: str = "application/json"
    ) -> dict[str, Any]:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Accept": accept, "Content-Type": kind}
        data = None if body is None else json.dumps(body)
        async with (
            self._turn,
            self._session.request(
                method, self._cluster["server"] + path, data=data, headers=headers
            ) as answer,
        ):
            text = await answer.text()
            if answer.status >= 300:
                raise RuntimeError(f"{method} {path}: {answer.status}: {text[:500]}")
            found: dict[str, Any] = json.loads(text)
            return found


def is_new(pod: Body, told: set[str]) -> bool:
    """It runs, and was not told of."""
    name = str(pod.get("metadata", {}).get("name", ""))
    if pod.get("status", {}).get("phase") != "Running" or name in told:
        return False
    told.add(name)
    return True


def _context(cluster: dict[str, Any], user: dict[str, Any]) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=b64decode(cluster["certificate-authority-data"]).decode())
    if "client-certificate-data" in user:
        with NamedTemporaryFile(suffix=".pem") as file:
            file.write(b64decode(user["client-certificate-data"]) + b64decode(user["client-key-data"]))
            file.flush()
            context.load_cert_chain(file.name)
    return context


def write_kubeconfig(folder: Path, cluster: dict[str, Any], user: dict[str, Any]) -> Path:
    """A kubeconfig."""
    path = folder / "kubeconfig"
    value = {
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "clusters": [{"name": "it", "cluster": cluster}],
        "users": [{"name": "it", "user": user}],
    }
    path.write_text(yaml.safe_dump(value))
    return path
