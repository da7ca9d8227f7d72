"""The seam to storage: each method is one statement (or one transaction), all or nothing.

Everything that decides (claiming, fencing, packing, recovery) is written once,
above this seam, and runs unchanged on `memory` and `postgres`; one contract suite
holds both to what is said here. Any method may raise `StoreUnavailable`, after
which the statement may or may not have been executed; nothing here retries.

Two ways lead to the store. Appends go over one connection of their own, named by
a `Token`; whoever holds an old token must look before it appends again. All else
goes over a side connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol
from uuid import UUID


class AttemptOutcome(StrEnum):
    """How an attempt ended; written once."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    PAUSED = "Paused"
    FENCED = "Fenced"
    CRASHED = "Crashed"
    """The process died by its own fault; draws from the run's retry budget."""
    DISRUPTED = "Disrupted"
    """The process was taken away (drain, eviction, take-over); draws nothing."""


@dataclass(frozen=True, kw_only=True)
class Token:
    """One connection for appends: `serial` counts reconnects of this store object,
    `server` names the server's incarnation (its start time)."""

    serial: int
    server: str


@dataclass(frozen=True, kw_only=True)
class Levels:
    """What the owner wants, as levels. `generation` orders writes: an older one changes nothing.

    `shutdown` is "", "Stop" or "Terminate", with ": " and why behind it where that was said.
    `budget` is the JSON text of the limits that hold now ("" where the definition's own hold).
    """

    generation: int = 0
    suspend: bool = False
    shutdown: str = ""
    budget: str = ""

    @property
    def shutdown_how(self) -> str:
        """ "", "Stop" or "Terminate"."""
        return self.shutdown.partition(": ")[0]

    @property
    def shutdown_why(self) -> str:
        """What was said about it, "" if nothing."""
        return self.shutdown.partition(": ")[2]


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """A row of `run`."""

    run_id: UUID
    owner: str
    name: str
    definition: bytes
    digest: str
    levels: Levels = field(default_factory=Levels)
    epoch: int = 0
    attempt: int = 0
    ended: bool = False
    created_at: datetime | None = None
    ended_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class AttemptRow:
    """A row of `run_attempt`. `confirmed_age_seconds`: since the attempt last confirmed
    itself (or was allocated), by the store's clock at the time of reading."""

    attempt: int
    process: str
    confirmed_age_seconds: float
    claimed: bool = False
    outcome: AttemptOutcome | None = None
    reason: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Look:
    """What a process must know to go on: who owns the run, and what its owner wants.

    `head` is the greatest seq in the log (0: none). `claimer` made the newest claim, and
    is empty while a newer attempt is allocated that has not claimed yet. `inbox`: how many
    rows the run's inbox has.
    """

    epoch: int
    attempt: int
    ended: bool
    head: int
    levels: Levels
    server: str
    claimer: bytes = b""
    inbox: int = 0


@dataclass(frozen=True, kw_only=True)
class LogRow:
    """A row of `run_log` on its way in. `final` says that `record` is the record that ends the run."""

    run_id: UUID
    seq: int
    record: bytes
    final: bool = False


