"""Runs a graph that is discovered as it runs, from wherever its log stands.

Who calls: whatever has claimed a run. What holds:
- a node runs when its parents' records are acknowledged, and not before;
- each node that finishes is recorded at once, however its siblings fare;
- what is stopped (a drain, a limit, a cancel) is stopped at a node's boundary:
  nothing new is launched, what is in flight finishes and is recorded;
- a node that waits for a person's answer holds up no other, and when nothing else can
  run the run is parked;
- fenced off, nothing further is launched or recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from agentrun.graph.asking import Asking
from agentrun.graph.budget import Budget, Limits
from agentrun.graph.ending import conclude
from agentrun.graph.node import NodeRun, machine_errors, settle, too_large
from agentrun.graph.observing import Observer, watched_by
from agentrun.graph.outcome import Outcome, RetryWaits, left_of, parked
from agentrun.graph.queue import Queue
from agentrun.graph.scopes import Scopes
from agentrun.graph.types import (
    LimitReached,
    NodeError,
    NodeKind,
    NodeResult,
    NotLaunched,
    Parked,
    Spawned,
    scope_of,
    to_root,
)
from agentrun.log.errors import BlobTooLarge
from agentrun.log.replay import FINALIZE
from agentrun.log.runlog import RunLog, check_kinds
from agentrun.proto import log_pb2 as pb

__all__ = ["Executor", "Observer", "Outcome", "RetryWaits"]

ABANDON_SECONDS_MAX = 2.0
"""How long nodes that were cancelled may take to notice."""


class Executor:
    """See the module's docstring. One `run` an object."""

    def __init__(
        self,
        log: RunLog,
        kinds: Mapping[str, NodeKind],
        root: Spawned,
        *,
        limits: Limits | None = None,
        concurrency: int = 16,
        waits: RetryWaits | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.log = log
        self.budget = Budget(limits or Limits(), log.history.totals)
        self.running: dict[str, NodeRun] = {}
        self.kinds = kinds
        self.spawning: set[str] = set()
        self._root = root
        self._concurrency = concurrency
        self._waits = waits or RetryWaits()
        self._observe = watched_by(observer)
        self._queue = Queue(lambda: self._changed.set())
        self.asking = Asking(log, self.append)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._scopes = Scopes(log.history, self._make_ready)
        self._stop: Outcome | None = None
        self._ending = ""  # the node whose record ends the run
        self._waiting_for_itself: dict[str, pb.Spawn] = {}
        self._quiet: asyncio.Future[None] | None = None
        self._given_up = False
        self._over = False
        self._error: Exception | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()

    # --- what others may ask

    def pause(self, reason: str, message: str = "", *, within_seconds: float | None = None) -> None:
        """Stops launching; `run` returns when what is in flight is recorded, or given up
        after `within_seconds` (it was never recorded then, and runs again)."""
        self._halt(parked(reason, message))
        if within_seconds is not None:
            self._give_up_within(within_seconds)

    def cancel(self, message: str = "", *, at_once: bool = False) -> None:
        """Ends the run as Cancelled: when what is in flight is recorded, or at once."""
        self._halt(Outcome(outcome=pb.OUTCOME_CANCELLED, reason="Cancelled", message=message))
        if at_once:
            self._give_up_within(0)

    def stop_for(self, error: Exception) -> None:
        """Stops at once and has `run` raise `error`."""
        self._error = self._error or error
        self._changed.set()

    def _halt(self, stop: Outcome) -> None:
        if self._stop is None or (self._stop.paused and not stop.paused):
            self._stop = stop
            self._observe("stopping", "", {"reason": stop.reason, "message": stop.message})
        self._queue.clear_timers()
        self.budget.close(NotLaunched())
        self._changed.set()

    def _give_up_within(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = asyncio.get_running_loop().call_later(max(0.0, seconds), self._give_up)

    def _give_up(self) -> None:
        if not self._given_up:  # once: nobody is disturbed while cleaning up
            self._given_up = True
            for task in self._tasks.values():
                task.cancel()
        self._changed.set()

    # --- the loop

    async def run(self) -> Outcome:
        """Runs to the end or to a stop. Raises Fenced, CorruptLog, StoreUnavailable."""
        self._scopes.open("", to_root(self._root, ""))
        check_kinds(self.log.history, frozenset(self.kinds) | {FINALIZE})
        self.budget.hold_turns(self.log.history.begun(), self.kinds)
        if (failure := self._scopes.failing("")) is not None:
            self._fail(failure.reason, failure.message)
        try:
            while not self._settled() or await self._answered():
                await self._changed.wait()
                self._changed.clear()
        finally:
            await self._abandon()
        if self._error is not None:
            raise self._error
        return await conclude(self.log, self._scopes, self._stop, self._observe)

    def _settled(self) -> bool:
        """Launches what may be launched; True when nothing is left to wait for."""
        self._launch()
        if self._error is not None or self._given_up:
            return True
        active = len(self._tasks) - self._scopes.waiting
        if self._quiet is not None and active == 1 and not self._quiet.done():
            self._quiet.set_result(None)
        if active:
            return False
        return self._stop is not None or bool(self._ending) or not self._queue

    async def _answered(self) -> bool:
        """Nothing else can run: whether a person has answered meanwhile; parks the run else."""
        if self._stop or self._ending or self._error or not self._queue.parked:
            return False
        await self.read_answers()
        if news := bool(self._queue or self._stop or not self._queue.parked):
            self._changed.set()
        else:
            self._halt(self._queue.parking())
        return news

    async def read_answers(self) -> None:
        """The inbox may have answers that are not known here."""
        self._queue.answered(await self.asking.read())

    def _launch(self) -> None:
        while self._queue.ready and self._stop is None and not self._ending and self._error is None:
            if len(self._tasks) - self._scopes.waiting >= self._concurrency:
                return
            spawn = self._queue.ready.popleft()
            if spawn.id in self._tasks:  # an earlier try was told to stop, and has not yet
                self._waiting_for_itself[spawn.id] = spawn
                continue
            if spawn.id in self.log.history.done or self._scopes.failing(scope_of(spawn.id)) is not None:
                continue
            kind = self.kinds[spawn.kind]
            busy = self.budget.unrecorded_seconds(node.busy_us() for node in self.running.values())
            again = spawn.id in self.log.history.tries
            try:
                self.budget.begin(spawn.id, turn=kind.turn, retry=again, free=kind.free, busy_seconds=busy)
            except LimitReached as limit:
                self._limit_reached(limit)
            else:
                self._tasks[spawn.id] = asyncio.create_task(self._try(spawn, kind), name=spawn.id)

    def _limit_reached(self, limit: LimitReached) -> None:
        outcome = pb.OUTCOME_UNSPECIFIED if self.budget.limits.pause else pb.OUTCOME_FAILED
        message = f"budget.{limit.limit}: {limit.message}"
        self._halt(Outcome(outcome=outcome, reason="BudgetExceeded", message=message))

    def _fail(self, reason: str, message: str) -> None:
        self._halt(Outcome(outcome=pb.OUTCOME_FAILED, reason=reason, message=message))

    def _make_ready(self, spawn: pb.Spawn) -> None:
        """Now, or when the wait that the log says is over."""
        last = self.log.history.last_try.get(spawn.id)
        wait = 0.0
        if last is not None:
            self.budget.hold_turns([spawn], self.kinds)
            wait = left_of(last, self.log.clock.wall_us())
        self._later(spawn, wait)

    def _later(self, spawn: pb.Spawn, wait_seconds: float) -> None:
        if not self._scopes.is_open(scope_of(spawn.id)) or spawn.id in self._waiting_for_itself:
            return  # it was told to stop and failed all the same: nobody, or another try, waits for it
        if wait_seconds <= 0:
            self._queue.ready.append(spawn)
        elif self._stop is None and not self._ending:
            self._queue.later(spawn, wait_seconds)

    # --- one try

    async def _try(self, spawn: pb.Spawn, kind: NodeKind) -> None:
        try:
            node = NodeRun(self, spawn, kind, await self.payload(spawn.input))
            self.running[spawn.id] = node
            await self._conclude(node, await settle(node))
        except LimitReached as limit:
            self._limit_reached(limit)
        except Parked as waits:
            self._park(spawn, waits)
        except NotLaunched:
            pass
        except Exception as error:
            self.stop_for(error)
        finally:
            self.running.pop(spawn.id, None)
            self._tasks.pop(spawn.id, None)
            self.budget.settle(spawn.id)
            if (again := self._waiting_for_itself.pop(spawn.id, None)) is not None:
                self._make_ready(again)
            self._scopes.ended(spawn.id, self._tasks)
            self._changed.set()

    def _park(self, spawn: pb.Spawn, waits: Parked) -> None:
        if self._scopes.may_run(spawn.id):
            self._queue.park(spawn, waits)
            self._observe("parked", spawn.id, {"reason": waits.ask.reason, "id": waits.ask.id})

    async def _conclude(self, node: NodeRun, result: NodeResult | NodeError) -> None:
        if isinstance(result, NodeResult):
            try:
                record = node.result_record(result)
            except NodeError as error:
                result = error
            else:
                await self._record(node, record)
                return
        await self._failed(node, result)

    async def _record(self, node: NodeRun, record: pb.NodeRecord) -> None:
        if record.HasField("final"):
            if self._ending:
                record.ClearField("final")  # another node's record ends the run, and this one is kept
            else:
                await self._alone(node)
        try:
            await self.append(record)
        except BlobTooLarge as error:
            await self._failed(node, too_large(record, error))
            return
        self.budget.recorded(node.node_id)
        self._scopes.finished(record)
        self._observe("finished", record.id, {"record": record})

    async def _alone(self, node: NodeRun) -> None:
        """A final record waits for the nodes in flight: none of their results is lost. Those that
        only wait for graphs of their own, of which nothing more is launched, are given up."""
        self._ending = node.node_id
        self._queue.clear_timers()
        self.budget.close(NotLaunched())
        self._quiet = asyncio.get_running_loop().create_future()
        self._changed.set()
        await self._quiet

    async def _failed(self, node: NodeRun, error: NodeError) -> None:
        wait = self._waits.behind(node.try_number, error)
        await self.append(record := node.try_record(error, wait))
        self.budget.settle(node.node_id)
        self._observe("failed", node.node_id, {"record": record})
        if error.parks(node.try_number, retry_left=self.budget.retry_left()):
            self._halt(parked(error.reason, error.message))
        elif error.retryable and self.budget.retry_left():
            self._later(node.spawn, wait)
        elif error.retryable:
            used = f"{self.budget.totals.retries} of {self.budget.limits.retries} retries are used"
            self._limit_reached(LimitReached("retries", f"{used}; {node.node_id}: {error}"))
        else:
            self._scopes.failed(node.node_id, error)
            self._queue.drop_failed(node.scope)
            if not node.scope:
                self._fail(error.reason, f"{node.node_id}: {error.message}")

    # --- graphs within graphs

    def told(self, node: NodeRun, event: str, **fields: Any) -> None:
        self._observe(event, node.node_id, {**fields, "try": node.try_number, "attempt": self.log.attempt})

    def check(self, record_id: str = "") -> None:  # known: an earlier try finished all the same
        if self._over or self.log.sealed or self.log.knows(record_id):
            raise NotLaunched

    async def append(self, record: pb.NodeRecord) -> None:
        self.check(record.id)
        try:
            with machine_errors():
                await self.log.append(record, check=lambda: self.check(record.id))
        except asyncio.CancelledError:  # what it has cost counts before its room is given to others
            await self.log.landed(record.id)
            raise
        finally:
            if not self.log.knows(record.id):  # it never went: another try may spawn the same
                self.spawning.difference_update(spawn.id for spawn in record.spawned)

    async def payload(self, payload: pb.Payload) -> bytes:
        with machine_errors():
            return await self.log.payload(payload)

    async def run_subgraph(self, scope: str, root: pb.Spawn) -> bytes:
        if self._scopes.is_open(scope):
            raise NodeError("InvalidGraph", f"{scope[:-1]}: a node has one graph of its own", retryable=False)
        self._scopes.open(scope, root)
        self._changed.set()
        record = await self._scopes.result(scope)
        return await self.payload(record.output)

    def close_scope(self, scope: str) -> None:
        if not self._scopes.close(scope):
            return
        for id_, task in self._tasks.items():
            if id_.startswith(scope):
                task.cancel()
        self._queue.drop(scope)

    # --- the end

    async def _abandon(self) -> None:
        self._queue.clear_timers()
        if self._deadline is not None:
            self._deadline.cancel()
        self._give_up()
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()), timeout=ABANDON_SECONDS_MAX)
        self._over = True
