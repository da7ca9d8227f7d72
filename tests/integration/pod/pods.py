"""Runner pods without Kubernetes: the same process, told by the same environment.

run = runs.make(spec)
pod = run.pod()                  # allocates an attempt and starts a process for it
pod.wait_for("launched", node="call-1-0")
pod.terminate()
assert pod.ended(5) == 75
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID, uuid4

from agentrun.log.postgres import PostgresStore
from agentrun.log.replay import History
from agentrun.log.store import AttemptOutcome, AttemptRow, Levels, LogRow, RunInfo, RunRow
from agentrun.proto import log_pb2 as pb
from agentrun.spec import parse_object
from agentrun.spec.definition import definition_bytes, definition_digest
from tests.support.postgres import run_apart

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
RUNNER = (sys.executable, "-m", "agentrun.pod")
T = TypeVar("T")


def agent(*turns: Any, tools: list[dict[str, Any]] | None = None, **spec: Any) -> dict[str, Any]:
    """A spec with a scripted model."""
    model = {"name": "scripted:test", "script": {"turns": list(turns)}}
    return {"prompt": "Go on.", "agent": {"model": model, "tools": tools or []}, **spec}


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """A tool call of a scripted turn."""
    return {"name": name, "arguments": arguments}


def tool(name: str, entrypoint: str = "", **more: Any) -> dict[str, Any]:
    """A Python tool; without an entrypoint one of `slow_tools`."""
    entrypoint = entrypoint or f"slow_tools:{name}"
    return {"name": name, "python": {"entrypoint": entrypoint}, "effect": "read_only", **more}


@dataclass
class Runs:
    """Makes runs in one database."""

    dsn: str
    folder: Path

    def ask(self, question: Callable[[PostgresStore], Awaitable[T]]) -> T:
        """The answer of a store of our own."""
        answers: list[T] = []

        async def run() -> None:
            store = PostgresStore.open(self.dsn)
            try:
                answers.append(await question(store))
            finally:
                await store.close()

        run_apart(run)
        return answers[0]

    def make(self, spec: Mapping[str, Any], **levels: Any) -> Run:
        """A run as the operator makes it."""
        manifest = {
            "apiVersion": "agentrun.dev/v1alpha1",
            "kind": "AgentRun",
            "metadata": {"name": "test"},
            "spec": dict(spec),
        }
        data = definition_bytes(parse_object(manifest))
        row = RunRow(
            run_id=uuid4(),
            owner="test/default/test",
            name="test",
            definition=data,
            digest=definition_digest(data),
            levels=Levels(generation=1, **levels),
        )
        assert self.ask(lambda store: store.create_run(row))
        return Run(self, row.run_id)


@dataclass
class Run:
    """One run in the database."""

    runs: Runs
    run_id: UUID
    pods: list[Pod] = field(default_factory=list)

    def allocate(self, previous: AttemptOutcome = AttemptOutcome.DISRUPTED) -> int:
        """A new attempt."""
        expected = self.info().run.attempt
        attempt = self.runs.ask(
            lambda store: store.allocate_attempt(
                self.run_id, expected=expected, process="{}", previous=previous
            )
        )
        assert attempt is not None
        return attempt

    def pod(self, attempt: int = 0, *, command: Sequence[str] = (), **environ: Any) -> Pod:
        """A pod of this attempt, or of a new one. With a `command` that is its first process, as in
        a container: number 1 of process numbers of its own."""
        words = self.runs.folder / f"words-{uuid4().hex}"
        words.touch()
        told = {
            "AGENTRUN_DATABASE_URL": self.runs.dsn,
            "AGENTRUN_RUN_ID": str(self.run_id),
            "AGENTRUN_ATTEMPT": str(attempt or self.allocate()),
            "AGENTRUN_GRACE_SECONDS": "10",
            "AGENTRUN_POD_NAME": "test-pod",
            "AGENTRUN_NODE_NAME": "test-node",
            "AGENTRUN_LOG_FORMAT": "json",
            "AGENTRUN_TERMINATION_LOG": str(words),
            "AGENTRUN_DEMO_COUNTER": str(self.counter),
            **environ,
        }
        given = {name: value for name, value in told.items() if value}
        pod = Container(given, words, command) if command else Pod(given, words)
        self.pods.append(pod)
        return pod

    @property
    def counter(self) -> Path:
        return self.runs.folder / f"calls-{self.run_id}"

    def calls(self, name: str) -> int:
        """How often a tool was begun."""
        text = self.counter.read_text() if self.counter.exists() else ""
        return sum(line.startswith(f"start {name} ") for line in text.splitlines())

    def info(self) -> RunInfo:
        """Its row."""
        info = self.runs.ask(lambda store: store.get_run(self.run_id))
        assert info is not None
        return info

    def summary(self) -> dict[str, Any]:
        """What was written for status."""
        found: dict[str, Any] = json.loads(self.info().summary)
        return found

    def attempts(self) -> list[AttemptRow]:
        """All of them."""
        return self.runs.ask(lambda store: store.attempts(self.run_id))

    def history(self) -> History:
        """Its log, replayed: a half record or a hole would raise."""
        history = History(self.run_id)
        history.fold_rows(self.runs.ask(lambda store: store.read_rows(self.run_id)))
        return history

    def append(self, records: list[tuple[int, pb.NodeRecord]]) -> None:
        """Puts records into the log, as a process of long ago did."""

        async def put(store: PostgresStore) -> None:
            token = await store.connect()
            rows = [
                LogRow(run_id=self.run_id, seq=seq, record=record.SerializeToString())
                for seq, record in records
            ]
            for start in range(0, len(rows), 500):
                assert await store.insert_pack(rows[start : start + 500], token)

        self.runs.ask(put)


class Pod:
    """One process of `python -m agentrun.pod`."""

    def __init__(self, environ: Mapping[str, str], words: Path, command: Sequence[str] = RUNNER) -> None:
        self._words = words
        self.log = words.with_suffix(".log")
        self.started = time.monotonic()
        path = {"PATH": os.environ["PATH"], "PYTHONPATH": str(HERE)}
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                list(command),
                env={**path, **environ},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd="/",
            )

    @property
    def text(self) -> str:
        """All that it has written."""
        return self.log.read_text()

    def lines(self) -> list[dict[str, Any]]:
        """Its lines; each must be JSON, but for one that is being written."""
        return [json.loads(line) for line in self.text.splitlines(keepends=True) if line.endswith("\n")]

    def events(self, event: str, **fields: Any) -> list[dict[str, Any]]:
        """The lines of an event."""
        wanted = {"event": event, **fields}.items()
        return [line for line in self.lines() if wanted <= line.items()]

    def wait_for(self, event: str, seconds: float = 20.0, **fields: Any) -> dict[str, Any]:
        """The first line of an event."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := self.events(event, **fields):
                return found[0]
            assert self.process.poll() is None, f"it ended before {event} {fields}:\n{self.text}"
            time.sleep(0.01)
        raise AssertionError(f"no {event} {fields} in {seconds} s:\n{self.text}")

    def terminate(self) -> None:
        """As the kubelet begins."""
        self.process.send_signal(signal.SIGTERM)

    def ended(self, seconds: float = 20.0) -> int:
        """The exit code; it must come within the bound."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it still runs after {seconds} s:\n{self.text}") from None

    def words(self) -> dict[str, Any]:
        """What the kubelet would find as the termination message."""
        found: dict[str, Any] = json.loads(self._words.read_text())
        return found

    def kill(self) -> None:
        """If it still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Container(Pod):
    """A pod whose command is process 1, with which signals have ways of their own: the kernel drops
    those that it has no handler for, but for SIGKILL, which ends all processes with it."""

    def __init__(self, environ: Mapping[str, str], words: Path, command: Sequence[str]) -> None:
        user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        super().__init__(environ, words, ["unshare", *user, "--pid", "--fork", "--kill-child", *command])
        settle(lambda: self._first_process() != 0)

    def _first_process(self) -> int:
        """Its number out here; 0: it is not there yet."""
        outer = self.process.pid
        children = Path(f"/proc/{outer}/task/{outer}/children").read_text().split()
        return int(children[0]) if children else 0

    def terminate(self) -> None:
        os.kill(self._first_process(), signal.SIGTERM)

    def kill(self) -> None:
        if self.process.poll() is None:
            if first := self._first_process():
                os.kill(first, signal.SIGKILL)
            self.process.wait()


def may_be_container() -> bool:
    """This system lets processes have process numbers of their own."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    try:
        return subprocess.run(["unshare", *user, "--pid", "--fork", "true"], check=False).returncode == 0
    except OSError:
        return False


def settle(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Waits until it holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.02)
