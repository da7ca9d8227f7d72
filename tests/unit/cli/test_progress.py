"""What is told of a run while it runs."""

from __future__ import annotations

import io
import re
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from agentrun.cli.live import LiveProgress
from agentrun.cli.progress import PlainProgress, Progress, choose_progress
from agentrun.graph.budget import Limits
from agentrun.log.replay import History
from agentrun.log.store import RunInfo, RunRow
from agentrun.proto import log_pb2 as pb
from agentrun.proto import transcript_pb2 as transcript

RUN_ID = UUID("aaaa1111-0000-4000-8000-000000000000")
INFO = RunInfo(run=RunRow(run_id=RUN_ID, owner="local/x", name="x", definition=b"", digest=""))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Gone(io.StringIO):
    """A terminal that was closed."""

    def write(self, text: str) -> int:
        raise OSError("gone")


def turn_record() -> pb.NodeRecord:
    call = transcript.ToolCallPart(name="lookup", arguments='{"topic": "leases"}')
    turn = transcript.AssistantTurn(parts=[transcript.Part(tool_call=call)])
    output = pb.Payload(inline=turn.SerializeToString(), media_type="application/x-protobuf")
    cost = pb.Cost(tokens_in=10, tokens_out=2, wall_ms=400, turns=1)
    return pb.NodeRecord(format=1, id="turn-1", kind="run_assistant_turn", output=output, cost=cost)


def tell(progress: Progress) -> None:
    """A run of a turn, a tool's failed try, and a stop."""
    history = History(RUN_ID)
    executor: Any = SimpleNamespace(budget=SimpleNamespace(limits=Limits(tokens=100, turns=5)))
    log: Any = SimpleNamespace(history=history, epoch=1)
    progress.begin(INFO, 2)
    progress.claimed(log, executor)
    progress.observe("launched", "turn-1", {"kind": "run_assistant_turn", "try": 1})
    record = turn_record()
    history.fold(1, record)
    progress.observe("finished", "turn-1", {"record": record})
    progress.observe("launched", "call-1-0", {"kind": "tool_call", "try": 1})
    error = pb.Error(reason="Timeout", message="too slow", retryable=True, retry_in_ms=1000)
    failed = pb.NodeRecord(id="call-1-0#1", kind="try", error=error)
    progress.observe("failed", "call-1-0", {"record": failed})
    progress.observe("launched", "call-1-0", {"kind": "tool_call", "try": 2})
    progress.observe("stopping", "", {"reason": "Terminated", "message": ""})
    progress.end()


def test_plain_lines_are_an_event_and_its_fields() -> None:
    stream = io.StringIO()
    tell(PlainProgress(stream))
    assert stream.getvalue().splitlines() == [
        "run id=aaaa1111-0000-4000-8000-000000000000 name=x attempt=2",
        "claimed epoch=1 records=0",
        "launched node=turn-1 kind=run_assistant_turn try=1",
        'finished node=turn-1 kind=run_assistant_turn ms=400 in=10 out=2 what="(calls lookup)"',
        "launched node=call-1-0 kind=tool_call tool=lookup try=1",
        'failed node=call-1-0#1 kind=try ms=0 what="Timeout: too slow, again in 1 s"',
        "launched node=call-1-0 kind=tool_call tool=lookup try=2",
        'stopping reason=Terminated message=""',
    ]


def test_the_display_tells_the_same_and_leaves_a_transcript(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    tell(LiveProgress(stream))
    said = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    assert "x  aaaa1111-0000-4000-8000-000000000000  attempt 2" in said
    assert "✓ turn 1  0.4 s, 12 tokens  (calls lookup)" in said
    assert '✗ lookup {"topic": "leases"}  0.0 s  Timeout: too slow, again in 1 s' in said
    assert "Terminated: waiting for the steps in flight" in said
    assert "12 of 100 tokens" in said and "1 of 5 turns" in said


def test_a_terminal_that_is_gone_does_not_harm_the_run() -> None:
    tell(PlainProgress(Gone()))


def test_who_watches_decides_what_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert type(choose_progress(quiet=True, stream=Terminal())) is Progress
    assert type(choose_progress(quiet=False, stream=io.StringIO())) is PlainProgress
    assert type(choose_progress(quiet=False, stream=Terminal())) is LiveProgress
    monkeypatch.setenv("TERM", "dumb")
    assert type(choose_progress(quiet=False, stream=Terminal())) is PlainProgress


def test_without_rich_there_are_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delitem(sys.modules, "agentrun.cli.live")
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert type(choose_progress(quiet=False, stream=Terminal())) is PlainProgress
