"""One try of one node: from its launch to its record.

Who calls: the executor, a task a try. What holds: the handler runs only behind a
fresh confirmation; whatever comes of it, a result or a failed try, is in the log
before anybody acts on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

from agentrun.graph.asking import Asking
from agentrun.graph.budget import Budget
from agentrun.graph.observing import Pieces
from agentrun.graph.types import (
    LimitReached,
    NodeError,
    NodeKind,
    NodeResult,
    NotLaunched,
    Parked,
    Question,
    Spawned,
    Usage,
    scope_of,
    to_root,
    to_spawn,
)
from agentrun.log.errors import BlobTooLarge, LogError, StoreUnavailable
from agentrun.log.final import bounded
from agentrun.log.replay import INTENT, TRY
from agentrun.log.runlog import RunLog
from agentrun.log.store import InboxRow
from agentrun.proto import log_pb2 as pb


class Host(Protocol):
    """What a node needs of its executor."""

    log: RunLog
    budget: Budget
    kinds: Mapping[str, NodeKind]
    asking: Asking
    spawning: set[str]
    """Ids of the successors in all records so far, also in those that are under way."""

    def check(self, record_id: str = "") -> None:
        """NotLaunched when the run is over, or that record is known: for who was told to stop, and
        did not heed it."""

    async def append(self, record: pb.NodeRecord) -> None:
        """To the log, unless the run is over."""

    async def payload(self, payload: pb.Payload) -> bytes:
        """The bytes of a payload, from wherever they are."""

    async def run_subgraph(self, scope: str, root: pb.Spawn) -> bytes:
        """See NodeContext.subgraph."""

    def close_scope(self, scope: str) -> None:
        """Nothing below a node goes on without it: before its own record, so that whatever of it is
        on its way to the log comes first, and is known when another try opens the scope again."""

    def told(self, node: NodeRun, event: str, **fields: Any) -> None:
        """Whoever watches is told of the try."""


class NodeRun:
    """A try under way; what a handler gets as its `NodeContext`."""

    def __init__(self, host: Host, spawn: pb.Spawn, kind: NodeKind, payload: bytes) -> None:
        history = host.log.history
        self.run_id = host.log.run_id
        self.node_id = spawn.id
        self.scope = scope_of(spawn.id)
        self.name = spawn.id[len(self.scope) :]
        self.spawn = spawn
        self.kind = kind
        self.input = payload
        self.try_number = history.tries.get(spawn.id, 0) + 1
        self.interrupted = spawn.id in history.intents
        last_try = history.last_try.get(spawn.id)
        self.memo = last_try.error.memo if last_try is not None else b""
        self.failed = last_try.error.reason if last_try is not None else ""
        self._host = host
        self._log = host.log
        self._intended = self.interrupted
        self._used: list[str] = []
        self.pieces = Pieces(partial(host.told, self))
        self._begin()

    def _begin(self) -> None:
        self._started = self._log.clock.monotonic()
        self._started_us = self._log.now_us()
        self._idle = 0.0
        self._idle_since: float | None = None

    @property
    def busy_seconds(self) -> float:
        """How long this try has run; waiting for a graph of its own is not running."""
        now = self._log.clock.monotonic() if self._idle_since is None else self._idle_since
        return max(0.0, now - self._started - self._idle)

    def busy_us(self) -> tuple[int, int]:
        """The interval that the try's record would count now."""
        elapsed = max(0.0, self._log.clock.monotonic() - self._started)
        end = self._started_us + round(elapsed * 1e6)
        return end - round(self.busy_seconds * 1e6), end

    # --- what a handler may ask (NodeContext)

    async def output(self, name: str) -> bytes:
        return await self._host.payload(self._done(name).output)

    async def attachment(self, name: str, media_type: str) -> bytes | None:
        for payload in self._done(name).attachments:
            if payload.media_type == media_type:
                return await self._host.payload(payload)
        return None

    def _done(self, name: str) -> pb.NodeRecord:
        record = self._log.history.done.get(self.scope + name)
        if record is None:
            raise NodeError("NoSuchNode", f"node {self.scope + name!r} is not done", retryable=False)
        return record

    def is_done(self, name: str) -> bool:
        return self.scope + name in self._log.history.done

    def outputs(self, kind: str) -> Sequence[str]:
        done = self._log.history.done
        start = len(self.scope)
        return [id_[start:] for id_, r in done.items() if r.kind == kind and scope_of(id_) == self.scope]

    async def reserve(self, tokens: int) -> None:
        await self._host.budget.reserve(self.node_id, tokens)
        self._begin()  # waiting for room is not running

    async def wait(self, seconds: float) -> None:
        self._host.budget.release(self.node_id)  # what it had room for is not on its way
        self._idle_since = self._log.clock.monotonic()
        try:
            await self._host.budget.wait(seconds)
        finally:
            self._begin()

    async def confirm(self) -> None:
        self._host.check()
        await self._log.confirm()

    def partial(self, kind: str, text: str) -> None:
        self.pieces.show(kind, text)

    async def intend(self) -> None:
        if self._intended:
            return
        self._intended = True
        suffix = "" if self.try_number == 1 else f"#{self.try_number}"
        now = self._log.clock.wall_us()
        await self._host.append(
            pb.NodeRecord(
                id=f"{self.node_id}{suffix}!intent",
                parents=[self.node_id],
                kind=INTENT,
                consumed=self._used,
                started_us=now,
                finished_us=now,
            )
        )

    async def ask(self, question: Question) -> InboxRow:
        answer = await self._host.asking.answer(self.node_id, question, self._used)
        self._used.append(answer.id)
        self._begin()  # what it took to ask is no work of the node's
        return answer

    async def subgraph(self, root: Spawned) -> bytes:
        scope = self.node_id + "/"
        try:
            spawn = to_root(root, scope)
            self._require_kind(spawn)
        except ValueError as error:
            raise NodeError("InvalidGraph", str(error), retryable=False) from None
        if self._used:
            await self.intend()  # it names the answers: what is below may wait for long
        self._host.budget.release(self.node_id)
        self._idle_since = since = self._log.clock.monotonic()
        try:
            return await self._host.run_subgraph(scope, spawn)
        finally:
            self._idle += self._log.clock.monotonic() - since
            self._idle_since = None

    # --- the try

    async def handle(self) -> NodeResult:
        """Calls the handler behind a fresh confirmation. Raises NodeError for a try that failed."""
        await self._log.confirm()
        self._begin()
        self._host.told(self, "launched", kind=self.kind.name)
        try:
            async with asyncio.timeout(self.kind.timeout_seconds or None) as bound:
                with self.pieces:
                    return await self.kind.run(self)
        except TimeoutError as error:
            if not bound.expired():
                raise _failed(error) from error
            text = f"node {self.node_id} took longer than {self.kind.timeout_seconds:g} s"
            raise NodeError("Timeout", text, retryable=True) from None
        finally:
            self._host.close_scope(self.node_id + "/")

    def result_record(self, result: NodeResult) -> pb.NodeRecord:
        """What goes into the log for a result; NodeError where the result cannot be recorded."""
        try:
            record = self._record(self.node_id, self.kind.name, result.usage)
            record.cost.turns = 1 if self.kind.turn else 0
            record.parents.extend(self.spawn.parents)
            record.output.CopyFrom(pb.Payload(inline=result.output, media_type=result.media_type))
            record.consumed.extend(id_ for id_ in result.consumed if id_ not in self._used)
            record.attachments.extend(result.attachments)
            if result.final is not None:
                record.final.CopyFrom(_final(result.final))
        except (TypeError, ValueError, AttributeError) as error:
            text = f"{type(error).__name__}: {error}"
            raise NodeError("InvalidResult", text, retryable=False, usage=sane(result.usage)) from None
        try:
            if result.final is not None and self.scope:
                raise ValueError("only a node of the run's own graph can end the run")
            record.spawned.extend(self._spawns(result.spawned))
        except (TypeError, ValueError, AttributeError) as error:
            raise NodeError("InvalidGraph", str(error), retryable=False, usage=sane(result.usage)) from None
        return record

    def _spawns(self, successors: Sequence[Spawned]) -> list[pb.Spawn]:
        """The record's form of the successors; ValueError for what can never run."""
        found: dict[str, pb.Spawn] = {}
        for ordinal, spawned in enumerate(successors):
            spawn = to_spawn(spawned, self.node_id, ordinal)
            self._require_kind(spawn)
            if any(spawn.id in known for known in (self._log.history.spawned, self._host.spawning, found)):
                raise ValueError(f"node {spawn.id!r} is spawned twice")
            found[spawn.id] = spawn
        self._host.spawning.update(found)
        return list(found.values())

    def _require_kind(self, spawn: pb.Spawn) -> None:
        if spawn.kind not in self._host.kinds:
            raise ValueError(f"node {spawn.id!r} is of the unknown kind {spawn.kind!r}")

    def try_record(self, error: NodeError, retry_in_seconds: float) -> pb.NodeRecord:
        """What goes into the log for a failed try."""
        self.pieces.take_back()
        record = self._record(f"{self.node_id}#{self.try_number}", TRY, sane(error.usage))
        record.parents.append(self.node_id)
        record.error.reason = bounded(str(error.reason))
        record.error.message = bounded(str(error.message))
        record.error.retryable = error.retryable
        record.error.retry_in_ms = int(retry_in_seconds * 1000)
        record.error.memo = error.memo
        return record

    def _record(self, record_id: str, kind: str, usage: Usage) -> pb.NodeRecord:
        cost = pb.Cost(
            tokens_in=usage.tokens_in,
            tokens_out=usage.tokens_out,
            tokens_cached=usage.tokens_cached,
            tokens_reasoning=usage.tokens_reasoning,
            wall_ms=round(self.busy_seconds * 1000),
            retries=1 if self.try_number > 1 else 0,
            estimated=bool(usage.estimated),
        )
        return pb.NodeRecord(
            id=record_id,
            kind=kind,
            cost=cost,
            consumed=self._used,
            started_us=self._started_us,
            finished_us=self.busy_us()[1],
        )


