"""The display that a person watches: what has finished above, what is in flight below.

Who calls: `progress`, where stderr is a terminal; imports rich. What holds: finished
steps become ordinary lines of the terminal, so that any number of them costs nothing;
below them stand at most IN_FLIGHT_SHOWN_MAX lines and the budget, of which one line is
left in the end. Whoever draws holds `_drawing`: rich positions the cursor first and
draws later, and two threads in between would leave lines of each other behind.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from agentrun.cli.progress import Progress
from agentrun.cli.text import clock, limit
from agentrun.graph.executor import Executor
from agentrun.graph.observing import DISCARD, PARTIAL
from agentrun.graph.types import scope_of
from agentrun.local.records import MESSAGE_CHARACTERS_MAX, one_line
from agentrun.log.replay import FINALIZE
from agentrun.log.runlog import RunLog
from agentrun.log.store import RunInfo
from agentrun.proto import log_pb2 as pb

IN_FLIGHT_SHOWN_MAX = 12
REFRESHES_PER_SECOND = 8
BAR_WIDTH = 24
ARGUMENTS_SHOWN_MAX = 48
TAIL_CHARACTERS_KEPT = 400

SHOW_CURSOR = "\x1b[?25h"

QUIET_KINDS = frozenset({"run_tool_batch", FINALIZE})
"""Steps of the graph that a person learns nothing from."""


@dataclass
class _InFlight:
    """`tail`: the end of what its result says so far."""

    title: str
    depth: int
    since: float
    tail: str = ""


class _Now:
    """What stands at the time of drawing, whoever makes rich draw."""

    def __init__(self, render: Callable[[], Group]) -> None:
        self._render = render

    def __rich__(self) -> Group:
        return self._render()


class LiveProgress(Progress):
    """See the module's docstring."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._console = Console(file=stream, highlight=False)
        self._in_flight: dict[str, _InFlight] = {}
        self._spinner = Spinner("dots")
        self._title = ""
        self._state = ""
        self._away = ""
        self._drawing = threading.RLock()
        self._ended = threading.Event()
        self._since = time.monotonic()
        self._live = Live(
            _Now(self._render),
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def begin(self, info: RunInfo, attempt: int) -> None:
        again = f"  attempt {attempt}" if attempt > 1 else ""
        with suppress(OSError, ValueError), self._drawing:
            self._console.print(
                Text.assemble((info.run.name, "bold"), "  ", (str(info.run.run_id), "dim"), again)
            )
            self._live.start()
        # A thread, for the loop may be held up by what it runs.
        threading.Thread(target=self._refresh, name="display", daemon=True).start()

    def _refresh(self) -> None:
        with suppress(OSError, ValueError):  # the terminal is gone
            while not self._ended.wait(1 / REFRESHES_PER_SECOND):
                with self._drawing:
                    if not self._ended.is_set():
                        self._live.refresh()

    def claimed(self, log: RunLog, executor: Executor) -> None:
        super().claimed(log, executor)
        if log.history.done:
            with suppress(OSError, ValueError), self._drawing:
                self._console.print(Text(f"  {len(log.history.done)} steps are done already", "dim"))

    def show(self, event: str, node_id: str, fields: Mapping[str, Any]) -> None:
        with self._drawing:
            self._show(event, node_id, fields)

    def _show(self, event: str, node_id: str, fields: Mapping[str, Any]) -> None:
        if event == "launched":
            self._launched(node_id, fields["kind"], fields["try"])
        elif event == "finished":
            self._finished(fields["record"])
        elif event == "failed":
            self._failed(node_id, fields["record"])
        elif event == PARTIAL and (node := self._in_flight.get(node_id)) is not None:
            text = f" [{fields['text']}] " if fields["kind"] == "call" else fields["text"]
            node.tail = (node.tail + text)[-TAIL_CHARACTERS_KEPT:]
        elif event == DISCARD and (node := self._in_flight.get(node_id)) is not None:
            node.tail = ""
        elif event == "parked":
            self._in_flight.pop(node_id, None)
            self._warn(f"{fields['id']} waits for a person ({fields['reason']})")
        elif event == "stopping":
            self._state = f"stopping: {fields['reason']}"
            if self._in_flight:
                self._warn(f"{fields['reason']}: waiting for the steps in flight (once more ends at once)")
        elif event == "store_away":
            if not self._away:
                self._warn(f"the store is away: {one_line(fields['error'])}")
            self._away = f"the store is away since {clock(fields['seconds'])}"
        elif event == "store_back":
            self._away = ""
            self._warn("the store is back")
        elif event == "note":
            self._warn(one_line(fields["message"], characters_max=MESSAGE_CHARACTERS_MAX))

    def _warn(self, text: str) -> None:
        self._console.print(Text("  " + text, "yellow"))

    def end(self) -> None:
        with suppress(OSError, ValueError), self._drawing:
            if self._ended.is_set():
                return
            self._ended.set()
            self._in_flight.clear()
            self._state = self._away = ""
            self._live.stop()
            self._console.print(self._totals(time.monotonic(), bar=False), no_wrap=True, crop=True)

    def restore(self) -> None:
        with suppress(OSError, ValueError):
            self.stream.write(SHOW_CURSOR + "\n")
            self.stream.flush()

    # --- what has happened

    def _launched(self, node_id: str, kind: str, try_number: int) -> None:
        title = self._name(node_id, kind)
        if try_number > 1:
            title += f" (try {try_number})"
        self._in_flight[node_id] = _InFlight(title, scope_of(node_id).count("/"), time.monotonic())

    def _finished(self, record: pb.NodeRecord) -> None:
        self._in_flight.pop(record.id, None)
        if record.kind in QUIET_KINDS:
            return
        seconds = record.cost.wall_ms / 1000
        tokens = record.cost.tokens_in + record.cost.tokens_out
        figures = f"{seconds:.1f} s" + (f", {tokens:,} tokens" if tokens else "")
        title = self._name(record.id, record.kind)
        # A result that says what its line says already begins with its own name.
        what = self.what(record).removeprefix(f"{title.partition(' ')[0]} ok: ")
        self._line("✓", "green", record.id, title, figures, what)

    def _failed(self, node_id: str, record: pb.NodeRecord) -> None:
        node = self._in_flight.pop(node_id, None)
        title = node.title if node else node_id
        style = "yellow" if record.error.retryable else "red"
        self._line("✗", style, node_id, title, f"{record.cost.wall_ms / 1000:.1f} s", self.what(record))

    def _line(self, mark: str, style: str, node_id: str, title: str, figures: str, what: str) -> None:
        indent = "  " * (1 + scope_of(node_id).count("/"))
        text = Text.assemble(indent, (mark, style), " ", title, "  ", (figures, "cyan"), "  ", (what, "dim"))
        self._console.print(text, no_wrap=True, overflow="ellipsis")

    def _name(self, node_id: str, kind: str) -> str:
        """What a step is called: its tool, its turn, or its kind."""
        if (call := self.call(kind, node_id)) is not None:
            return f"{call.name} {one_line(call.arguments)[:ARGUMENTS_SHOWN_MAX]}".strip()
        if kind == "run_assistant_turn":
            return "turn " + node_id.rpartition("-")[2]
        return "message" if kind == "append_user_message" else f"{kind} {node_id[len(scope_of(node_id)) :]}"

    # --- what is now; called by the display's own thread

    def _render(self) -> Group:
        now = time.monotonic()
        parts: list[Any] = []
        nodes = list(self._in_flight.values())
        for node in nodes[:IN_FLIGHT_SHOWN_MAX]:
            row = Table.grid(padding=(0, 1))
            seconds = Text(f"{now - node.since:.1f} s", "cyan")
            row.add_row(Text("  " * node.depth + " "), self._spinner, Text(node.title), seconds)
            parts.append(row)
            if node.tail.strip():
                width = max(8, self._console.width - 2 * node.depth - 6)
                tail = " ".join(node.tail.split())[-width:]
                parts.append(Text("  " * node.depth + "    " + tail, "dim", no_wrap=True, overflow="crop"))
        if len(nodes) > IN_FLIGHT_SHOWN_MAX:
            parts.append(Text(f"   and {len(nodes) - IN_FLIGHT_SHOWN_MAX} more", "dim"))
        parts.append(self._totals(now))
        return Group(*parts)

    def _totals(self, now: float, *, bar: bool = True) -> Table:
        row = Table.grid(padding=(0, 1))
        cells: list[Any] = [Text("  " + clock(now - self._since), "bold")]
        if self.history is not None and self.executor is not None:
            totals, limits = self.history.totals, self.executor.budget.limits
            if limits.tokens and bar:
                used = min(totals.tokens, limits.tokens)
                cells.append(ProgressBar(total=limits.tokens, completed=used, width=BAR_WIDTH))
            cells.append(Text(limit(totals.tokens, limits.tokens or None) + " tokens"))
            cells.append(Text(f"· {limit(totals.turns, limits.turns or None)} turns", "dim"))
            if totals.retries:
                cells.append(Text(f"· {limit(totals.retries, limits.retries)} retries", "dim"))
        cells.extend(Text(state, "yellow") for state in (self._away, self._state) if state)
        row.add_row(*cells)
        return row
