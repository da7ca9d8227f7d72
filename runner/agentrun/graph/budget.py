"""The run's one budget: what may still be launched.

Who calls: the executor before each launch, and nodes that reserve tokens. What is
used comes from the log's totals alone; what is reserved, and what is in flight,
lives here and dies with the process.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from agentrun.graph.types import LimitReached
from agentrun.log.replay import Totals


@dataclass(frozen=True, kw_only=True)
class Limits:
    """0 tokens, wall seconds or turns: no limit. Retries always have one."""

    tokens: int = 0
    wall_seconds: float = 0
    turns: int = 0
    retries: int = 10
    pause: bool = True
    """When one is reached: pause the run (True) or fail it."""


class Budget:
    """`totals` are those of the folded log, which grow as records are acknowledged."""

    def __init__(self, limits: Limits, totals: Totals) -> None:
        self.limits = limits
        self.totals = totals
        self.turns_in_flight = 0
        self.retries_in_flight = 0
        self._reserved: dict[str, int] = {}
        self._changed = asyncio.Condition()
        self._closed: Exception | None = None

    def check(self, *, turn: bool, retry: bool, busy_seconds: float) -> None:
        """LimitReached where a launch would go over a limit.

        `busy_seconds`: time that nodes in flight have run and that is in no record yet.
        """
        limits, totals = self.limits, self.totals
        if limits.tokens and totals.tokens >= limits.tokens:
            raise LimitReached("tokens", f"{totals.tokens} of {limits.tokens} tokens are used")
        wall = totals.wall_seconds + busy_seconds
        if limits.wall_seconds and wall >= limits.wall_seconds:
            raise LimitReached("wallSeconds", f"{wall:.1f} of {limits.wall_seconds:g} seconds are used")
        if turn and limits.turns and totals.turns + self.turns_in_flight >= limits.turns:
            raise LimitReached("turns", f"{totals.turns} of {limits.turns} turns are used")
        retries = totals.retries + self.retries_in_flight + (1 if retry else 0)
        if retries > limits.retries:
            raise LimitReached("retries", f"{totals.retries} of {limits.retries} retries are used")

    async def reserve(self, node_id: str, tokens: int) -> None:
        """Waits until `tokens` fit, or until nothing else is in flight; LimitReached where none are left."""
        async with self._changed:
            while not self._fits(tokens):
                await self._changed.wait()
            self._reserved[node_id] = tokens

    def _fits(self, tokens: int) -> bool:
        if self._closed is not None:
            raise self._closed
        limit, used = self.limits.tokens, self.totals.tokens
        if not limit:
            return True
        if used >= limit:
            raise LimitReached("tokens", f"{used} of {limit} tokens are used")
        return not self._reserved or used + sum(self._reserved.values()) + tokens <= limit

    async def release(self, node_id: str) -> None:
        """The node's call is over, and what it used is in the totals."""
        if self._reserved.pop(node_id, None) is not None:
            await self._wake()

    async def set_limits(self, limits: Limits) -> None:
        """From now on."""
        self.limits = limits
        await self._wake()

    async def close(self, error: Exception) -> None:
        """Whoever waits to reserve, and whoever comes, gets `error`."""
        self._closed = error
        await self._wake()

    async def _wake(self) -> None:
        async with self._changed:
            self._changed.notify_all()
