"""Folds the log into what a process needs to go on: pure, no I/O.

Who calls: the claim (all rows), the appender (each acknowledged row), and viewers.
What holds: seq has no gap; no id stands twice; epochs never go back; a record of a
newer format, or bytes that are no record, are refused by run and seq. Order is by
seq alone, never by time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

from google.protobuf.message import DecodeError

from agentrun.log.errors import CorruptLog, NewerFormat
from agentrun.proto import log_pb2 as pb

FORMAT = 1

ATTEMPT, TRY, INTENT, ASK = "attempt", "try", "intent", "ask_person"
REOPENED, FINALIZE = "reopened", "finalize_run"
OWN_KINDS = frozenset({ATTEMPT, TRY, INTENT, ASK, REOPENED, FINALIZE})
"""The kinds of the log itself; every other kind is a node of somebody's graph."""


@dataclass
class Totals:
    """What a run has used: the sums over its log. Tokens, milliseconds, counts."""

    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    tokens_reasoning: int = 0
    turns: int = 0
    retries: int = 0
    estimated: bool = False
    busy: Busy = field(default_factory=lambda: Busy())

    @property
    def tokens(self) -> int:
        """Input and output; the cached and the reasoning ones are part of them."""
        return self.tokens_in + self.tokens_out

    @property
    def wall_seconds(self) -> float:
        """Time in which at least one node ran."""
        return self.busy.total_us / 1e6

    def add(self, record: pb.NodeRecord) -> None:
        """Adds one record's cost and its time."""
        cost = record.cost
        self.tokens_in += cost.tokens_in
        self.tokens_out += cost.tokens_out
        self.tokens_cached += cost.tokens_cached
        self.tokens_reasoning += cost.tokens_reasoning
        self.turns += cost.turns
        self.retries += cost.retries
        self.estimated = self.estimated or cost.estimated
        if cost.wall_ms:
            self.busy.add(record.finished_us - cost.wall_ms * 1000, record.finished_us)


class Busy:
    """A union of time intervals: sorted, disjoint; new ones come near the end."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self.total_us = 0

    @property
    def end_us(self) -> int:
        """The latest moment; 0 for none."""
        return self._ends[-1] if self._ends else 0

    def add(self, start: int, end: int) -> None:
        """Adds [start, end), in microseconds."""
        if end <= start:
            return
        low = bisect_left(self._ends, start)
        high = bisect_right(self._starts, end)
        if low < high:
            start = min(start, self._starts[low])
            end = max(end, self._ends[high - 1])
            self.total_us -= sum(self._ends[low:high]) - sum(self._starts[low:high])
        self._starts[low:high] = [start]
        self._ends[low:high] = [end]
        self.total_us += end - start


class History:
    """The folded log of one run.

    `done`: node id → its one record. `spawned`: node id → how to run it, in the
    order of the log. `tries`: node id → failed tries so far, `last_try` the newest
    of them. `failed`: nodes whose newest try says that no other is of use.
    `intents`: nodes whose newest call was begun and has not been answered. `asks`: questions
    to people by their ids, open or not; `consumed`: answers that records have used.
    """

    def __init__(self, run_id: UUID) -> None:
        self.run_id = run_id
        self.head = 0
        self.epoch = 0
        self.attempt = 0
        self.ids: set[str] = set()
        self.done: dict[str, pb.NodeRecord] = {}
        self.spawned: dict[str, pb.Spawn] = {}
        self.tries: dict[str, int] = {}
        self.last_try: dict[str, pb.NodeRecord] = {}
        self.failed: dict[str, pb.NodeRecord] = {}
        self.intents: set[str] = set()
        self.asks: dict[str, pb.NodeRecord] = {}
        self.consumed: set[str] = set()
        self.final: pb.NodeRecord | None = None
        self.final_seq = 0
        self.totals = Totals()

    def fold_rows(self, rows: Iterable[tuple[int, bytes]]) -> None:
        """Folds rows in the order of seq."""
        for seq, data in rows:
            self.fold(seq, decode(self.run_id, seq, data))

    def fold(self, seq: int, record: pb.NodeRecord) -> None:
        """Folds the next record; CorruptLog where it cannot follow."""
        if seq != self.head + 1:
            raise CorruptLog(self.run_id, seq, f"a hole: record {self.head + 1} is missing")
        if record.id in self.ids:
            raise CorruptLog(self.run_id, seq, f"id {record.id!r} stands twice")
        if record.epoch < self.epoch:
            raise CorruptLog(self.run_id, seq, f"epoch goes back from {self.epoch} to {record.epoch}")
        self.head = seq
        self.epoch = record.epoch
        self.ids.add(record.id)
        self.totals.add(record)
        self.consumed.update(record.consumed)
        self._fold_kind(seq, record)

    def _fold_kind(self, seq: int, record: pb.NodeRecord) -> None:
        kind = record.kind
        if kind == ATTEMPT:
            self.attempt = record.attempt
        elif kind == TRY:
            node = record.id.rpartition("#")[0]
            self.tries[node] = self.tries.get(node, 0) + 1
            self.last_try[node] = record
            if not record.error.retryable:
                self.failed[node] = record
            self.intents.discard(node)
        elif kind == INTENT:
            self.intents.add(record.parents[0])
        elif kind == ASK:
            self.asks[record.ask.id] = record
        elif kind == REOPENED:
            self.final, self.final_seq = None, 0
            self.failed.clear()
        else:
            self.done[record.id] = record
            self.intents.discard(record.id)
            for spawn in record.spawned:
                self.spawned[spawn.id] = spawn
        if record.HasField("final"):
            self.final, self.final_seq = record, seq

    def pending(self) -> list[pb.Spawn]:
        """Spawned and not done, in the order of the log."""
        return [spawn for id_, spawn in self.spawned.items() if id_ not in self.done]

    def begun(self) -> list[pb.Spawn]:
        """Tried, not done, and spawned by a record (a graph's first node is known when it is opened)."""
        return [self.spawned[id_] for id_ in self.tries if id_ in self.spawned and id_ not in self.done]


def decode(run_id: UUID, seq: int, data: bytes) -> pb.NodeRecord:
    """The record of a row; CorruptLog where the bytes are none, NewerFormat where they are too new."""
    record = pb.NodeRecord()
    try:
        record.ParseFromString(data)
    except DecodeError as error:
        raise CorruptLog(run_id, seq, "the bytes are no record") from error
    if record.format > FORMAT:
        raise NewerFormat(
            run_id, seq, f"written by a newer build (format {record.format}, this one knows {FORMAT})"
        )
    if record.format == 0 or not record.id or not record.kind:
        raise CorruptLog(run_id, seq, "the bytes are no record")
    return record