def sane(usage: Usage) -> Usage:
    """The usage with what cannot be a count left out, and marked as an estimate then."""
    found = {name: getattr(usage, name, None) for name in _COUNTS}
    good = {
        name: value for name, value in found.items() if isinstance(value, int) and 0 <= value <= COUNT_MAX
    }
    return Usage(**good, estimated=bool(getattr(usage, "estimated", True)) or len(good) < len(found))


_COUNTS = ("tokens_in", "tokens_out", "tokens_cached", "tokens_reasoning")
COUNT_MAX = 2**53


def too_large(record: pb.NodeRecord, error: BlobTooLarge) -> NodeError:
    """No store takes what the node has produced; what it has cost counts all the same."""
    usage = Usage(**{name: getattr(record.cost, name) for name in _COUNTS}, estimated=record.cost.estimated)
    return NodeError("OutputTooLarge", str(error), retryable=False, usage=usage)


def _final(final: pb.Final) -> pb.Final:
    """The end of the run with its texts made safe; ValueError where it says not how the run ended."""
    if final.outcome == pb.OUTCOME_UNSPECIFIED:
        raise ValueError("a final without an outcome")
    return pb.Final(outcome=final.outcome, reason=bounded(final.reason), message=bounded(final.message))


def _failed(error: BaseException) -> NodeError:
    """An exception that no handler should let through: its author's mistake, told by name."""
    try:
        text = str(error)
    except Exception:  # its author's mistake too
        text = ""
    return NodeError("NodeFailed", f"{type(error).__name__}: {text}", retryable=False)


@contextmanager
def machine_errors() -> Iterator[None]:
    """A folder of blobs that cannot be used now is a store that is away, and no fault of a node's."""
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(f"blobs: {error}") from error


async def settle(node: NodeRun) -> NodeResult | NodeError:
    """The try's result or its failure; only what stops the whole process is raised."""
    try:
        result: object = await node.handle()
    except NodeError as error:
        return error
    except (LogError, LimitReached, NotLaunched, Parked):
        raise
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return _failed(error)  # something within was cancelled, and not the node
    except Exception as error:
        return _failed(error)
    if isinstance(result, NodeResult):
        return result
    text = f"node {node.node_id} gave a {type(result).__name__}, which is no NodeResult"
    return NodeError("InvalidResult", text, retryable=False)
