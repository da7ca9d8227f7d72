"""The store in Postgres keeps the contract, with prepared statements and without."""

from __future__ import annotations

import pytest

from agentrun.log.postgres import PostgresStore
from tests.contract.scenarios import Opener
from tests.contract.store_contract import StoreContract


class TestPostgresStore(StoreContract):
    @pytest.fixture
    def opener(self, database: str) -> Opener:
        return lambda: PostgresStore.open(database)


class TestPostgresStoreWithoutPreparedStatements(StoreContract):
    @pytest.fixture
    def opener(self, database: str) -> Opener:
        return lambda: PostgresStore.open(database, prepared_statements=False)