@dataclass(frozen=True, kw_only=True)
class InboxRow:
    """A row of `run_inbox`: an approval or a message, never updated."""

    id: str
    kind: str
    payload: bytes
    created_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """A run as lists show it: its row, its newest attempt, its summary (JSON text, "" if none).

    `read_at`: the store's clock at the time of reading, which alone the row's times compare with.
    `inbox`: how many rows the run's inbox has.
    """

    run: RunRow
    last_attempt: AttemptRow | None = None
    summary: str = ""
    read_at: datetime | None = None
    inbox: int = 0


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How a run stands, without what is large: for whoever looks at many runs at once.

    `claimed` and `outcome` are of attempt `attempt` (none yet: False, None); `summary_head` is
    the head of the log that the summary is of. `inbox`: how many rows the run's inbox has.
    """

    run_id: UUID
    owner: str
    attempt: int
    ended: bool
    generation: int
    suspend: bool
    claimed: bool = False
    outcome: AttemptOutcome | None = None
    summary_head: int = 0
    inbox: int = 0


Hint = Callable[[UUID | None], None]
"""Called when a run may have changed; None: anything may have (the listener was away)."""


class LogStore(Protocol):
    """See the module's docstring. `postgres.PostgresStore` and `memory.MemoryStore` are it."""

    # --- runs -----------------------------------------------------------------

    async def create_run(self, row: RunRow) -> bool:
        """Inserts the run (owner, name, definition, digest, levels); False: its id is taken."""

    async def get_run(self, run_id: UUID) -> RunInfo | None:
        """The run, or None."""

    async def list_runs(
        self, *, owner_prefix: str = "", limit: int = 100, before: tuple[datetime, UUID] | None = None
    ) -> list[RunInfo]:
        """The newest first (by created_at, then id); behind the run `before` where it is given."""

    async def resolve(self, run_id: UUID, resolved: bytes | None) -> bytes | None:
        """Stores the definition with its referenced texts in it, unless one is stored
        already; the one that stands from now on. None: there is no such run. With
        `resolved` None it only asks, and None says that none stands."""

    async def live_runs(self, owner_prefix: str) -> list[Standing]:
        """All runs whose owner begins so and that have not ended, in no order."""

    async def standings(self, run_ids: Sequence[UUID]) -> list[Standing]:
        """The runs with these ids that there are, in no order."""

    async def adopt(self, run_id: UUID, *, owner: str, new_owner: str, levels: Levels) -> bool:
        """Gives the run to another owner, whose levels hold from now on whatever generation
        they are of. False, and nothing done, where its owner is not `owner`."""

    async def set_levels(self, run_id: UUID, levels: Levels) -> bool:
        """Sets all levels if `levels.generation` is greater than the stored one; else False."""

    # --- attempts and claim ---------------------------------------------------

    async def allocate_attempt(
        self, run_id: UUID, *, expected: int, process: str, previous: AttemptOutcome
    ) -> int | None:
        """Makes attempt `expected + 1` in `run_attempt` and `run`, if `run.attempt` is
        still `expected` and the run has not ended; None otherwise. Attempts below it
        that have no outcome get `previous`. `process` says who (JSON text)."""

    async def attempts(self, run_id: UUID) -> list[AttemptRow]:
        """All attempts, oldest first."""

    async def close_attempt(self, run_id: UUID, attempt: int, outcome: AttemptOutcome, reason: str) -> bool:
        """Writes the outcome once; False: it has one."""

    async def claim(self, run_id: UUID, *, attempt: int, claimer: bytes) -> int | None:
        """Raises the epoch and returns it, if `attempt` is the run's newest and the run
        has not ended; None otherwise. The same claimer gets the same epoch again.
        Marks the attempt claimed and confirmed."""

    async def look(self, run_id: UUID, *, attempt: int) -> Look | None:
        """Epoch, head and levels, from the primary and fit to write; None: there is no
        such run. Confirms `attempt` by the store's clock where it has no outcome
        (attempt 0: confirms none)."""

    async def reopen(self, row: LogRow) -> bool:
        """In one transaction: appends the `reopened` record at max + 1, clears `ended`,
        raises epoch and attempt. False, and nothing done, where the run has not ended or
        `row.seq` is not max + 1."""

    # --- the log --------------------------------------------------------------

    async def connect(self) -> Token:
        """Makes sure that there is a connection for appends, and names it.

        Where its server is another one than the side connection's, that one is given up."""

    def give_up(self, token: Token) -> None:
        """Gives up the connection of `token`, if it is still the one in use: the next
        `connect` makes another, with another token."""

    async def insert_row(self, row: LogRow, token: Token) -> bool:
        """Inserts the row if its place is free; True: inserted, False: not.

        False where the place is taken or the server is another one than the token's. A
        final row sets `run.ended` in the same statement. StoreUnavailable when the
        connection of `token` is gone."""

    async def insert_pack(self, rows: Sequence[LogRow], token: Token) -> bool:
        """Inserts all rows, or none (False), as `insert_row`. No row is final; rows are
        sorted by (run_id, seq)."""

    async def insert_next(self, row: LogRow, token: Token) -> bool:
        """As `insert_row`, and only if `row.seq` is the server's max(seq) + 1."""

    async def read_rows(self, run_id: UUID, *, after: int = 0, limit: int = 0) -> list[tuple[int, bytes]]:
        """(seq, record) with seq > after, in order; limit 0: all."""

    async def read_new(self, heads: Mapping[UUID, int], *, limit: int) -> list[tuple[UUID, int, bytes]]:
        """(run_id, seq, record) of all these runs with seq > its head: the first `limit` of
        each, in order within a run. For whoever follows many runs at once."""

    # --- inbox, summary, hints, blobs -------------------------------------------

    async def post(self, run_id: UUID, row: InboxRow) -> bool:
        """Adds a message; False: that id is there already."""

    async def inbox(self, run_id: UUID) -> list[InboxRow]:
        """All messages, oldest first."""

    async def put_summary(self, run_id: UUID, *, epoch: int, head: int, summary: str) -> None:
        """Stores the projection, unless a newer one (epoch, then head) is there."""

    async def notify(self, run_ids: Sequence[UUID]) -> None:
        """Hints to listeners that these runs may have changed."""

    async def listen(self, hint: Hint) -> None:
        """From now on calls `hint`; with None after each time that hints may have been lost."""

    async def put_blob(self, run_id: UUID, sha256: bytes, data: bytes) -> None:
        """Stores the bytes; the same again is nothing."""

    async def get_blob(self, run_id: UUID, sha256: bytes) -> bytes | None:
        """The bytes, or None."""

    async def close(self) -> None:
        """Closes both connections."""
