"""The store in memory keeps the contract."""

from __future__ import annotations

import time

import pytest

from agentrun.log.memory import Database, MemoryStore
from tests.contract.scenarios import Opener
from tests.contract.store_contract import StoreContract


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def opener(self) -> Opener:
        database = Database(time.time)
        return lambda: MemoryStore(database)
