"""The executor of one machine keeps the contract of all executors, over a store in memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from agentrun.log.memory import Database, MemoryStore
from agentrun.log.store import LogStore
from agentrun_api.executor import RunExecutor
from agentrun_api.inprocess import InProcessRunExecutor
from tests.contract.executor_contract import ExecutorBench, ExecutorContract


class Bench:
    def __init__(self, counter: Path) -> None:
        self.counter = counter
        self._db = Database(time.time)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[tuple[RunExecutor, LogStore]]:
        store = MemoryStore(self._db)
        executor = InProcessRunExecutor(store, environ={})
        task = asyncio.create_task(executor.run())
        try:
            yield executor, store
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


class TestInProcess(ExecutorContract):
    @pytest.fixture
    def bench(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ExecutorBench:
        counter = tmp_path / "calls"
        monkeypatch.setenv("AGENTRUN_DEMO_COUNTER", str(counter))
        return Bench(counter)
