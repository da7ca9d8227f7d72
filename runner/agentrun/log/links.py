"""A link: one connection to Postgres with one statement under way.

Who calls: `postgres` (the append link, the side link) and `postgres_listen`.

What holds: a link is opened on demand and given up on any doubt (no answer in time, a
cancellation in the middle of a statement, a lost connection, a server that takes no
writes); what is opened next has another serial. Nothing is retried. Giving up never
waits for the network: a connection that went silent must not hold up its successor.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import asyncpg

from agentrun.log import sql
from agentrun.log.errors import LogError, StoreRefused, StoreUnavailable
from agentrun.log.postgres_deadline import Deadline
from agentrun.log.postgres_errors import explain

if TYPE_CHECKING:
    from asyncpg import Connection, Record

SERVER_MAJOR_MIN = 14
STATEMENTS_CACHED_MAX = 100
CLOSE_SECONDS_MAX = 1.0
"""How long a polite goodbye may take."""

KEEPALIVE_IDLE_SECONDS = 15
KEEPALIVE_INTERVAL_SECONDS = 5
KEEPALIVE_COUNT = 3
"""An idle connection whose other end vanished is noticed after 15 + 3 × 5 s."""


@dataclass(frozen=True, kw_only=True)
class LinkOptions:
    """How links are opened; see `PostgresStore.open`."""

    dsn: str
    prepared_statements: bool
    statement_timeout_seconds: float
    connect_timeout_seconds: float
    application_name: str


SERVER_STARTED = sql.load()["server_started"]

Action = Callable[["Connection[Record]"], Awaitable[None]]
OnOpen = Callable[["Link", "Connection[Record]"], Awaitable[None]]
"""Runs on each new connection before anyone else uses it."""


class Link:
    """See the module's docstring. `serial` counts connections, `started` is the server's start time."""

    def __init__(self, name: str, options: LinkOptions, on_open: OnOpen) -> None:
        self.serial = 0
        self.started: datetime | None = None
        self.lost = asyncio.Event()
        """Set when the connection ends, by whatever cause."""
        self._name = name
        self._options = options
        self._on_open = on_open
        self._conn: Connection[Record] | None = None
        self._opening: Connection[Record] | None = None
        self._deadline = Deadline(self._cut)
        self._timeout_seconds = options.statement_timeout_seconds
        self._lock = asyncio.Lock()
        self._failures = 0
        self._closed = False

    @property
    def is_open(self) -> bool:
        """As far as is known: a peer that vanished shows only when it is spoken to."""
        return self._conn is not None and not self._conn.is_closed()

    @property
    def is_busy(self) -> bool:
        return self._lock.locked()

    async def ensure_open(self) -> None:
        """Opens a connection if there is none."""
        if not self.is_open:
            await self.use(_nothing)

    async def use(self, action: Action) -> None:
        """Runs `action` on the connection, opened if need be, while nothing else is under way."""
        failures = self._failures
        async with self._lock:
            conn = await self._connection(failures)
            self._deadline.start(self._timeout_seconds)
            try:
                await action(conn)
            except BaseException as error:
                self._judge(error)
                raise
            finally:
                self._deadline.stop()

    def allow(self, seconds: float) -> None:
        """Gives what is under way another bound, counted from now."""
        self._deadline.start(seconds)

    # --- statements. `serial`: the connection that the caller means; 0: any, opened on demand.

    async def value(self, sql: str, *args: Any, serial: int = 0, seconds: float = 0.0) -> Any:
        """The first column of the first row, or None. `seconds`: a bound of the statement's own."""
        failures = self._failures
        async with self._lock:
            conn = self._named(serial) if serial else await self._connection(failures)
            self._deadline.start(seconds or self._timeout_seconds)
            try:
                return await conn.fetchval(sql, *args)
            except BaseException as error:
                self._judge(error)
                raise
            finally:
                self._deadline.stop()

    async def rows(self, sql: str, *args: Any) -> list[Record]:
        """All rows."""
        failures = self._failures
        async with self._lock:
            conn = await self._connection(failures)
            self._deadline.start(self._timeout_seconds)
            try:
                return await conn.fetch(sql, *args)
            except BaseException as error:
                self._judge(error)
                raise
            finally:
                self._deadline.stop()

    async def row(self, sql: str, *args: Any) -> Record | None:
        """The one row, or None."""
        found = await self.rows(sql, *args)
        return found[0] if found else None

    async def status(self, sql: str, *args: Any, serial: int = 0) -> str:
        """The command's tag, such as "INSERT 0 3"."""
        failures = self._failures
        async with self._lock:
            conn = self._named(serial) if serial else await self._connection(failures)
            self._deadline.start(self._timeout_seconds)
            try:
                return await conn.execute(sql, *args)
            except BaseException as error:
                self._judge(error)
                raise
            finally:
                self._deadline.stop()

    # --- opening and giving up

    def _named(self, serial: int) -> Connection[Record]:
        conn = self._conn
        if conn is None or serial != self.serial or conn.is_closed():
            raise StoreUnavailable(f"{self._name}: connection {serial} is gone")
        return conn

    async def _connection(self, failures: int) -> Connection[Record]:
        """The open connection. `failures`: their number when the caller began to wait; it does
        not wait for another time-out behind those who saw the link fail."""
        if self._closed:
            raise StoreRefused(f"{self._name}: the store is closed")
        conn = self._conn
        if conn is not None and not conn.is_closed():
            return conn
        if failures != self._failures:
            raise StoreUnavailable(f"{self._name}: the connection was lost while this waited for it")
        self.give_up()
        try:
            return await self._open()
        except BaseException as error:
            self._judge(error)
            raise

    async def _dial(self) -> Connection[Record]:
        options = self._options
        try:
            return await asyncpg.connect(
                options.dsn,
                timeout=options.connect_timeout_seconds,
                statement_cache_size=STATEMENTS_CACHED_MAX if options.prepared_statements else 0,
                server_settings={"application_name": options.application_name},
            )
        except ValueError as error:
            if isinstance(error, OSError):  # a certificate's
                raise
            # Neither the message nor the cause is passed on: they may quote the password.
            raise StoreRefused(f"{self._name}: the DSN cannot be used ({type(error).__name__})") from None

    async def _open(self) -> Connection[Record]:
        conn = self._opening = await self._dial()
        self._deadline.start(self._timeout_seconds)
        try:
            major = conn.get_server_version().major
            if major < SERVER_MAJOR_MIN:
                raise StoreRefused(f"PostgreSQL {major} is too old: {SERVER_MAJOR_MIN} or later is needed")
            _keep_alive(conn)
            started = await conn.fetchval(SERVER_STARTED)
            await self._on_open(self, conn)
        except BaseException:
            conn.terminate()
            raise
        finally:
            self._opening = None
            self._deadline.stop()
        if self._closed:
            conn.terminate()
            raise StoreRefused(f"{self._name}: the store is closed")
        self._conn, self.started = conn, started
        self.serial += 1
        self.lost.clear()
        conn.add_termination_listener(self._terminated)
        return conn

    def _cut(self) -> None:
        """Ends the connection whose statement took too long; that statement fails."""
        conn = self._opening or self._conn
        if conn is not None:
            conn.terminate()

    def _terminated(self, conn: object) -> None:
        if conn is self._conn:
            self.lost.set()

    def _judge(self, error: BaseException) -> None:
        """Judges an error in the middle of a statement: raises what it means, or returns when the
        caller is to see `error` itself. Only an answer that leaves no doubt keeps the connection."""
        if isinstance(error, asyncpg.IntegrityConstraintViolationError):
            return
        if isinstance(error, LogError) or not isinstance(error, Exception):
            self._failures += isinstance(error, StoreUnavailable)
            self.give_up()
            return
        meaning = explain(TimeoutError() if self._deadline.expired else error, self._name)
        if isinstance(meaning, StoreUnavailable):
            self._failures += 1
            self.give_up()
        raise meaning from error

    def give_up(self) -> None:
        """Ends the connection without a word to the server."""
        conn, self._conn = self._conn, None
        self.lost.set()
        if conn is not None:
            conn.terminate()

    async def close(self) -> None:
        """Says goodbye if nothing is under way, within a bound; a statement under way is cut off."""
        self._closed = True
        conn, self._conn = self._conn, None
        self.lost.set()
        if self._opening is not None:
            self._opening.terminate()
        self._deadline.close()
        if conn is None:
            return
        if self._lock.locked():
            conn.terminate()
            return
        try:
            await conn.close(timeout=CLOSE_SECONDS_MAX)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            conn.terminate()


async def _nothing(_conn: object) -> None:
    """For who wants a connection and no statement."""


def _keep_alive(conn: Connection[Record]) -> None:
    """Lets the kernel probe an idle connection. The driver has no public way to its socket; without
    one, the bound on each statement still holds, and what listens sends pings."""
    transport = getattr(conn, "_transport", None)
    sock = transport.get_extra_info("socket") if transport is not None else None
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE_SECONDS),
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_SECONDS),
        ("TCP_KEEPCNT", KEEPALIVE_COUNT),
    ):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
