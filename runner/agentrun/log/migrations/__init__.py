"""Brings the schema up to date: numbered `.sql` files, each applied once, in order.

Who calls: a store's first connection. Any number of processes may do so at the same
time: one of them works under an advisory lock, and the others find the work done.
A schema that is up to date costs one SELECT and no lock. What was applied is recorded
with the hash of its text; a schema that is newer, or was made from other text, is
refused by name. What a file marks as of no concern to older builds is no reason to
refuse: their processes start beside newer ones.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

import asyncpg

from agentrun.log.errors import StoreRefused

if TYPE_CHECKING:
    from asyncpg import Connection, Record

MIGRATE_SECONDS_MAX = 300.0
"""How long it may take, the wait for another process that migrates included."""

LOCK_KEY = 0x6167656E7472756E
"""The advisory lock: "agentrun" in ASCII."""

_LEDGER = """
CREATE TABLE IF NOT EXISTS agentrun_schema (
    version    integer     PRIMARY KEY,
    name       text        NOT NULL,
    sha256     text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(),
    compatible boolean     NOT NULL DEFAULT false
)
"""
_LEDGER_OF_THE_FIRST_BUILDS = """
ALTER TABLE agentrun_schema ADD COLUMN IF NOT EXISTS compatible boolean NOT NULL DEFAULT false
"""
# By way of JSON, for a ledger that no newer build has touched lacks the column.
_APPLIED = """
SELECT version, name, sha256,
       coalesce((to_jsonb(agentrun_schema) ->> 'compatible')::boolean, false) AS compatible
FROM agentrun_schema
ORDER BY version
"""
_RECORD = "INSERT INTO agentrun_schema (version, name, sha256, compatible) VALUES ($1, $2, $3, $4)"
_COMPATIBLE = re.compile(r"^-- Compatible: older builds need not know this migration\.$", re.MULTILINE)
_SOMEBODY_ELSE_DID_IT = {"23505", "42P07", "42710"}


@dataclass(frozen=True)
class Migration:
    """One file: its number, its name without the number, its text."""

    version: int
    name: str
    text: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def compatible(self) -> bool:
        """A build that does not know it works as well with it as without it."""
        return _COMPATIBLE.search(self.text) is not None


@cache
def migrations() -> tuple[Migration, ...]:
    """The build's migrations, numbered 1, 2, 3 … without a hole."""
    found = []
    for file in resources.files(__name__).iterdir():
        match = re.fullmatch(r"(\d{4})_(\w+)\.sql", file.name)
        if match:
            found.append(Migration(int(match[1]), match[2], file.read_text(encoding="utf-8")))
    found.sort(key=lambda migration: migration.version)
    if [migration.version for migration in found] != list(range(1, len(found) + 1)):
        raise StoreRefused("this build's migrations are not numbered 1, 2, 3 …")
    return tuple(found)


async def migrate(conn: Connection[Record], known: tuple[Migration, ...] | None = None) -> None:
    """Applies what is missing, all of it or nothing. Raises StoreRefused, or the driver's errors."""
    known = migrations() if known is None else known
    if not await missing(conn, known):
        return
    for last_try in (False, True):
        try:
            await _apply(conn, known)
            return
        except asyncpg.InsufficientPrivilegeError as error:
            raise StoreRefused(
                "the tables are missing or old, and this role may not make them: let the schema's "
                f"owner migrate once, or grant CREATE on the schema ({error.as_dict().get('message')})"
            ) from error
        except asyncpg.PostgresError as error:
            # Possible only beside something that does not take our lock (a restore, a person).
            if last_try or error.sqlstate not in _SOMEBODY_ELSE_DID_IT:
                raise


async def missing(conn: Connection[Record], known: tuple[Migration, ...] | None = None) -> list[Migration]:
    """What is yet to be applied. Raises StoreRefused when the schema is not one of ours."""
    known = migrations() if known is None else known
    try:
        applied = await conn.fetch(_APPLIED)
    except asyncpg.UndefinedTableError:
        return list(known)
    for row, migration in zip(applied, known, strict=False):
        if (row["version"], row["sha256"]) != (migration.version, migration.sha256):
            raise StoreRefused(
                f"migration {row['version']} ({row['name']}) was applied to this database with another "
                "text than this build's: the database belongs to another line of builds"
            )
    newer = [row for row in applied[len(known) :] if not row["compatible"]]
    if newer:
        newest = newer[-1]
        raise StoreRefused(
            f"the database's schema is newer ({newest['version']}, {newest['name']}) than this build's "
            f"({len(known)}): upgrade agentrun here"
        )
    return list(known[len(applied) :])


async def _apply(conn: Connection[Record], known: tuple[Migration, ...]) -> None:
    async with conn.transaction():
        await conn.execute("SELECT pg_advisory_xact_lock($1)", LOCK_KEY)
        await conn.execute(_LEDGER)
        await conn.execute(_LEDGER_OF_THE_FIRST_BUILDS)
        # Under the lock a new statement sees what whoever held it before has done.
        for migration in await missing(conn, known):
            await conn.execute(migration.text)
            await conn.execute(
                _RECORD, migration.version, migration.name, migration.sha256, migration.compatible
            )
