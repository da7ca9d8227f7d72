"""The simulator is worth its time: each fault, planted, is found by it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from agentrun.graph.executor import Executor
from agentrun.graph.node import NodeRun
from agentrun.log.appender import Appender
from agentrun.log.claim import _Claim
from agentrun.log.memory import Database, MemoryStore
from agentrun.log.store import LogRow, Token
from agentrun.log.tail import Tail
from agentrun.proto import log_pb2 as pb
from tests.support.sim.history import Run
from tests.support.sim.loop import SimLoop

HISTORIES_MAX = 1500


def found(backing: Callable[[SimLoop], MemoryStore] | None = None) -> str:
    """What the first history that goes wrong says."""
    for seed in range(HISTORIES_MAX):
        try:
            Run(seed, backing).execute()
        except AssertionError as error:
            return str(error)
    return ""


class PartialPacks(MemoryStore):
    """As `INSERT … ON CONFLICT DO NOTHING` over a whole pack would do it."""

    async def insert_pack(self, rows: Sequence[LogRow], token: Token) -> bool:
        inserted = [await self.insert_row(row, token) for row in rows]
        return all(inserted)


class EndedApart(MemoryStore):
    """As two statements would do it: the record, and then the run's row."""

    async def insert_row(self, row: LogRow, token: Token) -> bool:
        apart = LogRow(run_id=row.run_id, seq=row.seq, record=row.record)
        return await super().insert_row(apart, token)


def test_a_partial_pack_is_found() -> None:
    assert found(lambda loop: PartialPacks(Database(loop.time)))


def test_ended_set_apart_from_the_final_record_is_found() -> None:
    assert "ended is" in found(lambda loop: EndedApart(Database(loop.time)))


def test_an_unread_row_count_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unread(self: Appender, tail: Tail, row: LogRow, token: Token) -> None:
        sent_at = self.clock.monotonic()
        await self.store.insert_row(row, token)
        tail.acknowledge(row, sent_at)

    monkeypatch.setattr(Appender, "_send_one", unread)
    assert found()


def test_a_confirmation_stamped_at_receipt_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    confirm = Tail.confirm

    def at_receipt(self: Tail, sent_at: float) -> None:
        confirm(self, asyncio.get_running_loop().time())

    monkeypatch.setattr(Tail, "confirm", at_receipt)
    assert "fenced off" in found()


def test_a_successor_launched_before_its_parent_is_acknowledged_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def early(self: Executor, node: NodeRun, record: pb.NodeRecord) -> None:
        if record.HasField("final"):
            await self._alone(node)
        self.log.history.done[record.id] = record
        self._scopes.finished(record)
        self._changed.set()
        await self.log.append(record)
        self.budget.settle(node.node_id)

    monkeypatch.setattr(Executor, "_record", early)
    assert "its parent" in found()


def test_a_final_record_that_does_not_end_the_claim_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def read(self: Any) -> None:
        for seq, data in await self.store.read_rows(self.run_id, after=self.history.head):
            self._fold(seq, data)

    monkeypatch.setattr(_Claim, "_read", read)
    assert "behind a final record" in found()


def test_a_lost_sibling_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    fail = Executor._fail

    def fail_all(self: Executor, reason: str, message: str) -> None:
        fail(self, reason, message)
        for id_, task in self._tasks.items():
            if task is not asyncio.current_task():
                task.cancel()
            assert id_

    monkeypatch.setattr(Executor, "_fail", fail_all)
    assert "cut off" in found()
