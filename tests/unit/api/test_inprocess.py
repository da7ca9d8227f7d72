"""The executor of one machine keeps the contract of all executors, over a store in memory."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from agentrun.log.memory import Database, MemoryStore
from agentrun.log.store import Levels, LogStore, RunRow
from agentrun_api.executor import RunExecutor, Signal
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


@pytest.mark.parametrize(
    ("stored", "asked", "holds"),
    [
        ("", "Stop", "Stop"),
        ("Stop", "Terminate", "Terminate"),
        ("Stop: the quota is used up", "Terminate", "Terminate: the quota is used up"),
        ("Terminate", "Stop", "Terminate"),
        ("Terminate: the quota is used up", "Stop", "Terminate: the quota is used up"),
        ("Terminate: the quota is used up", "", "Terminate: the quota is used up"),
    ],
)
def test_a_shutdown_goes_one_way_and_keeps_its_reason(stored: str, asked: str, holds: str) -> None:
    async def test() -> None:
        store = MemoryStore(Database(time.time))
        levels = Levels(suspend=True, shutdown=stored)
        row = RunRow(
            run_id=uuid.uuid4(), owner="server/a", name="a", definition=b"", digest="", levels=levels
        )
        await store.create_run(row)
        await InProcessRunExecutor(store, environ={}).signal(row, Signal(suspend=False, shutdown=asked))
        info = await store.get_run(row.run_id)
        assert info is not None
        assert (info.run.levels.suspend, info.run.levels.shutdown) == (False, holds)

    asyncio.run(test())
