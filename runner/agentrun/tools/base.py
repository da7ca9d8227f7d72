"""The seam between the agent loop and tools.

A tool makes one attempt a call and never retries by itself. What it may do is
told by its effect: the loop appends an intent before an unsafe call, and repeats
only what is safe to repeat.

A tool server gives many tools. What it offers is listed once, before an agent's first
turn, and recorded; from then on the record says what there is, and not the server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from agentrun.models.base import ToolDefinition
from agentrun.proto import log_pb2

if TYPE_CHECKING:
    from agentrun.spec.approval import ApprovalRule


class Effect(StrEnum):
    """What a call does to the world, and so whether it may be repeated."""

    READ_ONLY = "read_only"
    IDEMPOTENT = "idempotent"
    UNSAFE = "unsafe"


class OnUnknown(StrEnum):
    """What to do when an unsafe call was started and its result never came."""

    REPORT = "Report"
    RETRY = "Retry"
    ASK = "Ask"


async def _nothing() -> None:
    return None


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """One call. `arguments` is the JSON text as the model wrote it.

    `idempotency_key` is the same for every try of this call and for no other
    call. `before_send` is awaited as the very last step before the call takes
    effect; it raises when this process may no longer make calls.
    """

    arguments: str
    idempotency_key: str
    run_id: str
    node_id: str
    before_send: Callable[[], Awaitable[None]] = _nothing


@dataclass(frozen=True, kw_only=True)
class ToolOutput:
    """What the model is told. `is_error`: the tool itself says that it failed. `attachments`
    (inline) are kept with the call's record; `content` says what they are."""

    content: str
    is_error: bool = False
    attachments: Sequence[log_pb2.Payload] = ()


class ToolError(Exception):
    """A call that gave no output.

    `retryable`: another try may go well (connection refused, 429, 502, 503, 504).
    `started`: the call may have taken effect (the request was sent and the answer
    never came); False only where it is certain that it did not.
    """

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        retryable: bool,
        started: bool = True,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message
        self.retryable = retryable
        self.started = started
        self.retry_after_seconds = retry_after_seconds


class Tool(Protocol):
    """One tool that a manifest gives to its agent."""

    @property
    def definition(self) -> ToolDefinition:
        """As the model is told of it."""

    @property
    def effect(self) -> Effect:
        """`unsafe` unless the manifest or the tool says otherwise."""

    @property
    def on_unknown(self) -> OnUnknown:
        """The policy for an unknown outcome."""

    @property
    def approval(self) -> ApprovalRule | None:
        """Which calls wait for a person; None: none do."""

    @property
    def timeout_seconds(self) -> float:
        """The bound on one call, to its result."""

    async def call(self, call: ToolCall) -> ToolOutput:
        """One attempt; raises ToolError, and nothing else of its own."""

    async def close(self) -> None:
        """Closes connections."""


@dataclass(frozen=True, kw_only=True)
class ServerTool:
    """A tool as its server offers it.

    `name` is the server's own word for it, of any form. `parameters` is what it gives as a
    JSON schema, which may be odd, or None. `binding` is recorded and handed back with each
    call: whatever the server must know to make it, so that it need not list again.
    """

    name: str
    description: str = ""
    parameters: Any = None
    effect: Effect = Effect.UNSAFE
    binding: bytes = b""


class ToolServerUnavailable(Exception):
    """The server's tools cannot be listed. `retryable`: it may be there later."""

    def __init__(self, message: str, *, retryable: bool) -> None:
        super().__init__(message)
        self.message = message
        self.retryable = retryable


class ToolServer(Protocol):
    """Many tools behind one entry of a manifest."""

    async def list_tools(self, before_send: Callable[[], Awaitable[None]]) -> Sequence[ServerTool]:
        """All that it offers, in its own order; waits for it within a bound of its own.

        `before_send` as in `ToolCall`, before each call out. Raises ToolServerUnavailable."""

    async def call_tool(self, tool: ServerTool, call: ToolCall, timeout_seconds: float) -> ToolOutput:
        """One attempt, as of `Tool.call`. `tool` is as recorded: it may be listed no more."""

    async def close(self) -> None:
        """Closes connections; ends what it has started, within a second."""
