"""Where the output of a run goes, and what becomes of it where it cannot go there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from agentrun.cli.list import _age
from agentrun.log.store import RunInfo, RunRow
from tests.integration.cli.conftest import ROOT, manifest

TOOLS = """
import os, subprocess

def shout() -> str:
    "Prints."
    print("a print")
    os.write(1, b"a write\\n")
    subprocess.run(["echo", "a child"])
    return "ok"
"""


def command(line: str, dsn: str, **environ: str) -> subprocess.CompletedProcess[bytes]:
    """A line of a shell, where $AGENTRUN is the command."""
    told = {"AGENTRUN": f"{sys.executable} -m agentrun", "AGENTRUN_DATABASE_URL": dsn, **environ}
    return subprocess.run(
        ["/bin/bash", "-c", line], env={**os.environ, **told}, capture_output=True, cwd=ROOT, timeout=60
    )


@pytest.fixture
def answers(tmp_path: Path) -> str:
    return manifest(tmp_path, [{"text": "ja ✓ ü 😀"}])


def test_a_runs_outcome_stands_where_its_answer_cannot_be_written(dsn: str, answers: str) -> None:
    for options in ("", "-o json"):
        said = command(f"$AGENTRUN run {answers} --quiet {options} > /dev/full", dsn)
        assert said.returncode == 0
        assert said.stderr == b"agentrun: the output cannot be written: No space left on device\n"


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-"])
def test_a_run_needs_no_stream(dsn: str, answers: str, closed: str) -> None:
    assert command(f"$AGENTRUN run {answers} {closed}", dsn).returncode == 0


def test_an_answer_is_given_in_any_encoding(dsn: str, answers: str) -> None:
    said = command(f"$AGENTRUN run {answers} --quiet", dsn, PYTHONIOENCODING="latin-1")
    assert (said.returncode, said.stdout) == (0, b"ja \\u2713 \xfc \\U0001f600\n")
    said = command(f"$AGENTRUN run {answers} --quiet -o json", dsn, PYTHONIOENCODING="ascii")
    assert json.loads(said.stdout)["answer"] == "ja ✓ ü 😀"


def test_what_a_tool_prints_does_not_reach_stdout(dsn: str, tmp_path: Path) -> None:
    (tmp_path / "shouting_tools.py").write_text(TOOLS)
    tools = [{"name": "shout", "description": "Prints.", "python": {"entrypoint": "shouting_tools:shout"}}]
    model = {"name": "scripted:x", "script": {"turns": [{"toolCalls": [{"name": "shout"}]}, {"text": "yes"}]}}
    file = manifest(tmp_path, [], agent={"model": model, "tools": tools})
    said = command(f"$AGENTRUN run {file} -o json", dsn, PYTHONPATH=str(tmp_path))
    assert (said.returncode, json.loads(said.stdout)["answer"]) == (0, "yes"), said.stderr
    for line in (b"a print", b"a write", b"a child"):
        assert line in said.stderr.splitlines()


def test_ages_are_by_the_stores_clock() -> None:
    made = datetime(2020, 1, 1, tzinfo=UTC)
    row = RunRow(run_id=uuid4(), owner="", name="", definition=b"", digest="", created_at=made)
    assert _age(RunInfo(run=row, read_at=made + timedelta(seconds=7))) == "7s"
    assert _age(RunInfo(run=row)) == "-"
