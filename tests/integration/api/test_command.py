"""The command with `--server`, against a server that is a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.api.servers import TOKEN, Process
from tests.unit.api.server import hello

SECONDS_MAX = 60.0


@dataclass
class Command:
    """`agentrun … --server URL`."""

    server: Process
    folder: Path

    def start(self, *args: str) -> subprocess.Popen[str]:
        environ = {**os.environ, "AGENTRUN_SERVER": self.server.url, "AGENTRUN_TOKEN": TOKEN}
        return subprocess.Popen(
            [sys.executable, "-m", "agentrun", *args],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *args: str, code: int = 0) -> str:
        process = self.start(*args)
        out, err = process.communicate(timeout=SECONDS_MAX)
        assert process.returncode == code, (process.returncode, out, err)
        self.said = err
        return out

    def manifest(self, *turns: dict[str, Any], **spec: Any) -> str:
        file = self.folder / f"run-{time.monotonic_ns()}.yaml"
        file.write_text(json.dumps(hello(*turns, **spec)))
        return str(file)

    def runs(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self("list", "-o", "json"))["runs"]
        return found


@pytest.fixture
def agentrun(make_database: Callable[[], str], tmp_path: Path) -> Iterator[Command]:
    server = Process(make_database(), tmp_path)
    server.start()
    yield Command(server, tmp_path)
    server.kill()


def test_a_run_is_begun_watched_and_looked_at(agentrun: Command) -> None:
    assert agentrun("run", agentrun.manifest()) == "Hello.\n"
    assert "turn-1" in agentrun.said and "Ctrl-C" in agentrun.said
    (run,) = agentrun.runs()
    run_id = run["runID"]
    assert "Succeeded" in agentrun("list")
    assert "ANSWER\nHello." in agentrun("show", run_id[:8])
    lines = agentrun("events", run_id, "-o", "json").splitlines()
    assert [json.loads(line)["seq"] for line in lines] == [1, 2, 3, 4]
    lines = agentrun("events", run_id, "--after", "2", "--follow").splitlines()
    assert [line.split()[0] for line in lines] == ["3", "4"]
    shown = json.loads(agentrun("show", run_id, "-o", "json"))
    assert (shown["answer"], shown["phase"]) == ("Hello.", "Succeeded")


def test_a_parked_run_says_why_and_goes_on_with_a_raised_budget(agentrun: Command) -> None:
    turns = [{"text": ""}, {"text": "Hello again."}]
    file = agentrun.manifest(*turns, budget={"turns": 1})
    agentrun("run", file, "--quiet", code=75)
    assert "paused (BudgetExceeded)" in agentrun.said
    run_id = agentrun.runs()[0]["runID"]
    assert agentrun("resume", run_id, "--quiet", "--budget-turns", "5") == "Hello again.\n"


def test_a_call_that_waits_is_answered_and_the_first_answer_stands(agentrun: Command) -> None:
    refund = {
        "name": "refund",
        "python": {"entrypoint": "agentrun.tools.demo:refund"},
        "requireApproval": {"policy": "Always"},
    }
    asks = {"toolCalls": [{"name": "refund", "arguments": {"order": "A", "amount": 1}}]}
    file = agentrun.folder / "waits.yaml"
    what = hello(asks, {"text": "Done."})
    what["spec"]["agent"]["tools"] = [refund]
    file.write_text(json.dumps(what))
    agentrun("run", str(file), "--quiet", code=75)
    said = agentrun.said.splitlines()
    run_id = agentrun.runs()[0]["runID"]
    assert f"agentrun: answer with: agentrun approve {run_id} ID (or deny)" in said
    ((id_, *_),) = [line.split() for line in agentrun("approvals", run_id).splitlines()[1:]]
    for wrong, why in [
        ("{", "not valid JSON"),
        ('{"a": 1, "a": 2}', "more than once"),
        ("[]", "JSON object"),
    ]:
        agentrun("approve", run_id, id_, "--arguments", wrong, code=2)
        assert "--arguments: " in agentrun.said and why in agentrun.said
    agentrun("approve", run_id, id_, "--arguments", '{"order": "A", "amount": 2}')
    agentrun("deny", run_id, id_, code=1)
    assert "has approved it before: that stands" in agentrun.said
    agentrun("approve", run_id, "call-9-9-00000000", code=2)
    assert agentrun("resume", run_id, "--quiet") == "Done.\n"
    shown = agentrun("show", run_id)
    assert "turns        2 of 100\n" in shown, shown


def test_a_run_is_watched_over_a_restart_of_its_server_and_ended(agentrun: Command) -> None:
    file = agentrun.manifest({"text": "", "delaySeconds": 2}, {"text": "", "delaySeconds": 600})
    watching = agentrun.start("run", file)
    began = time.monotonic()
    while not (runs := agentrun.runs()) or runs[0]["phase"] != "Running":
        assert time.monotonic() - began < SECONDS_MAX
    agentrun.server.stop()
    agentrun.server.start()
    run_id = runs[0]["runID"]
    while agentrun.runs()[0]["phase"] != "Running":
        assert time.monotonic() - began < SECONDS_MAX
    agentrun("cancel", run_id, "--now", code=75)
    out, err = watching.communicate(timeout=SECONDS_MAX)
    assert (watching.returncode, out) == (1, ""), err
    assert "waiting for the server" in err and "cancelled (Cancelled)" in err
    lines = [line for line in err.splitlines() if "attempt-" in line]
    assert len(lines) == 2, err


@pytest.mark.parametrize(
    ("environ", "args", "said"),
    [
        ({"AGENTRUN_TOKEN": "wrong"}, ["list"], "the token is not known here"),
        ({"AGENTRUN_SERVER": "ftp://x"}, ["list"], "--server: the server must be a URL"),
        ({}, ["show", "abc"], "is too short"),
        ({}, ["show", "00000000-0000-4000-8000-000000000000"], "there is no run"),
        ({}, ["events", "0000"], "no run has an id that begins with"),
        ({}, ["run", "/nowhere.yaml"], "/nowhere.yaml cannot be read"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(
    agentrun: Command, environ: dict[str, str], args: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = agentrun.server.url
    full = {**os.environ, "AGENTRUN_SERVER": url, "AGENTRUN_TOKEN": TOKEN, **environ}
    done = subprocess.run(
        [sys.executable, "-m", "agentrun", *args],
        env=full,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 2 and said in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1 and done.stdout == ""


def test_a_bad_manifest_is_told_by_field(agentrun: Command) -> None:
    file = agentrun.folder / "bad.yaml"
    file.write_text(json.dumps(hello(budget={"tokens": 0, "turns": "x"})))
    agentrun("run", str(file), code=2)
    lines = agentrun.said.splitlines()
    assert len(lines) == 2 and all("spec.budget." in line for line in lines)
