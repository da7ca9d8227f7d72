"""One request on its way to a server: what the carrier must know of it that the SDK does not.

Made by `server`, read by the carriers (`http`, `stdio`) through `CURRENT`, for the SDK's
session stands in between. Invariant: `gate.passed` is False as long as it is certain that
nothing of the request was sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from agentrun.tools.gate import Gate

PROGRESS_TIMES_MAX = 10
"""Progress gives a call its time anew, up to so many times of it in all."""


class Fault(Exception):
    """A request that brought no answer. `retryable`: another try may go well; `started`: it may
    have taken effect; `refused`: nobody of our name will be let in; `session`: the server knows
    our session no more, which proves that nothing was done."""

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        retryable: bool,
        started: bool,
        retry_after_seconds: float | None = None,
        refused: bool = False,
        session: bool = False,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.retryable = retryable
        self.started = started
        self.retry_after_seconds = retry_after_seconds
        self.refused = refused
        self.session = session


@dataclass
class Exchange:
    """`arguments` of a tool's call, with each number as the model wrote it. `raw` is the result as
    the server sent it, before anybody judged its form."""

    gate: Gate
    arguments: Mapping[str, Any] | None = None
    raw: dict[str, Any] | None = None
    deadline: asyncio.Timeout | None = None
    seconds: float = 0.0
    ends_at: float = 0.0
    extended: bool = False

    @classmethod
    def of(cls, before_send: Callable[[], Awaitable[None]]) -> Exchange:
        """Of a request without a deadline of its own."""
        return cls(gate=Gate(before_send))

    def start(self, deadline: asyncio.Timeout, seconds: float) -> None:
        """The call has so much time, from now on."""
        self.deadline = self.gate.deadline = deadline
        self.seconds = seconds
        self.ends_at = asyncio.get_running_loop().time() + PROGRESS_TIMES_MAX * seconds

    def progressed(self) -> None:
        """The server says that it is at work."""
        if self.deadline is None or self.deadline.when() is None or self.deadline.expired():
            return
        self.extended = True
        now = asyncio.get_running_loop().time()
        self.deadline.reschedule(max(self.deadline.when() or now, min(now + self.seconds, self.ends_at)))


CURRENT: ContextVar[Exchange | None] = ContextVar("agentrun_mcp_exchange", default=None)
"""The exchange of the task that sends a request."""


def current() -> Exchange:
    """The exchange that this task has begun."""
    exchange = CURRENT.get()
    assert exchange is not None, "a request to an MCP server outside of an exchange"
    return exchange


def params_of(params: Mapping[str, Any] | None, exchange: Exchange, request_id: int) -> dict[str, Any]:
    """What is sent: with the arguments as the model wrote them, and asking for progress."""
    sent = dict(params or {})
    if exchange.arguments is not None:
        sent["arguments"] = exchange.arguments
        sent["_meta"] = {**(sent.get("_meta") or {}), "progressToken": request_id}
    return sent
