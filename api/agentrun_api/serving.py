"""Serving: what the routes share is made, served, and let go in order.

Who calls: `cli`. What holds: on a stop the streams end first, so that nobody waits for them; then
what is under way is finished; then the executor pauses its runs; the store closes last.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from agentrun.local.keeping import keep_alive
from agentrun.local.stores import Place, opened, reach
from agentrun.log.postgres import PostgresStore
from agentrun.log.store import LogStore
from agentrun_api.access import Access, LocalAccess
from agentrun_api.app import create_app
from agentrun_api.events import encode
from agentrun_api.executor import RunExecutor
from agentrun_api.feed import Feeds
from agentrun_api.limits import RateLimit
from agentrun_api.services import Services
from agentrun_api.settings import Settings

STOP_SECONDS_MAX = 5
"""How long answers that are under way may take when the server stops."""

log = logging.getLogger(__name__)


async def serve_here(
    place: Place, settings: Settings, environ: Mapping[str, str], token: str, token_file: Path
) -> None:
    """For one machine, whose token opens everything; until SIGTERM or SIGINT."""
    from agentrun_api.inprocess import InProcessRunExecutor

    async with opened(place, writes=True) as store:
        await reach(lambda: store.list_runs(limit=1))
        executor = InProcessRunExecutor(store, environ=environ)
        keeping = asyncio.create_task(_keep(place))
        try:
            await _serve(settings, store, LocalAccess(token), executor, f"the token is in {token_file}")
        finally:
            keeping.cancel()


async def serve_cluster(dsn: str, settings: Settings) -> None:
    """For a cluster, whose tokens open what they open there; until SIGTERM or SIGINT.

    Raises KubeUnavailable where there is no cluster."""
    from agentrun_api.cluster import ClusterAccess
    from agentrun_api.kube import Kube
    from agentrun_api.kubernetes_executor import KubernetesRunExecutor

    kube = await Kube.connect()
    store = PostgresStore.open(
        dsn,
        prepared_statements=settings.prepared_statements,
        listen_dsn=settings.listen_url,
        application_name="agentrun-api",
    )
    executor = KubernetesRunExecutor(
        store, kube, installation=settings.installation, default_namespace=settings.namespace
    )
    try:
        await _serve(settings, store, ClusterAccess(kube), executor, "tokens are the cluster's")
    finally:
        await store.close()
        await kube.close()


async def _serve(
    settings: Settings, store: LogStore, access: Access, executor: RunExecutor, told: str
) -> None:
    services = Services(
        store=store,
        feeds=Feeds(store, encode),
        access=access,
        executor=executor,
        rate=RateLimit(
            settings.requests_per_second, settings.requests_burst, asyncio.get_running_loop().time
        ),
    )
    with _listen(settings) as listening:
        host, port = listening.getsockname()[:2]
        where = f"[{host}]" if ":" in host else host
        print(f"agentrun api: http://{where}:{port}, {told}", file=sys.stderr, flush=True)
        await _Server(_config(services), services).serve(sockets=[listening])


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
    except OSError as error:
        listening.close()
        raise OSError(f"{settings.host}:{settings.port} cannot be listened at: {error.strerror}") from error
    return listening


def _config(services: Services) -> uvicorn.Config:
    return uvicorn.Config(
        create_app(services),
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=STOP_SECONDS_MAX,
        server_header=False,
        ws="none",
        lifespan="on",
    )


async def _keep(place: Place) -> None:
    """A database of our own is started again when it dies."""
    if place.server is not None:
        await keep_alive(place.server, log.warning)


class _Server(uvicorn.Server):
    """Tells the streams of a stop before it waits for them."""

    def __init__(self, config: uvicorn.Config, services: Services) -> None:
        super().__init__(config)
        self._services = services

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """A stop that was asked for is no failure: the exit code is 0."""
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, self._stop)
        try:
            yield
        finally:
            for name in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(name)

    def _stop(self) -> None:
        self._services.closing.set()
        self.force_exit = self.should_exit  # the second time: at once
        self.should_exit = True
