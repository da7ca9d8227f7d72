"""The run's one budget: what may still be launched.

Who calls: the executor before each launch, and nodes that reserve tokens. What is
used comes from the log's totals alone; what is reserved, and what is in flight,
lives here and dies with the process.
"""

from __future__ import annotations

import asyncio
import copy
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agentrun.graph.types import LimitReached, NodeKind
from agentrun.log.replay import Totals
from agentrun.proto import log_pb2 as pb


@dataclass(frozen=True, kw_only=True)
class Limits:
    """0 tokens, wall seconds or turns: no limit. Retries always have one."""

    tokens: int = 0
    wall_seconds: float = 0
    turns: int = 0
    retries: int = 10
    pause: bool = True
    """When one is reached: pause the run (True) or fail it."""


def limits_of(budget: Mapping[str, Any]) -> Limits:
    """Limits in the manifest's form (tokens, wallSeconds, turns, retries, onExceeded); ValueError
    where that is not their form."""
    return Limits(
        tokens=_count(budget, "tokens", Limits.tokens),
        wall_seconds=_number(budget, "wallSeconds", Limits.wall_seconds),
        turns=_count(budget, "turns", Limits.turns),
        retries=_count(budget, "retries", Limits.retries),
        pause=budget.get("onExceeded", "Pause") == "Pause",
    )


def _number(budget: Mapping[str, Any], name: str, unset: float) -> float:
    value = budget.get(name)
    if value is None:
        return unset
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"budget.{name} is {value!r:.100}, and not a number from 0 on")
    return value


def _count(budget: Mapping[str, Any], name: str, unset: int) -> int:
    value = _number(budget, name, unset)
    if value != int(value):
        raise ValueError(f"budget.{name} is {value!r}, and not a whole number")
    return int(value)


class Budget:
    """`totals` are those of the folded log, which grow as records are acknowledged."""

    def __init__(self, limits: Limits, totals: Totals) -> None:
        self.limits = limits
        self.totals = totals
        self._turns: set[str] = set()
        self._retries: set[str] = set()
        self._reserved: dict[str, int] = {}
        self._waiting: list[asyncio.Future[None]] = []
        self._closed: Exception | None = None

    def begin(self, node_id: str, *, turn: bool, retry: bool, free: bool, busy_seconds: float) -> None:
        """A try is launched; LimitReached where it would go over a limit.

        `busy_seconds`: time that nodes in flight have run and that is in no record yet.
        """
        if not free:
            self._check(node_id, turn=turn, retry=retry, busy_seconds=busy_seconds)
        if turn:
            self._turns.add(node_id)
        if retry:
            self._retries.add(node_id)

    def hold_turns(self, begun: Iterable[pb.Spawn], kinds: Mapping[str, NodeKind]) -> None:
        """A node that was begun holds its turn until that is recorded: also between its tries and
        over a resume, so that turns and retries together bound the calls."""
        self._turns.update(spawn.id for spawn in begun if spawn.kind in kinds and kinds[spawn.kind].turn)

    def unrecorded_seconds(self, running: Iterable[tuple[int, int]]) -> float:
        """Time that is in no record yet, of the intervals (in microseconds) in which nodes in
        flight have run; 0 where no limit asks for it, and more than exact where it is far."""
        limit, totals = self.limits.wall_seconds, self.totals
        intervals = list(running) if limit else []
        longest = max((end - start for start, end in intervals), default=0) / 1e6
        if totals.wall_seconds + longest < limit or not intervals:
            return longest
        busy = copy.deepcopy(totals.busy)
        for start, end in intervals:
            busy.add(start, end)
        return busy.total_us / 1e6 - totals.wall_seconds

    def settle(self, node_id: str) -> None:
        """What the node's try used is in the totals, or it used nothing. Safe to repeat."""
        self._retries.discard(node_id)
        self.release(node_id)

    def recorded(self, node_id: str) -> None:
        """The node's result is in the totals."""
        self._turns.discard(node_id)
        self.settle(node_id)

    def _check(self, node_id: str, *, turn: bool, retry: bool, busy_seconds: float) -> None:
        limits, totals = self.limits, self.totals
        if limits.tokens and totals.tokens >= limits.tokens:
            raise LimitReached("tokens", f"{totals.tokens} of {limits.tokens} tokens are used")
        wall = totals.wall_seconds + busy_seconds
        if limits.wall_seconds and wall >= limits.wall_seconds:
            raise LimitReached("wallSeconds", f"{wall:.1f} of {limits.wall_seconds:g} seconds are used")
        turns = totals.turns + len(self._turns - {node_id})
        if turn and limits.turns and turns >= limits.turns:
            raise LimitReached("turns", f"{turns} of {limits.turns} turns are used")
        retries = totals.retries + len(self._retries)
        if retries + (1 if retry else 0) > limits.retries:
            raise LimitReached("retries", f"{retries} of {limits.retries} retries are used")

    def retry_left(self) -> bool:
        """One more try may be drawn."""
        return self.totals.retries + len(self._retries) < self.limits.retries

    async def reserve(self, node_id: str, tokens: int) -> None:
        """Waits until `tokens` fit, or until nothing else is in flight; LimitReached where none are left.
        Takes the place of what the node had reserved before."""
        while not self._fits(node_id, tokens):
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future
        self._reserved[node_id] = tokens

    async def wait(self, seconds: float) -> None:
        """Waits so long; raises what the budget is closed with, as soon as it is."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while self._closed is None and (left := end - loop.time()) > 0:
            future = loop.create_future()
            self._waiting.append(future)
            await asyncio.wait([future], timeout=left)
            if not future.done():
                self._waiting.remove(future)
        if self._closed is not None:
            raise self._closed

    def _fits(self, node_id: str, tokens: int) -> bool:
        if self._closed is not None:
            raise self._closed
        limit, used = self.limits.tokens, self.totals.tokens
        if not limit:
            return True
        if used >= limit:
            raise LimitReached("tokens", f"{used} of {limit} tokens are used")
        others = [reserved for id_, reserved in self._reserved.items() if id_ != node_id]
        return not others or used + sum(others) + tokens <= limit

    def release(self, node_id: str) -> None:
        """Gives back what the node has reserved, for what is to run below it."""
        if self._reserved.pop(node_id, None) is not None:
            self._wake()

    def set_limits(self, limits: Limits) -> None:
        """From now on."""
        self.limits = limits
        self._wake()

    def close(self, error: Exception) -> None:
        """Whoever waits to reserve, and whoever comes, gets `error`."""
        self._closed = self._closed or error
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)
