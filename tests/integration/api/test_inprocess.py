"""The executor of one machine keeps the contract of all executors, over Postgres."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from agentrun.log.postgres import PostgresStore
from agentrun.log.store import LogStore
from agentrun_api.executor import RunExecutor
from agentrun_api.inprocess import InProcessRunExecutor
from tests.contract.executor_contract import ExecutorBench, ExecutorContract


class Bench:
    def __init__(self, dsn: str, counter: Path) -> None:
        self.counter = counter
        self._dsn = dsn

    @asynccontextmanager
    async def running(self) -> AsyncIterator[tuple[RunExecutor, LogStore]]:
        store = PostgresStore.open(self._dsn)
        executor = InProcessRunExecutor(store, environ={})
        task = asyncio.create_task(executor.run())
        try:
            yield executor, store
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await store.close()


class TestInProcess(ExecutorContract):
    @pytest.fixture
    def bench(
        self, make_database: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> ExecutorBench:
        counter = tmp_path / "calls"
        monkeypatch.setenv("AGENTRUN_DEMO_COUNTER", str(counter))
        return Bench(make_database(), counter)
