"""The whole operator against the API stand-in and a real Postgres, for tests.

`bench` gives a test the running operator; the test plays people, kubelet and runners,
and waits for what is to be seen in the API (`until`), bounded in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import yaml
from kubernetes.aio import client

from agentrun.log.postgres import PostgresStore
from agentrun.log.replay import History
from agentrun_operator.app import App
from agentrun_operator.kube import Kube
from agentrun_operator.metrics import Metrics
from agentrun_operator.podspec import PodSettings
from agentrun_operator.settings import Settings, Times
from tests.integration.operator.fake_api import Body, FakeApi
from tests.integration.operator.kubelet import Runner, start_pod

T = TypeVar("T")
SECONDS_MAX = 40.0
QUICK = Times(
    sweep=1.0,
    progress=0.3,
    quota_retry=0.3,
    never_started=1.0,
    failure_backoff=0.3,
    fenced_backoff=0.2,
    backoff_max=2.0,
    node_tolerated=0.5,
    lost_node=2.0,
    overdue=2.0,
    terminate=0.5,
    leave=1.0,
)


def manifest(name: str = "hello", **spec: Any) -> Body:
    """A small AgentRun."""
    model = {"name": "scripted:hello", "script": {"turns": [{"text": "hello"}]}}
    body: Body = {"prompt": "say hello", "agent": {"model": model}, **spec}
    return {
        "apiVersion": "agentrun.dev/v1alpha1",
        "kind": "AgentRun",
        "metadata": {"name": name, "namespace": "demo"},
        "spec": body,
    }


def wants(**changes: Any) -> Callable[[Body], None]:
    """An edit of a manifest's spec."""

    def change(body: Body) -> None:
        body["spec"].update(changes)

    return change


def labelled(number: int) -> Callable[[Body], None]:
    """An edit that means nothing to anybody."""

    def change(body: Body) -> None:
        body["metadata"]["labels"] = {**body["metadata"].get("labels", {}), "n": str(number)}

    return change


@dataclass
class Bench:
    """What a test has at hand."""

    api: FakeApi
    store: PostgresStore
    settings: Settings
    apps: list[tuple[App, asyncio.Task[None]]] = field(default_factory=list)

    async def start(self) -> App:
        """Another operator process."""
        metrics = Metrics()
        configuration = client.Configuration(host=self.api.url)
        kube = Kube(configuration, timeout_seconds=3.0, on_answer=metrics.answered)
        store = PostgresStore.open(self.settings.database_url, statement_timeout_seconds=3.0)
        app = App(kube, store, self.settings, metrics)

        async def run() -> None:
            try:
                await app.run()
            finally:
                await store.close()
                await kube.close()

        self.apps.append((app, asyncio.create_task(run())))
        await self.until(lambda: app.health.watching and app.health.store_is_up)
        return app

    async def stop(self, app: App | None = None) -> None:
        """Ends a process as SIGTERM would; all of them without a name."""
        for found, task in [item for item in self.apps if app in (None, item[0])]:
            found.stop.set()
            await asyncio.wait_for(task, 20.0)
            self.apps.remove((found, task))

    async def kill(self) -> None:
        """Ends all processes as SIGKILL would: nothing that is under way is finished."""
        for app, task in self.apps:
            app.queue.close()
            task.cancel()
            for worker in asyncio.all_tasks():
                if worker.get_name().startswith("worker "):
                    worker.cancel()
            await asyncio.wait([task], timeout=20.0)
        self.apps.clear()

    async def until(self, seen: Callable[[], T | None], seconds: float = SECONDS_MAX) -> T:
        """What `seen` gives, as soon as it is true."""
        async with asyncio.timeout(seconds):
            while not (found := seen()):
                for _, task in self.apps:
                    if task.done():
                        task.result()
                await asyncio.sleep(0.02)
        return found

    async def until_async(self, seen: Callable[[], Awaitable[bool]], seconds: float = SECONDS_MAX) -> None:
        """As `until`, of what has to be asked for."""
        async with asyncio.timeout(seconds):
            while not await seen():  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    async def until_ended(self, run_id: UUID | str) -> History:
        """The run's log, once it has ended."""
        run_id = UUID(str(run_id))

        async def ended() -> bool:
            info = await self.store.get_run(run_id)
            return info is not None and info.run.ended

        await self.until_async(ended)
        history = History(run_id)
        history.fold_rows(await self.store.read_rows(run_id))
        return history

    def status(self, name: str = "hello") -> Body:
        body = self.api.get("agentruns", name)
        return (body or {}).get("status") or {}

    async def phase(
        self, phase: str, reason: str | None = None, name: str = "hello", attempt: int | None = None
    ) -> Body:
        """The status, once it says so (of that attempt)."""

        def seen() -> Body | None:
            status = self.status(name)
            right = (
                status.get("phase") == phase
                and reason in (None, status.get("reason"))
                and attempt in (None, status.get("attempt"))
            )
            return status if right else None

        try:
            return await self.until(seen)
        except TimeoutError:
            raise AssertionError(f"not {phase}/{reason}: {self.status(name)}") from None

    async def pod(self, attempt: int = 1, name: str = "hello") -> Body:
        """The pod of an attempt, once it is there."""

        def seen() -> Body | None:
            pods = self.api.pods_of(name)
            return next(
                (p for p in pods if p["metadata"]["labels"]["agentrun.dev/attempt"] == str(attempt)), None
            )

        try:
            return await self.until(seen)
        except TimeoutError:
            raise AssertionError(f"no pod of attempt {attempt}: {self.status(name)}") from None

    async def runner(self, attempt: int = 1, name: str = "hello", node: str = "node-1") -> Runner:
        """A runner that runs and has claimed the run."""
        pod = await self.pod(attempt, name)
        start_pod(self.api, pod["metadata"]["name"], node=node)
        runner = Runner(self.store, pod)
        await runner.claim()
        return runner


@asynccontextmanager
async def bench(
    dsn: str, tmp_path: Path, monkeypatch: Any, *, started: bool = True, **changes: Any
) -> AsyncIterator[Bench]:
    """The bench, with one operator unless `started` is False."""
    settings = Settings(
        installation="test",
        database_url=dsn,
        pods=PodSettings(image="runner:1"),
        http_port=0,
        workers=8,
        request_timeout=3.0,
        watch_timeout=5.0,
        watch_inactivity=6.0,
        times=QUICK,
    )
    settings = replace(settings, **changes)
    async with FakeApi().serve() as api:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(
            yaml.safe_dump(
                {
                    "current-context": "fake",
                    "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
                    "clusters": [{"name": "fake", "cluster": {"server": api.url}}],
                    "users": [{"name": "fake", "user": {}}],
                }
            )
        )
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        monkeypatch.setattr("kopf.login_with_service_account", lambda **_: None)
        api.put("nodes", node("node-1"))
        store = PostgresStore.open(dsn)
        made = Bench(api, store, settings)
        try:
            if started:
                await made.start()
            yield made
        finally:
            await made.stop()
            await store.close()


def node(name: str, *, ready: bool = True) -> Body:
    return {
        "metadata": {"name": name},
        "status": {
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True" if ready else "Unknown",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
            ]
        },
    }
