"""`agentrun api`: serves the API until it is told to stop.

Who calls: the `agentrun` command. What holds: settings that are missing or bad are told one a
line, with exit code 2; the token of this machine is in a file that only its user can read.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import secrets
import signal
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import uvicorn

from agentrun.local.errors import LocalError
from agentrun.local.keeping import keep_alive
from agentrun.local.stores import Place, opened, place_of, reach
from agentrun.log.environment import SettingsError
from agentrun.log.errors import LogError
from agentrun_api import settings as settings_
from agentrun_api.access import LocalAccess
from agentrun_api.app import create_app
from agentrun_api.events import encode
from agentrun_api.feed import Feeds
from agentrun_api.inprocess import InProcessRunExecutor
from agentrun_api.limits import RateLimit
from agentrun_api.services import Services
from agentrun_api.settings import Settings

EXIT_CANNOT_START = 2
STOP_SECONDS_MAX = 5
"""How long answers that are under way may take when the server stops."""

TOKEN_BYTES = 32

log = logging.getLogger("agentrun_api")


def main(argv: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Serves; the exit code."""
    parser = argparse.ArgumentParser(
        prog="agentrun api",
        description="Serves runs over HTTP on this machine. docs/api.md has its settings.",
    )
    parser.add_argument("--store", metavar="URL", help="the database; the embedded one unless set")
    parser.add_argument("--host", help="a loopback address; 127.0.0.1 unless set")
    parser.add_argument("--port", help="8090 unless set; 0: any that is free")
    args = parser.parse_args(argv)
    named = {"AGENTRUN_API_HOST": args.host, "AGENTRUN_API_PORT": args.port}
    try:
        settings = settings_.read({**environ, **{name: text for name, text in named.items() if text}})
        with place_of(args.store, environ) as place:
            assert place is not None
            return asyncio.run(serve(place, settings, environ))
    except SettingsError as error:
        return _refuse(*error.problems)
    except (LocalError, LogError, OSError) as error:
        return _refuse(str(error))


def _refuse(*problems: str) -> int:
    for problem in problems:
        print(f"agentrun api: {problem}", file=sys.stderr)
    return EXIT_CANNOT_START


async def serve(place: Place, settings: Settings, environ: Mapping[str, str]) -> int:
    """Until SIGTERM or SIGINT."""
    logging.basicConfig(
        level=settings.log_level.upper(),
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    logging.getLogger("uvicorn.access").setLevel(logging.WARNING)
    file = settings.token_file or token_file()
    async with opened(place, writes=True) as store:
        await reach(lambda: store.list_runs(limit=1))
        loop = asyncio.get_running_loop()
        services = Services(
            store=store,
            feeds=Feeds(store, encode),
            access=LocalAccess(read_token(file)),
            executor=InProcessRunExecutor(store, environ=environ),
            rate=RateLimit(settings.requests_per_second, settings.requests_burst, loop.time),
        )
        with _listen(settings) as listening:
            host, port = listening.getsockname()[:2]
            print(f"agentrun api: http://{host}:{port}, the token is in {file}", file=sys.stderr, flush=True)
            server = _Server(_config(settings, services), services)
            keeping = asyncio.create_task(_keep(place))
            try:
                await server.serve(sockets=[listening])
            finally:
                keeping.cancel()
    return 0


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


def _config(settings: Settings, services: Services) -> uvicorn.Config:
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


def token_file() -> Path:
    """Where this user's token is."""
    from agentrun.local.pg_install import default_data_dir

    return default_data_dir() / "api-token"


def read_token(file: Path) -> str:
    """The token, made where there is none. Raises LocalError."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as made:
                made.write(secrets.token_urlsafe(TOKEN_BYTES) + "\n")
        token = file.read_text().strip()
    except (OSError, ValueError) as error:
        raise LocalError(f"the token's file {file} cannot be used: {error}") from error
    if len(token) < TOKEN_BYTES:
        raise LocalError(
            f"{file} holds no token of at least {TOKEN_BYTES} characters: remove it, or write one"
        )
    return token
