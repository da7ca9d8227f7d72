"""Where runs are kept: the database that is named, or the embedded Postgres.

Who calls: the command. What holds: no message holds a password; a command that only
reads starts no server and makes no folder where nothing was ever kept.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from agentrun.local.errors import BadStore, one_line
from agentrun.local.keeping import Server
from agentrun.log.appender import retried
from agentrun.log.clock import Clock
from agentrun.log.errors import StoreRefused, StoreUnavailable
from agentrun.log.postgres import PostgresStore
from agentrun.log.store import LogStore

DSN_VARIABLE = "AGENTRUN_DATABASE_URL"

CONNECT_SECONDS_MAX = 8.0
FIRST_CONTACT_SECONDS_MAX = 2.0
"""A store that is away is tried for this long before a command gives up; with one connection
attempt that hangs, a command waits for ten seconds in all."""

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the store is. `shown` names it for people, without a password; `server` is this
    command's own, which nobody else keeps alive."""

    dsn: str
    shown: str
    server: Server | None = None

    def open(self, *, migrate: bool = False) -> PostgresStore:
        """A store that connects when it is used."""
        return PostgresStore.open(self.dsn, connect_timeout_seconds=CONNECT_SECONDS_MAX, migrate=migrate)


@contextmanager
def place_of(
    named: str | None, environ: Mapping[str, str] = os.environ, *, create: bool = True
) -> Iterator[Place | None]:
    """The store that is `named` (an option), or by the environment, or the embedded one, which is
    used until the end of the `with`. None: not `create`, and nothing was ever kept here."""
    dsn = named or environ.get(DSN_VARIABLE, "")
    if dsn:
        yield Place(dsn=_checked(dsn, "--store" if named else DSN_VARIABLE), shown=without_password(dsn))
        return
    # Imported when needed: a command with a database of its own has none of this.
    from agentrun.local import pg_install
    from agentrun.local.embedded import EmbeddedPostgres

    folder = pg_install.default_data_dir()
    with one_line(folder):
        kept = (folder / "postgres" / "data").exists()
    if not create and not kept:
        yield None
        return
    with EmbeddedPostgres.start(folder) as server:
        yield Place(dsn=server.dsn, shown=f"the embedded Postgres under {folder}", server=server)


def _checked(dsn: str, source: str) -> str:
    if not dsn.startswith(("postgres://", "postgresql://")):
        raise BadStore(f"{source} must be a URL that begins with postgresql://")
    try:
        urlsplit(dsn).port  # noqa: B018  it is computed, and may be refused
    except ValueError:
        raise BadStore(f"{source} is not a good URL") from None
    return dsn


def without_password(dsn: str) -> str:
    """The DSN as it may be shown."""
    try:
        parts = urlsplit(dsn)
        user, at, host = parts.netloc.rpartition("@")
        name, colon, _ = user.partition(":")
        query = [(k, "***" if "pass" in k.lower() else v) for k, v in parse_qsl(parts.query)]
        shown = parts._replace(
            netloc=name + (":***" if colon else "") + at + host, query=urlencode(query, safe="/*,:")
        )
        return urlunsplit(shown)
    except ValueError:
        return "the database"


def passwords(dsn: str) -> list[str]:
    """What of a DSN must not be shown, in its forms."""
    try:
        parts = urlsplit(dsn)
        found = [parts.password or "", *(v for k, v in parse_qsl(parts.query) if "pass" in k.lower())]
    except ValueError:
        return []
    return [form for value in found if value for form in (value, unquote(value))]


@asynccontextmanager
async def opened(place: Place, *, writes: bool) -> AsyncIterator[LogStore]:
    """The store. Its first statement should go through `reach`.

    Who only reads brings no schema up to date, but in the server that is the command's own."""
    store = place.open(migrate=writes or place.server is not None)
    try:
        yield store
    except StoreUnavailable as error:
        raise StoreUnavailable(f"{place.shown} cannot be reached: {error}") from error
    except StoreRefused as error:
        raise StoreRefused(f"{place.shown}: {error}") from error
    finally:
        await store.close()


async def reach(call: Callable[[], Awaitable[T]]) -> T:
    """The call's result; tried again only for a moment, for somebody waits at a terminal."""
    return await retried(call, Clock(), FIRST_CONTACT_SECONDS_MAX)
