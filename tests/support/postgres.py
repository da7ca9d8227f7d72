"""A real Postgres for tests.

`postgres` is one server for the session (for each worker, under pytest-xdist:
a test may crash it); `make_database` gives a test the DSN of a database that
nobody else uses. What a killed session left behind goes at the next one's start.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from agentrun.local import locks
from agentrun.local.embedded import EmbeddedPostgres, stop_unused

PREFIX = "agentrun-tests-"
NEW_SECONDS = 60.0


def new_folder() -> Path:
    """A folder that the server's account can reach also when the tests run as root.

    pytest's own temporary folders are closed to everybody else.
    """
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir="/tmp"))
    folder.chmod(0o711)
    return folder


def remove_folder(folder: Path) -> None:
    """Stops what runs in it and removes it."""
    stop_unused(folder)
    shutil.rmtree(folder)


def _sweep() -> None:
    """Removes the folders of sessions that were killed: nobody holds their lock."""
    for folder in Path("/tmp").glob(f"{PREFIX}*"):
        with suppress(OSError):
            if folder.lstat().st_uid != os.geteuid() or not (folder / "session.lock").exists():
                continue
            if time.time() - folder.lstat().st_mtime < NEW_SECONDS:
                continue  # its session may be about to take the lock
            handle = locks.open_private(folder / "session.lock")
            try:
                if locks.locked(handle, fcntl.LOCK_EX):
                    remove_folder(folder)
            finally:
                os.close(handle)


@pytest.fixture(scope="session")
def postgres() -> Iterator[EmbeddedPostgres]:
    """The session's server. `restart_immediate()` crashes it and starts it again."""
    _sweep()
    folder = new_folder()
    with locks.exclusive(folder / "session.lock"):
        with EmbeddedPostgres.start(folder) as server:
            yield server
        remove_folder(folder)


def run_apart(make: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Runs a coroutine on a loop of its own, also from inside a running one."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: asyncio.run(make())).result()


def database_dsn(server: EmbeddedPostgres, name: str) -> str:
    """The DSN of another database of the server."""
    return server.dsn.replace("/agentrun?", f"/{name}?", 1)


@pytest.fixture
def make_database(postgres: EmbeddedPostgres) -> Iterator[Callable[[], str]]:
    """Makes empty databases; they go, with their connections, when the test ends."""
    made: list[str] = []

    async def execute(statement: str) -> None:
        connection = await asyncpg.connect(postgres.dsn)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    def make() -> str:
        name = f"test_{uuid4().hex}"
        run_apart(lambda: execute(f"CREATE DATABASE {name}"))
        made.append(name)
        return database_dsn(postgres, name)

    yield make
    for name in made:
        run_apart(lambda name=name: execute(f"DROP DATABASE {name} WITH (FORCE)"))  # type: ignore[misc]
