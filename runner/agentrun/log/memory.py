"""The store in memory: for tests, the simulator, and programs that need no durability.

It keeps the same contract as Postgres. Every method runs without an await in its
middle, so that each is one atomic statement. Faults are the simulator's business,
which wraps this class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from uuid import UUID

from agentrun.log.errors import StoreUnavailable
from agentrun.log.store import (
    AttemptOutcome,
    AttemptRow,
    Hint,
    InboxRow,
    Levels,
    LogRow,
    Look,
    RunInfo,
    RunRow,
    Standing,
    Token,
)


@dataclass
class _Run:
    row: RunRow
    claimer: bytes = b""
    resolved: bytes = b""
    log: dict[int, bytes] = field(default_factory=dict)
    head: int = 0
    attempts: dict[int, AttemptRow] = field(default_factory=dict)
    confirmed: dict[int, float] = field(default_factory=dict)
    inbox: dict[str, InboxRow] = field(default_factory=dict)
    summary: tuple[int, int, str] = (0, 0, "")
    blobs: dict[bytes, bytes] = field(default_factory=dict)


class Database:
    """What several stores share: the tables and the clock (seconds; `now` is the database's)."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.runs: dict[UUID, _Run] = {}
        self.server = "1"
        self.hints: list[Hint] = []

    def stamp(self) -> datetime:
        return datetime.fromtimestamp(self.now(), UTC)


class MemoryStore:
    """See `agentrun.log.store.LogStore`. Several stores over one `Database` are several processes."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._serial = 1

    # --- runs

    async def create_run(self, row: RunRow) -> bool:
        if row.run_id in self._db.runs:
            return False
        self._db.runs[row.run_id] = _Run(
            replace(
                row,
                epoch=0,
                attempt=0,
                ended=False,
                ended_at=None,
                created_at=row.created_at or self._db.stamp(),
            )
        )
        return True

    async def get_run(self, run_id: UUID) -> RunInfo | None:
        run = self._db.runs.get(run_id)
        if run is None:
            return None
        newest = self._attempt_row(run, max(run.attempts)) if run.attempts else None
        return RunInfo(
            run=run.row,
            last_attempt=newest,
            summary=run.summary[2],
            read_at=self._db.stamp(),
            inbox=len(run.inbox),
        )

    async def list_runs(
        self, *, owner_prefix: str = "", limit: int = 100, before: tuple[datetime, UUID] | None = None
    ) -> list[RunInfo]:
        rows = [run.row for run in self._db.runs.values() if run.row.owner.startswith(owner_prefix)]
        found = [row for row in rows if before is None or _moment(row) < before]
        found.sort(key=_moment, reverse=True)
        infos = [await self.get_run(row.run_id) for row in found[:limit]]
        return [info for info in infos if info is not None]

    async def resolve(self, run_id: UUID, resolved: bytes | None) -> bytes | None:
        run = self._db.runs.get(run_id)
        if run is None:
            return None
        run.resolved = run.resolved or resolved or b""
        return run.resolved or None

    async def live_runs(self, owner_prefix: str) -> list[Standing]:
        runs = self._db.runs.values()
        return [_standing(r) for r in runs if r.row.owner.startswith(owner_prefix) and not r.row.ended]

    async def standings(self, run_ids: Sequence[UUID]) -> list[Standing]:
        return [_standing(self._db.runs[run_id]) for run_id in set(run_ids) if run_id in self._db.runs]

    async def adopt(self, run_id: UUID, *, owner: str, new_owner: str, levels: Levels) -> bool:
        run = self._db.runs.get(run_id)
        if run is None or run.row.owner != owner:
            return False
        run.row = replace(run.row, owner=new_owner, levels=levels)
        return True

    async def set_levels(self, run_id: UUID, levels: Levels) -> bool:
        run = self._db.runs.get(run_id)
        if run is None or levels.generation <= run.row.levels.generation:
            return False
        run.row = replace(run.row, levels=levels)
        return True

    # --- attempts and claim

    async def allocate_attempt(
        self, run_id: UUID, *, expected: int, process: str, previous: AttemptOutcome
    ) -> int | None:
        run = self._db.runs.get(run_id)
        if run is None or run.row.ended or run.row.attempt != expected:
            return None
        for number, attempt in run.attempts.items():
            if attempt.outcome is None:
                run.attempts[number] = replace(attempt, outcome=previous, ended_at=self._db.stamp())
        number = expected + 1
        run.attempts[number] = AttemptRow(
            attempt=number, process=process, confirmed_age_seconds=0.0, started_at=self._db.stamp()
        )
        run.confirmed[number] = self._db.now()
        run.row = replace(run.row, attempt=number)
        run.claimer = b""  # the same process under another attempt is another epoch
        return number

    async def attempts(self, run_id: UUID) -> list[AttemptRow]:
        run = self._db.runs.get(run_id)
        return [] if run is None else [self._attempt_row(run, number) for number in sorted(run.attempts)]

    def _attempt_row(self, run: _Run, number: int) -> AttemptRow:
        age = self._db.now() - run.confirmed[number]
        return replace(run.attempts[number], confirmed_age_seconds=age)

    async def close_attempt(self, run_id: UUID, attempt: int, outcome: AttemptOutcome, reason: str) -> bool:
        run = self._db.runs.get(run_id)
        row = run.attempts.get(attempt) if run else None
        if run is None or row is None or row.outcome is not None:
            return False
        run.attempts[attempt] = replace(row, outcome=outcome, reason=reason, ended_at=self._db.stamp())
        return True

    async def claim(self, run_id: UUID, *, attempt: int, claimer: bytes) -> int | None:
        run = self._db.runs.get(run_id)
        if run is None or run.row.ended or run.row.attempt != attempt or attempt not in run.attempts:
            return None
        if run.claimer != claimer:
            run.claimer = claimer
            run.row = replace(run.row, epoch=run.row.epoch + 1)
        run.attempts[attempt] = replace(run.attempts[attempt], claimed=True)
        run.confirmed[attempt] = self._db.now()
        return run.row.epoch

    async def look(self, run_id: UUID, *, attempt: int) -> Look | None:
        run = self._db.runs.get(run_id)
        if run is None:
            return None
        if attempt in run.attempts and run.attempts[attempt].outcome is None:
            run.confirmed[attempt] = self._db.now()
        row = run.row
        return Look(
            epoch=row.epoch,
            attempt=row.attempt,
            ended=row.ended,
            head=run.head,
            levels=row.levels,
            server=self._db.server,
            claimer=run.claimer,
            inbox=len(run.inbox),
        )

    async def reopen(self, row: LogRow) -> bool:
        run = self._db.runs.get(row.run_id)
        if run is None or not run.row.ended or row.seq != run.head + 1:
            return False
        self._put(run, row)
        run.row = replace(
            run.row, ended=False, ended_at=None, epoch=run.row.epoch + 1, attempt=run.row.attempt + 1
        )
        run.claimer = b""
        return True

    # --- the log

    async def connect(self) -> Token:
        return Token(serial=self._serial, server=self._db.server)

    def give_up(self, token: Token) -> None:
        if token.serial == self._serial:
            self._serial += 1

    async def insert_row(self, row: LogRow, token: Token) -> bool:
        self._check(token)
        run = self._db.runs.get(row.run_id)
        if token.server != self._db.server or run is None or row.seq in run.log:
            return False
        self._put(run, row)
        return True

    async def insert_pack(self, rows: Sequence[LogRow], token: Token) -> bool:
        self._check(token)
        if token.server != self._db.server:
            return False
        for row in rows:
            run = self._db.runs.get(row.run_id)
            if run is None or row.seq in run.log:
                return False
        for row in rows:
            self._put(self._db.runs[row.run_id], row)
        return True

    async def insert_next(self, row: LogRow, token: Token) -> bool:
        self._check(token)
        run = self._db.runs.get(row.run_id)
        if token.server != self._db.server or run is None or row.seq != run.head + 1:
            return False
        self._put(run, row)
        return True

    def _check(self, token: Token) -> None:
        if token.serial != self._serial:
            raise StoreUnavailable("the connection for appends was replaced")

    def _put(self, run: _Run, row: LogRow) -> None:
        run.log[row.seq] = row.record
        run.head = max(run.head, row.seq)
        if row.final:
            run.row = replace(run.row, ended=True, ended_at=self._db.stamp())

    async def read_rows(self, run_id: UUID, *, after: int = 0, limit: int = 0) -> list[tuple[int, bytes]]:
        run = self._db.runs.get(run_id)
        if run is None:
            return []
        rows = [(seq, run.log[seq]) for seq in sorted(run.log) if seq > after]
        return rows[:limit] if limit else rows

    async def read_new(self, heads: Mapping[UUID, int], *, limit: int) -> list[tuple[UUID, int, bytes]]:
        found: list[tuple[UUID, int, bytes]] = []
        for run_id, head in heads.items():
            found += [(run_id, *row) for row in await self.read_rows(run_id, after=head, limit=limit)]
        return found

    # --- inbox, summary, hints, blobs

    async def post(self, run_id: UUID, row: InboxRow) -> bool:
        run = self._db.runs.get(run_id)
        if run is None or row.id in run.inbox:
            return False
        run.inbox[row.id] = replace(row, created_at=self._db.stamp())
        return True

    async def inbox(self, run_id: UUID) -> list[InboxRow]:
        run = self._db.runs.get(run_id)
        return [] if run is None else list(run.inbox.values())

    async def put_summary(self, run_id: UUID, *, epoch: int, head: int, summary: str) -> None:
        run = self._db.runs.get(run_id)
        if run is not None and (epoch, head) >= run.summary[:2]:
            run.summary = (epoch, head, summary)

    async def notify(self, run_ids: Sequence[UUID]) -> None:
        for hint in self._db.hints:
            for run_id in run_ids:
                hint(run_id)

    async def listen(self, hint: Hint) -> None:
        self._db.hints.append(hint)

    async def put_blob(self, run_id: UUID, sha256: bytes, data: bytes) -> None:
        self._db.runs[run_id].blobs[sha256] = data

    async def get_blob(self, run_id: UUID, sha256: bytes) -> bytes | None:
        run = self._db.runs.get(run_id)
        return None if run is None else run.blobs.get(sha256)

    async def close(self) -> None:
        return None


def _moment(row: RunRow) -> tuple[datetime, UUID]:
    assert row.created_at is not None
    return row.created_at, row.run_id


def _standing(run: _Run) -> Standing:
    row = run.row
    newest = run.attempts.get(row.attempt)
    return Standing(
        run_id=row.run_id,
        owner=row.owner,
        attempt=row.attempt,
        ended=row.ended,
        generation=row.levels.generation,
        suspend=row.levels.suspend,
        claimed=newest is not None and newest.claimed,
        outcome=newest.outcome if newest else None,
        summary_head=run.summary[1],
        inbox=len(run.inbox),
    )
