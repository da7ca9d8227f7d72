"""The store in Postgres: each method of `LogStore` is one statement.

Who calls: whatever opens a run log on a database (runner pod, operator, API, command).

Two connections at most, each with one statement under way: the append link and the
side link, where LISTEN lives too (or on a third, where hints have a DSN of their own).
Nothing here retries or waits: the callers above do, for they know what may be repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

import asyncpg

from agentrun.log import migrations, sql
from agentrun.log import postgres_rows as convert
from agentrun.log.errors import StoreRefused
from agentrun.log.links import Link, LinkOptions
from agentrun.log.postgres_listen import Listener
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

if TYPE_CHECKING:
    from asyncpg import Connection, Record

SQL = sql.load()
INSERT_ROW = SQL["insert_row"]
INSERT_FINAL = SQL["insert_final"]

BLOB_BYTES_PER_SECOND_MIN = 1024 * 1024
"""How slow a network may be before storing a blob counts as no answer."""

BLOB_READ_SECONDS_MAX = 60.0


class PostgresStore:
    """See the module's docstring and `LogStore`. Made by `open`; `close` it in the end."""

    def __init__(self, options: LinkOptions, listen_options: LinkOptions | None, *, migrate: bool) -> None:
        self._timeout_seconds = options.statement_timeout_seconds
        self._migrate = migrate
        self._schema_is_known = False
        self._append = Link("append link", options, self._opened)
        self._side = Link("side link", options, self._side_opened)
        self._hints = self._side
        if listen_options is not None:
            self._hints = Link("hint link", listen_options, self._hints_opened)
        self._listener = Listener(self._hints, SQL["ping"])
        self._token: Token | None = None

    @classmethod
    def open(
        cls,
        dsn: str,
        *,
        prepared_statements: bool = True,
        statement_timeout_seconds: float = 10.0,
        connect_timeout_seconds: float = 10.0,
        application_name: str = "agentrun",
        migrate: bool = True,
        listen_dsn: str = "",
    ) -> PostgresStore:
        """A store that connects when it is first used.

        `prepared_statements`: off behind a pooler in transaction mode. `listen_dsn`: where LISTEN
        works, if it does not at `dsn` (through such a pooler it does not). `migrate`: whether to
        bring the schema up to date at the first connection, or only to check it.
        """
        options = LinkOptions(
            dsn=dsn,
            prepared_statements=prepared_statements,
            statement_timeout_seconds=statement_timeout_seconds,
            connect_timeout_seconds=connect_timeout_seconds,
            application_name=application_name,
        )
        return cls(options, replace(options, dsn=listen_dsn) if listen_dsn else None, migrate=migrate)

    async def _opened(self, link: Link, conn: Connection[Record]) -> None:
        if self._schema_is_known:
            return
        absent = await migrations.missing(conn)
        if absent and not self._migrate:
            raise StoreRefused(f"the schema lacks migration {absent[0].version} ({absent[0].name})")
        if absent:
            link.allow(migrations.MIGRATE_SECONDS_MAX)
            await migrations.migrate(conn)
            link.allow(self._timeout_seconds)
        self._schema_is_known = True

    async def _side_opened(self, link: Link, conn: Connection[Record]) -> None:
        await self._opened(link, conn)
        if self._hints is self._side:
            await self._listener.on_open(conn)

    async def _hints_opened(self, _link: Link, conn: Connection[Record]) -> None:
        await self._listener.on_open(conn)

    async def close(self) -> None:
        await self._listener.close()
        for link in {self._append, self._side, self._hints}:
            await link.close()

    # --- runs -----------------------------------------------------------------

    async def create_run(self, row: RunRow) -> bool:
        levels = row.levels
        convert.refuse_nul(row.owner, row.name, row.digest, levels.shutdown, levels.budget)
        return bool(
            await self._side.value(
                SQL["create_run"],
                row.run_id,
                row.owner,
                row.name,
                row.definition,
                row.digest,
                levels.generation,
                levels.suspend,
                levels.shutdown,
                levels.budget,
            )
        )

    async def get_run(self, run_id: UUID) -> RunInfo | None:
        found = await self._side.row(SQL["get_run"], run_id)
        return None if found is None else convert.run_info(found)

    async def list_runs(
        self, *, owner_prefix: str = "", limit: int = 100, before: tuple[datetime, UUID] | None = None
    ) -> list[RunInfo]:
        convert.refuse_nul(owner_prefix)
        at, run_id = before or (None, None)
        rows = await self._side.rows(SQL["list_runs"], owner_prefix, limit, at, run_id)
        return [convert.run_info(row) for row in rows]

    async def resolve(self, run_id: UUID, resolved: bytes | None) -> bytes | None:
        stands: bytes | None = await self._side.value(SQL["resolve"], run_id, resolved)
        return stands

    async def live_runs(self, owner_prefix: str) -> list[Standing]:
        convert.refuse_nul(owner_prefix)
        return [convert.standing(row) for row in await self._side.rows(SQL["live_runs"], owner_prefix)]

    async def standings(self, run_ids: Sequence[UUID]) -> list[Standing]:
        return [convert.standing(row) for row in await self._side.rows(SQL["standings"], run_ids)]

    async def adopt(self, run_id: UUID, *, owner: str, new_owner: str, levels: Levels) -> bool:
        convert.refuse_nul(new_owner, levels.shutdown, levels.budget)
        return bool(
            await self._side.value(
                SQL["adopt"],
                run_id,
                owner,
                new_owner,
                levels.generation,
                levels.suspend,
                levels.shutdown,
                levels.budget,
            )
        )

    async def set_levels(self, run_id: UUID, levels: Levels) -> bool:
        convert.refuse_nul(levels.shutdown, levels.budget)
        return bool(
            await self._side.value(
                SQL["set_levels"], run_id, levels.generation, levels.suspend, levels.shutdown, levels.budget
            )
        )

    # --- attempts and claim

    async def allocate_attempt(
        self, run_id: UUID, *, expected: int, process: str, previous: AttemptOutcome
    ) -> int | None:
        convert.refuse_nul(process)
        attempt: int | None = await self._side.value(
            SQL["allocate_attempt"], run_id, expected, process, previous.value
        )
        return attempt

    async def attempts(self, run_id: UUID) -> list[AttemptRow]:
        return [convert.attempt(row) for row in await self._side.rows(SQL["attempts"], run_id)]

    async def close_attempt(self, run_id: UUID, attempt: int, outcome: AttemptOutcome, reason: str) -> bool:
        convert.refuse_nul(reason)
        return bool(await self._side.value(SQL["close_attempt"], run_id, attempt, outcome.value, reason))

    async def claim(self, run_id: UUID, *, attempt: int, claimer: bytes) -> int | None:
        epoch: int | None = await self._side.value(SQL["claim"], run_id, attempt, claimer)
        return epoch

    async def look(self, run_id: UUID, *, attempt: int) -> Look | None:
        row = await self._side.row(SQL["look"], run_id, attempt)
        return None if row is None else convert.look(row)

    async def reopen(self, row: LogRow) -> bool:
        try:
            return bool(await self._side.value(SQL["reopen"], row.run_id, row.seq, row.record))
        except asyncpg.UniqueViolationError:
            return False

    # --- the log

    async def connect(self) -> Token:
        link, token = self._append, self._token
        if token is None or token.serial != link.serial or not link.is_open:
            await link.ensure_open()
            assert link.started is not None
            token = self._token = Token(serial=link.serial, server=convert.server_name(link.started))
        if self._side.is_open and self._side.started != link.started:
            self._side.give_up()
        return token

    def give_up(self, token: Token) -> None:
        if token.serial == self._append.serial:
            self._append.give_up()

    async def insert_row(self, row: LogRow, token: Token) -> bool:
        started = self._server_of(token)
        if started is None:
            return False
        try:
            seq = await self._append.value(
                INSERT_FINAL if row.final else INSERT_ROW,
                row.run_id,
                row.seq,
                row.record,
                started,
                serial=token.serial,
            )
        except (asyncpg.UniqueViolationError, asyncpg.NotNullViolationError):
            return False  # a final row breaks the whole statement, the end of the run included
        return seq is not None

    async def insert_pack(self, rows: Sequence[LogRow], token: Token) -> bool:
        if any(row.final for row in rows):
            raise ValueError("a final row goes alone: it ends the run in its own statement")
        started = self._server_of(token)
        if started is None:
            return False
        try:
            tag = await self._append.status(
                SQL["insert_pack"],
                [row.run_id for row in rows],
                [row.seq for row in rows],
                [row.record for row in rows],
                started,
                serial=token.serial,
            )
        except asyncpg.UniqueViolationError:
            return False
        return tag == f"INSERT 0 {len(rows)}"

    async def insert_next(self, row: LogRow, token: Token) -> bool:
        if row.final:
            raise ValueError("a final row has a place of its own: insert_row")
        started = self._server_of(token)
        if started is None:
            return False
        seq = await self._append.value(
            SQL["insert_next"], row.run_id, row.seq, row.record, started, serial=token.serial
        )
        return seq is not None

    def _server_of(self, token: Token) -> datetime | None:
        """The start time that the token's server has; None when there can be no such server."""
        if token is self._token:
            return self._append.started
        return convert.server_started(token.server)

    async def read_rows(self, run_id: UUID, *, after: int = 0, limit: int = 0) -> list[tuple[int, bytes]]:
        return [(row[0], row[1]) for row in await self._side.rows(SQL["read_rows"], run_id, after, limit)]

    async def read_new(self, heads: Mapping[UUID, int], *, limit: int) -> list[tuple[UUID, int, bytes]]:
        rows = await self._side.rows(SQL["read_new"], list(heads), list(heads.values()), limit)
        return [(row[0], row[1], row[2]) for row in rows]

    # --- inbox, summary, hints, blobs

    async def post(self, run_id: UUID, row: InboxRow) -> bool:
        convert.refuse_nul(row.id, row.kind)
        return bool(await self._side.value(SQL["post"], run_id, row.id, row.kind, row.payload))

    async def inbox(self, run_id: UUID) -> list[InboxRow]:
        return [InboxRow(**row) for row in await self._side.rows(SQL["inbox"], run_id)]

    async def put_summary(self, run_id: UUID, *, epoch: int, head: int, summary: str) -> None:
        convert.refuse_nul(summary)
        await self._side.status(SQL["put_summary"], run_id, epoch, head, summary)

    async def notify(self, run_ids: Sequence[UUID]) -> None:
        if run_ids:
            await self._side.value(SQL["notify"], run_ids)

    async def listen(self, hint: Hint) -> None:
        await self._listener.listen(hint)

    async def put_blob(self, run_id: UUID, sha256: bytes, data: bytes) -> None:
        seconds = self._timeout_seconds + len(data) / BLOB_BYTES_PER_SECOND_MIN
        await self._side.value(SQL["put_blob"], run_id, sha256, data, seconds=seconds)

    async def get_blob(self, run_id: UUID, sha256: bytes) -> bytes | None:
        data: bytes | None = await self._side.value(
            SQL["get_blob"], run_id, sha256, seconds=BLOB_READ_SECONDS_MAX
        )
        return data
