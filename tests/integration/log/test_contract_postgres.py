"""The store in Postgres keeps the contract, with prepared statements and without.

AGENTRUN_TEST_DSN names another server to ask than the embedded one, so that each
supported version can be held to it; a superuser's, for databases are made there.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from agentrun.log.postgres import PostgresStore
from agentrun.log.store import LogStore
from tests.contract.scenarios import Opener
from tests.contract.store_contract import StoreContract
from tests.integration.log.conftest import execute


@pytest.fixture(scope="module")
def contract_dsn(request: pytest.FixtureRequest) -> Iterator[str]:
    server = os.environ.get("AGENTRUN_TEST_DSN")
    if server is None:
        yield request.getfixturevalue("database")
        return
    name = f"test_{uuid4().hex}"
    asyncio.run(execute(server, f"CREATE DATABASE {name}"))
    yield urlsplit(server)._replace(path=f"/{name}").geturl()
    asyncio.run(execute(server, f"DROP DATABASE {name} WITH (FORCE)"))


class TestPostgresStore(StoreContract):
    @pytest.fixture
    def opener(self, contract_dsn: str) -> Opener:
        def open_store() -> LogStore:
            return PostgresStore.open(contract_dsn)

        return open_store


class TestPostgresStoreWithoutPreparedStatements(StoreContract):
    @pytest.fixture
    def opener(self, contract_dsn: str) -> Opener:
        def open_store() -> LogStore:
            return PostgresStore.open(contract_dsn, prepared_statements=False)

        return open_store
