"""The application in this process, over a store in memory: requests without a socket."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2

from agentrun.log.memory import Database, MemoryStore
from agentrun_api.access import Access, LocalAccess
from agentrun_api.app import create_app
from agentrun_api.events import encode
from agentrun_api.feed import Feeds
from agentrun_api.inprocess import InProcessRunExecutor
from agentrun_api.limits import RateLimit
from agentrun_api.services import Services

TOKEN = "a token that nobody guesses"
SECONDS_MAX = 30.0


@dataclass
class Server:
    """`client` sends the token."""

    services: Services
    client: httpx2.AsyncClient
    store: MemoryStore

    async def stands(self, run_id: str, phase: str) -> dict[str, Any]:
        """The run once it stands so."""
        while True:
            found: dict[str, Any] = (await self.client.get(f"/v1/runs/{run_id}")).json()
            if found["phase"] == phase:
                return found
            await asyncio.sleep(0.02)


@dataclass(frozen=True)
class Told:
    """One event as it came."""

    kind: str
    id: str | None
    data: str = field(repr=False)


def parse_events(text: str) -> list[Told]:
    """Of a stream that is whole. Only what this server writes."""
    found = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        if "event" in lines:
            found.append(Told(lines["event"], lines.get("id"), lines["data"]))
    return found


@asynccontextmanager
async def serving(
    *, access: Access | None = None, per_second: float = 1000, burst: int = 1000
) -> AsyncIterator[Server]:
    store = MemoryStore(Database(time.time))
    services = Services(
        store=store,
        feeds=Feeds(store, encode),
        access=access or LocalAccess(TOKEN),
        executor=InProcessRunExecutor(store, environ={}),
        rate=RateLimit(per_second, burst, time.monotonic),
    )
    app = create_app(services)
    async with app.router.lifespan_context(app):
        transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://agentrun", headers=headers
        ) as client:
            yield Server(services, client, store)


def served(test: Callable[[Server], Awaitable[None]], **options: Any) -> None:
    """Runs a test against a server of its own, bounded in time."""

    async def run() -> None:
        async with asyncio.timeout(SECONDS_MAX), serving(**options) as server:
            await test(server)

    asyncio.run(run())


def hello(*turns: Mapping[str, Any], **spec: Any) -> dict[str, Any]:
    """A manifest with a scripted model."""
    script = {"turns": list(turns) or [{"text": "Hello."}]}
    return {
        "apiVersion": "agentrun.dev/v1alpha1",
        "kind": "AgentRun",
        "metadata": {"name": spec.pop("name", "hello")},
        "spec": {
            "prompt": "Say hello.",
            "agent": {"model": {"name": "scripted:test", "script": script}},
            **spec,
        },
    }
