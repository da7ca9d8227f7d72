"""Commands on a database of each test's own, and MCP servers beside them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.support.commands import ROOT, Commands
from tests.support.stub_tools import closed_port

# Each test starts processes, and compiling all modules of the SDK takes each of them seconds.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

LISTENS_SECONDS_MAX = 60.0


@pytest.fixture
def agentrun(make_database: Callable[[], str], tmp_path: Path) -> Iterator[Commands]:
    """The command, on a database of its own."""
    commands = Commands(make_database(), tmp_path)
    yield commands
    commands.close()


@pytest.fixture
def run_id() -> str:
    return str(uuid4())


class HttpServer:
    """The counting server over HTTP: started, killed and started again on one port."""

    def __init__(self, file: Path) -> None:
        self.port = closed_port()
        self._file = file
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.support.counting_mcp", str(self._file), str(self.port)]
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=quiet, stdout=quiet, stderr=quiet)
        end = time.monotonic() + LISTENS_SECONDS_MAX
        while not self._listens():
            assert self._process.poll() is None and time.monotonic() < end
            time.sleep(0.02)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@pytest.fixture
def counted(tmp_path: Path) -> Path:
    """Where the counting server counts."""
    return tmp_path / "counted"


@pytest.fixture
def http_server(counted: Path) -> Iterator[HttpServer]:
    server = HttpServer(counted)
    yield server
    server.kill()


def lines(file: Path, event: str = "start", name: str = "") -> list[list[str]]:
    """[event, name, key, n] of each call that the server counted."""
    found = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    return [line for line in found if line[0] == event and name in ("", line[1])]


def by_key(file: Path, name: str) -> Counter[str]:
    """How often calls of a tool were begun, by idempotency key."""
    return Counter(key for _, _, key, _ in lines(file, name=name))
