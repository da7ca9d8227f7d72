"""A database of a module's own, and commands on it: in this process, and as processes."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from agentrun.cli.main import run_command
from agentrun.local.embedded import EmbeddedPostgres
from agentrun.local.locks import patience
from agentrun.log.postgres import PostgresStore
from tests.support.postgres import database_dsn

# As for the chaos tests: processes of one's own are quicker with their modules compiled.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

ROOT = Path(__file__).resolve().parents[3]
HELLO = str(ROOT / "examples/hello.yaml")
SECONDS_MAX = 60.0


def execute(dsn: str, statement: str, *args: Any) -> Any:
    """The first value of what a statement gives."""

    async def run() -> Any:
        connection = await asyncpg.connect(dsn)
        try:
            return await connection.fetchval(statement, *args)
        finally:
            await connection.close()

    return asyncio.run(run())


async def _migrate(dsn: str) -> None:
    store = PostgresStore.open(dsn)
    await store.connect()
    await store.close()


@pytest.fixture(scope="module")
def dsn(postgres: EmbeddedPostgres) -> Iterator[str]:
    """A database that the tests of one module share."""
    name = f"test_{uuid4().hex}"
    execute(postgres.dsn, f"CREATE DATABASE {name}")
    made = database_dsn(postgres, name)
    asyncio.run(_migrate(made))
    yield made
    execute(postgres.dsn, f"DROP DATABASE {name} WITH (FORCE)")


@dataclass
class Said:
    """What a command said and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.out)
        return value


Agentrun = Callable[..., Said]


@pytest.fixture
def agentrun(dsn: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Agentrun:
    """Runs a command in this process."""
    monkeypatch.setenv("AGENTRUN_DATABASE_URL", dsn)

    def run(*argv: str) -> Said:
        capsys.readouterr()
        code = run_command(argv)
        out, err = capsys.readouterr()
        return Said(code, out, err)

    return run


class Running:
    """A command as a process of its own."""

    def __init__(self, *argv: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "agentrun", *argv],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self.seen = ""

    def until(self, mark: str) -> None:
        """Reads its progress up to a line that has the mark."""
        assert self.process.stderr
        for line in self.process.stderr:
            self.seen += line
            if mark in line:
                return
        raise AssertionError(f"{mark!r} was not said, but: {self.seen}")

    def end(self) -> Said:
        """Waits for its end."""
        out, err = self.process.communicate(timeout=SECONDS_MAX)
        return Said(self.process.returncode, out, self.seen + err)


@pytest.fixture
def start(dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Running]]:
    """Starts commands; those that live when the test ends are killed."""
    monkeypatch.setenv("AGENTRUN_DATABASE_URL", dsn)
    started: list[Running] = []

    def run(*argv: str) -> Running:
        started.append(Running(*argv))
        return started[-1]

    yield run
    for running in started:
        if running.process.poll() is None:
            running.process.kill()
        running.process.communicate()


def wait_until(true: Callable[[], bool]) -> None:
    """Polls; AssertionError when it takes too long."""
    for _ in patience(SECONDS_MAX):
        if true():
            return
    raise AssertionError("it did not come to be")


def manifest(folder: Path, turns: list[dict[str, Any]], *, name: str = "slow", **spec: Any) -> str:
    """A manifest file with a scripted model and the tool `lookup`."""
    tool = {
        "name": "lookup",
        "description": "Looks up.",
        "python": {"entrypoint": "agentrun.tools.demo:lookup"},
        "effect": "read_only",
    }
    agent = {"model": {"name": "scripted:x", "script": {"turns": turns}}, "tools": [tool]}
    said = {
        "apiVersion": "agentrun.dev/v1alpha1",
        "kind": "AgentRun",
        "metadata": {"name": name},
        "spec": {"prompt": "p", "agent": agent, **spec},
    }
    file = folder / f"{name}.json"
    file.write_text(json.dumps(said))
    return str(file)


def lookups(*seconds: float) -> dict[str, Any]:
    """A turn that looks things up at once."""
    calls = [
        {"name": "lookup", "arguments": {"topic": f"topic {i}", "seconds": s}} for i, s in enumerate(seconds)
    ]
    return {"toolCalls": calls, "usage": {"inputTokens": 10, "outputTokens": 5}}


ANSWER = {"text": "the answer", "usage": {"inputTokens": 20, "outputTokens": 5}}
