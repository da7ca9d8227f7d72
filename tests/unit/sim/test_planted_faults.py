"""The simulator is worth its time: each fault, planted, is found by it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from agentrun.graph import executor as executor_module
from agentrun.graph.asking import Asking
from agentrun.graph.budget import Budget
from agentrun.graph.drive import Drive
from agentrun.graph.executor import Executor, Outcome
from agentrun.graph.node import NodeRun
from agentrun.graph.scopes import Scopes
from agentrun.graph.types import Question
from agentrun.log.appender import Appender
from agentrun.log.asks import answer_row
from agentrun.log.claim import _Claim
from agentrun.log.errors import StoreUnavailable
from agentrun.log.final import final_record
from agentrun.log.memory import Database, MemoryStore
from agentrun.log.runlog import RunLog
from agentrun.log.store import InboxRow, LogRow, Token
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


# --- the log


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


def test_a_final_record_that_does_not_end_the_claim_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def read(self: Any) -> None:
        for seq, data in await self.store.read_rows(self.run_id, after=self.history.head):
            self._fold(seq, data)

    monkeypatch.setattr(_Claim, "_read", read)
    assert "behind a final record" in found()


def test_a_crash_that_is_drawn_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt record that was made before an older one landed says again what that one said."""
    attempt_record = _Claim._attempt_record

    async def once(self: Any) -> bytes:
        record = self.record or await attempt_record(self)
        self.crashes_since = self.history.attempt
        assert isinstance(record, bytes)
        return record

    monkeypatch.setattr(_Claim, "_attempt_record", once)
    assert "retries drawn" in found()


def test_a_served_run_that_keeps_its_place_in_line_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def round_(self: Appender) -> None:
        token = await self.store.connect()
        for tail in list(self._waiting):
            if tail.token != token:
                await self._recover(tail, token)
        for tail in list(self._waiting):
            if tail.broken is not None or (not tail.unsent and tail.token == token):
                del self._waiting[tail]
        rows = self._take(token)
        try:
            await self._send(rows, token)
        except StoreUnavailable:
            for tail, _ in rows:
                tail.token = None
            raise

    monkeypatch.setattr(Appender, "_round", round_)
    assert "passed over" in found()


# --- the graph


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


def test_a_second_final_record_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end does not wait for what is under way: the node's final record may be."""

    async def conclude(log: RunLog, scopes: Scopes, stop: Outcome | None, observe: Any) -> Outcome:
        final = log.history.final
        if final is not None:
            return Outcome(outcome=final.final.outcome, reason=final.final.reason)
        stop = stop or Outcome(outcome=pb.OUTCOME_SUCCEEDED, reason="Completed")
        if not stop.paused:
            log.sealed = False
            record = final_record(stop.outcome, stop.reason, "", epoch=log.epoch, now_us=log.now_us())
            await log.append(record)
        return stop

    monkeypatch.setattr(executor_module, "conclude", conclude)
    assert "final record" in found()


def test_an_outcome_that_the_log_does_not_have_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was told to stop says so, though its final record has gone in."""
    run = Executor.run

    async def told(self: Executor) -> Outcome:
        outcome = await run(self)
        return self._stop or outcome

    monkeypatch.setattr(Executor, "run", told)
    assert "ended with" in found()


def test_a_turn_that_is_not_held_between_its_tries_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def settle(self: Budget, node_id: str) -> None:
        self._turns.discard(node_id)
        self._retries.discard(node_id)
        self.release(node_id)

    monkeypatch.setattr(Budget, "settle", settle)
    assert "turns and retries" in found()


def test_a_reservation_that_is_not_counted_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def reserve(self: Budget, node_id: str, tokens: int) -> None:
        return None

    monkeypatch.setattr(Budget, "reserve", reserve)
    assert "tokens are used" in found()


def test_a_graph_that_is_closed_behind_its_nodes_record_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    close_scope, try_ = Executor.close_scope, Executor._try

    async def at_once(self: RunLog, record_id: str) -> None:
        """Waits for nothing."""

    async def behind(self: Executor, spawn: pb.Spawn, kind: Any) -> None:
        try:
            await try_(self, spawn, kind)
        finally:
            close_scope(self, spawn.id + "/")

    monkeypatch.setattr(Executor, "close_scope", lambda self, scope: None)
    monkeypatch.setattr(Executor, "_try", behind)
    # A cancelled try that waits for its own record would hide this fault.
    monkeypatch.setattr(RunLog, "landed", at_once)
    assert found()


# --- people


def test_a_call_without_its_approval_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(self: Asking, node_id: str, question: Question, used: Any) -> InboxRow:
        return answer_row(node_id, approve=True, by="nobody")

    monkeypatch.setattr(Asking, "answer", answer)
    assert "without an approval" in found()


def test_an_approved_call_that_is_made_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an intent a process that died in the call leaves no trace of it."""

    async def intend(self: NodeRun) -> None:
        return None

    monkeypatch.setattr(NodeRun, "intend", intend)
    assert "was made before" in found()


def test_an_answer_whose_use_is_not_recorded_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(self: NodeRun, question: Question) -> InboxRow:
        return await self._host.asking.answer(self.node_id, question)

    monkeypatch.setattr(NodeRun, "ask", ask)
    assert "no record names its approval" in found()


def test_a_run_that_waits_for_ever_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is asked for an answer looks only at what was there when the process came."""

    async def read(self: Asking) -> list[str]:
        return []

    monkeypatch.setattr(Asking, "read", read)
    assert "do not end" in found()


# --- around it


def test_a_side_statement_that_is_cut_off_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentrun.graph.drive.AROUND_SECONDS_MAX", 0.0)
    assert "cut off" in found()


def test_a_task_that_is_left_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Drive.run
    left: list[asyncio.Task[None]] = []

    async def leave(self: Drive) -> Outcome:
        left.append(asyncio.create_task(asyncio.sleep(1e6)))
        return await run(self)

    monkeypatch.setattr(Drive, "run", leave)
    assert "left" in found()
