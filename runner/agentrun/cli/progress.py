"""What is told of a run while it runs: nothing, plain lines, or a display.

Who calls: `attend`, and the executor through `observe`. What holds: nothing here may
harm the run: what cannot be shown is not shown. Everything goes to stderr; stdout is
the answer's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TextIO

from agentrun.cli.common import is_terminal
from agentrun.cli.text import fields
from agentrun.graph.executor import Executor
from agentrun.graph.observing import PASSING
from agentrun.local.records import called_tool, describe, one_line
from agentrun.log.replay import History
from agentrun.log.runlog import RunLog
from agentrun.log.store import RunInfo
from agentrun.proto import log_pb2 as pb
from agentrun.proto.transcript_pb2 import ToolCallPart

TOLD_SECONDS = 15.0
"""How often it is told that the store is still away."""


def choose_progress(*, quiet: bool, stream: TextIO | None = None) -> Progress:
    """A display where somebody watches and can be shown one, plain lines elsewhere."""
    stream = stream or sys.stderr
    if quiet:
        return Progress(stream)
    if is_terminal(stream) and os.environ.get("TERM", "dumb") != "dumb":
        with suppress(ImportError):
            from agentrun.cli.live import LiveProgress

            return LiveProgress(stream)
    return PlainProgress(stream)


class Outage:
    """How often a store that is away is worth a word: at once, and then every TOLD_SECONDS."""

    def __init__(self) -> None:
        self._due = 0.0

    def news(self, seconds: float) -> bool:
        """Whether it is time for one, `seconds` after the store went away."""
        if seconds < self._due:
            return False
        self._due = seconds + TOLD_SECONDS
        return True


class Progress:
    """Shows nothing, and keeps what is needed to tell how it ended."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.history: History | None = None
        self.executor: Executor | None = None
        self.store_away = Outage()

    def begin(self, info: RunInfo, attempt: int) -> None:
        """The attempt is ours, and claims the run next."""

    def claimed(self, log: RunLog, executor: Executor) -> None:
        """The run is ours, and goes on next."""
        self.history, self.executor = log.history, executor

    def observe(self, event: str, node_id: str, fields: Mapping[str, Any]) -> None:
        """An event of the executor."""
        with suppress(OSError, ValueError):  # the terminal is gone
            self.show(event, node_id, fields)

    def show(self, event: str, node_id: str, fields: Mapping[str, Any]) -> None:
        """Shows it."""

    def note(self, text: str) -> None:
        """Something that is no event of the run's, and that whoever waits wants to know."""
        self.observe("note", "", {"message": text})

    def end(self) -> None:
        """Nothing more comes."""

    def restore(self) -> None:
        """The process ends here and now, whatever its other threads do: leaves the terminal in order."""

    def call(self, kind: str, node_id: str) -> ToolCallPart | None:
        """The call of a tool that a node makes, where it makes one that is known."""
        if kind != "tool_call" or self.history is None:
            return None
        return called_tool(self.history.done, node_id)

    def what(self, record: pb.NodeRecord) -> str:
        """The record in a few words."""
        at_hand = record.output.WhichOneof("where") != "blob"
        return describe(record, record.output.inline if at_hand else None)


class PlainProgress(Progress):
    """One line an event: its name, then key=value."""

    def begin(self, info: RunInfo, attempt: int) -> None:
        with suppress(OSError, ValueError):
            self._line("run", id=info.run.run_id, name=info.run.name, attempt=attempt)

    def claimed(self, log: RunLog, executor: Executor) -> None:
        super().claimed(log, executor)
        with suppress(OSError, ValueError):
            self._line("claimed", epoch=log.epoch, records=log.history.head)

    def show(self, event: str, node_id: str, fields: Mapping[str, Any]) -> None:
        if event == "launched":
            call = self.call(fields["kind"], node_id)
            tool = call.name if call is not None else None
            self._line(event, node=node_id, kind=fields["kind"], tool=tool, **{"try": fields["try"]})
        elif event in ("finished", "failed"):
            self._record(event, fields["record"])
        elif event == "store_away":
            if self.store_away.news(fields["seconds"]):
                self._line(event, seconds=round(fields["seconds"]), error=one_line(fields["error"]))
        elif event == "store_back":
            self.store_away = Outage()
            self._line(event)
        elif event not in PASSING:
            self._line(event, **fields)

    def _record(self, event: str, record: pb.NodeRecord) -> None:
        cost = record.cost
        tokens = {"in": cost.tokens_in, "out": cost.tokens_out} if cost.tokens_in or cost.tokens_out else {}
        self._line(event, node=record.id, kind=record.kind, ms=cost.wall_ms, **tokens, what=self.what(record))

    def _line(self, event: str, **values: object) -> None:
        print(event, fields(**values), file=self.stream, flush=True)
