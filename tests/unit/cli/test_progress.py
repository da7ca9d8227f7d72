"""What is told of a run while it runs."""

from __future__ import annotations

import io
import re
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from agentrun.cli import live
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


class Screen(Terminal):
    """A terminal as far as the display uses one: what stands on it in the end."""

    def __init__(self) -> None:
        super().__init__()
        self.lines = [""]
        self.row = 0
        self.column = 0

    def write(self, text: str) -> int:
        for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", text):
            self._apply(part)
        return len(text)

    def _apply(self, part: str) -> None:
        if part == "\r":
            self.column = 0
        elif part == "\n":
            self.row, self.column = self.row + 1, 0
            self.lines += [""] * (self.row + 1 - len(self.lines))
        elif part == "\x1b[2K":
            self.lines[self.row] = ""
        elif part == "\x1b[1A":
            self.row -= 1
            assert self.row >= 0
        elif not part.startswith("\x1b"):
            line = self.lines[self.row].ljust(self.column)
            self.lines[self.row] = line[: self.column] + part + line[self.column + len(part) :]
            self.column += len(part)


def test_the_display_leaves_no_line_behind_but_what_has_finished_and_the_totals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its own thread draws all the while, as often as it can."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(live, "REFRESHES_PER_SECOND", 10_000)
    screen = Screen()
    progress = LiveProgress(screen)
    executor: Any = SimpleNamespace(budget=SimpleNamespace(limits=Limits(tokens=100, turns=5)))
    log: Any = SimpleNamespace(history=History(RUN_ID), epoch=1)
    progress.begin(INFO, 1)
    progress.claimed(log, executor)
    for number in range(0, 200, 2):
        for id_ in (f"step-{number}", f"step-{number + 1}"):
            progress.observe("launched", id_, {"kind": "step", "try": 1})
        for id_ in (f"step-{number}", f"step-{number + 1}"):
            record = pb.NodeRecord(format=1, id=id_, kind="step", cost=pb.Cost(wall_ms=100))
            progress.observe("finished", id_, {"record": record})
    progress.observe("launched", "step-200", {"kind": "step", "try": 1})
    progress.observe("parked", "step-200", {"reason": "ApprovalRequired", "id": "step-200-1"})
    progress.end()
    progress.end()
    _, *finished, parked, totals, empty = screen.lines
    assert parked.split() == ["step-200-1", "waits", "for", "a", "person", "(ApprovalRequired)"]
    assert [line.split()[:3] for line in finished] == [["✓", "step", f"step-{n}"] for n in range(200)]
    assert totals.split()[1:] == ["0", "of", "100", "tokens", "·", "0", "of", "5", "turns"]
    assert empty == ""


@pytest.mark.parametrize("kind", [PlainProgress, LiveProgress])
def test_a_store_that_is_away_is_told_of_now_and_then_and_when_it_is_back(
    kind: type[Progress], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    progress = kind(stream)
    for seconds in (1.2, 3.0, 8.0, 16.5, 20.0, 32.0):
        fields = {"seconds": seconds, "error": "connection refused\x1b[31m"}
        progress.observe("store_away", "", fields)
    progress.observe("store_back", "", {"seconds": 0.0, "error": ""})
    progress.note("it was started again")
    progress.observe("something new", "", {"of": "later"})
    progress.end()
    said = stream.getvalue()
    assert "connection refused\x1b" not in said and "it was started again" in said
    if kind is PlainProgress:
        told = [line for line in said.splitlines() if line.startswith("store_")]
        assert [line.split()[:2] for line in told] == [
            ["store_away", "seconds=1"],
            ["store_away", "seconds=16"],
            ["store_away", "seconds=32"],
            ["store_back"],
        ]
    else:
        assert said.count("the store is away: connection refused") == 1
        assert said.count("the store is back") == 1


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
