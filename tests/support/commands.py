"""The `agentrun` command as its users have it: processes, signals, output, exit codes.

    commands = Commands(dsn, folder)
    running = commands.start("run", commands.write(manifest), "--run-id", run_id)
    running.until("launched node=call-1-0")
    running.kill()
    assert commands("run", ..., "--run-id", run_id).code == 0

Every process of a `Commands` has the same database, and writes the calls of the demo
tools into the same file, `counter`. `close` kills what still runs.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

END_SECONDS_MAX = 40.0
POLL_SECONDS = 0.01


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command ended. `code` is negative for a signal; `seconds` is how long it was waited for."""

    code: int
    out: str
    err: str
    seconds: float

    @property
    def json(self) -> dict[str, Any]:
        """What `-o json` printed."""
        value: dict[str, Any] = json.loads(self.out)
        return value


class Running:
    """A command that was started."""

    def __init__(self, process: subprocess.Popen[bytes], base: Path) -> None:
        self.started = time.monotonic()
        self._process = process
        self._base = base

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def err(self) -> str:
        """Its standard error so far."""
        return self._base.with_suffix(".err").read_text(errors="replace")

    @property
    def out(self) -> str:
        return self._base.with_suffix(".out").read_text(errors="replace")

    def until(self, condition: str | Callable[[], object], seconds: float = END_SECONDS_MAX) -> None:
        """Waits until a text stands in its standard error, or a condition holds, while it runs."""
        met = (lambda: condition in self.err) if isinstance(condition, str) else condition
        end = time.monotonic() + seconds
        while not met():
            over = self.ended and not met()
            assert not over, f"it ended with {self._process.returncode} before {condition}:\n{self.err}"
            assert time.monotonic() < end, f"not within {seconds:g} s: {condition}\n{self.err}"
            time.sleep(POLL_SECONDS)

    def lives_for(self, seconds: float) -> bool:
        """Whether it still runs so long after its start; waits until then, or until it ends."""
        try:
            self._process.wait(max(0.0, self.started + seconds - time.monotonic()))
        except subprocess.TimeoutExpired:
            return True
        return False

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal; one that it was too late for is forgotten."""
        self._process.send_signal(number)

    def kill(self) -> Ended:
        """kill -9, and waits until it is gone."""
        self.signal(signal.SIGKILL)
        return self.wait()

    def wait(self, seconds: float = END_SECONDS_MAX) -> Ended:
        """Waits for its end, which must come by itself."""
        began = time.monotonic()
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end within {seconds:g} s:\n{self.err}") from None
        return Ended(code=code, out=self.out, err=self.err, seconds=time.monotonic() - began)


class Commands:
    """See the module's docstring. Called, it runs one command to its end."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self.dsn = dsn
        self.folder = folder
        self.counter = folder / "calls"
        self._all: list[Running] = []

    def __call__(self, *args: object, seconds: float = END_SECONDS_MAX, **options: Any) -> Ended:
        return self.start(*args, **options).wait(seconds)

    def start(self, *args: object, dsn: str = "", env: Mapping[str, str] | None = None) -> Running:
        """Starts a command; `dsn` in place of the database's own (through a proxy, say)."""
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("AGENTRUN_")},
            "AGENTRUN_DATABASE_URL": dsn or self.dsn,
            "AGENTRUN_DATA_DIR": str(self.folder / "data"),
            "AGENTRUN_DEMO_COUNTER": str(self.counter),
            **(env or {}),
        }
        base = self.folder / f"command-{len(self._all)}"
        with base.with_suffix(".out").open("wb") as out, base.with_suffix(".err").open("wb") as err:
            process = subprocess.Popen(
                [sys.executable, "-m", "agentrun", *map(str, args)],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        running = Running(process, base)
        self._all.append(running)
        return running

    def write(self, manifest: Mapping[str, Any] | str | bytes, name: str = "run.yaml") -> Path:
        """A file with the manifest, which may be any text."""
        path = self.folder / name
        if isinstance(manifest, Mapping):
            manifest = json.dumps(manifest)  # which is YAML too
        path.write_bytes(manifest if isinstance(manifest, bytes) else manifest.encode())
        return path

    def show(self, run_id: object) -> dict[str, Any]:
        """`agentrun show -o json`."""
        return self("show", run_id, "-o", "json").json

    def events(self, run_id: object) -> list[dict[str, Any]]:
        """`agentrun events -o json`."""
        ended = self("events", run_id, "-o", "json")
        assert ended.code == 0, ended.err
        return [json.loads(line) for line in ended.out.splitlines()]

    def calls(self, event: str = "start") -> Counter[str]:
        """Calls of the demo tools, by node, as they counted them themselves."""
        text = self.counter.read_text() if self.counter.exists() else ""
        lines = [line.split(" ", 3) for line in text.splitlines()]
        return Counter(node for what, _, node, _ in lines if what == event)

    def close(self) -> None:
        for running in self._all:
            if not running.ended:
                running.kill()
