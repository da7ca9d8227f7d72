"""A process that is told to end at once, while its tools heed nobody: no failure is counted."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.integration.cli.conftest import ANSWER, Agentrun, Running, manifest

TOOLS = """
import asyncio, os, time

async def stubborn() -> str:
    "Does not heed its cancellation."
    end = time.monotonic() + float(os.environ["TOOL_SECONDS"])
    while time.monotonic() < end:
        try:
            await asyncio.sleep(0.1)
        except asyncio.CancelledError:
            pass
    return "ok"

async def blocking() -> str:
    "Holds the loop."
    end = time.monotonic() + float(os.environ["TOOL_SECONDS"])
    while time.monotonic() < end:
        time.sleep(0.1)
    return "ok"
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], str]:
    """Writes a manifest whose tool heeds nobody, and which has no retries."""
    (tmp_path / "heedless_tools.py").write_text(TOOLS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("TOOL_SECONDS", "300")

    def write(tool: str, grace_seconds: int) -> str:
        turn: dict[str, Any] = {"toolCalls": [{"name": tool}]}
        model = {"name": "scripted:x", "script": {"turns": [turn, ANSWER]}}
        tools = [
            {"name": tool, "python": {"entrypoint": f"heedless_tools:{tool}"}, "effect": "read_only"},
        ]
        return manifest(
            tmp_path,
            [],
            agent={"model": model, "tools": tools},
            budget={"retries": 0},
            terminationGracePeriodSeconds=grace_seconds,
        )

    return write


def goes_on(agentrun: Agentrun, start: Callable[..., Running], run_id: str) -> None:
    """Its attempt is paused, and the resume needs no retry."""
    (attempt,) = agentrun("show", run_id, "-o", "json").json["attempts"]
    assert (attempt["outcome"], attempt["reason"]) == ("Paused", "Terminated")
    said = start("resume", run_id).end()
    assert (said.code, said.out) == (0, "the answer\n"), said
    view = agentrun("show", run_id, "-o", "json").json
    assert [attempt["outcome"] for attempt in view["attempts"]] == ["Paused", "Succeeded"]
    assert view["budget"]["retries"]["used"] == 0


@pytest.mark.parametrize("tool", ["stubborn", "blocking"])
@pytest.mark.parametrize("signals", [2, 3])
def test_signals_end_a_run_whose_tool_heeds_nobody(
    file: Callable[[str, int], str],
    start: Callable[..., Running],
    agentrun: Agentrun,
    monkeypatch: pytest.MonkeyPatch,
    tool: str,
    signals: int,
) -> None:
    run_id = str(uuid4())
    running = start("run", file(tool, 300), "--run-id", run_id)
    running.until("launched node=call-1-0")
    began = time.monotonic()
    for _ in range(signals):
        running.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
    said = running.end()
    assert said.code == 75
    assert said.err.endswith(
        f"agentrun: paused (Terminated)\nagentrun: go on with: agentrun resume {run_id}\n"
    )
    assert time.monotonic() - began < (8 if signals == 2 else 4)
    monkeypatch.setenv("TOOL_SECONDS", "0")
    goes_on(agentrun, start, run_id)


def test_the_end_of_the_grace_ends_a_run_whose_tool_holds_the_loop(
    file: Callable[[str, int], str],
    start: Callable[..., Running],
    agentrun: Agentrun,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_id = str(uuid4())
    running = start("run", file("blocking", 1), "--run-id", run_id)
    running.until("launched node=call-1-0")
    running.process.terminate()
    assert running.end().code == 75
    monkeypatch.setenv("TOOL_SECONDS", "0")
    goes_on(agentrun, start, run_id)
