"""A database for the tests of a module, and stores on it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from uuid import uuid4

import asyncpg
import pytest

from agentrun.local.embedded import EmbeddedPostgres
from tests.support.postgres import database_dsn


@pytest.fixture(scope="module")
def database(postgres: EmbeddedPostgres) -> Iterator[str]:
    """The DSN of a database that the tests of one module share."""
    name = f"test_{uuid4().hex}"
    asyncio.run(execute(postgres.dsn, f"CREATE DATABASE {name}"))
    yield database_dsn(postgres, name)
    asyncio.run(execute(postgres.dsn, f"DROP DATABASE {name} WITH (FORCE)"))


async def execute(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
