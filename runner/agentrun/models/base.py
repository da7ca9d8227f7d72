"""The seam between the agent loop and model providers.

The loop builds a `ModelRequest` from the log and asks a `Model` for one turn. A
model makes exactly one HTTP request a call and never retries by itself: what is
retried, and when, is decided by the run's one retry budget. Everything crosses
this seam in our own schema (`agentrun.proto.transcript_pb2`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from agentrun.proto import transcript_pb2 as pb

Message = pb.UserMessage | pb.AssistantTurn | pb.ToolResult
"""One entry of a conversation. The `ToolResult`s behind an `AssistantTurn` answer
its tool calls one for one, in the order of the calls: results are paired by
position, never by a provider's ids."""


@dataclass(frozen=True, kw_only=True)
class ToolDefinition:
    """A tool as a model is told of it. `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Tokens of one request; all at least 0.

    `tokens_in` includes what was read from and written to the provider's cache,
    `tokens_cached` is the part of it that was read; `tokens_out` includes
    reasoning, `tokens_reasoning` is that part. `estimated`: the provider said
    nothing, or nothing sane, and these are our own estimates.
    """

    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    tokens_reasoning: int = 0
    estimated: bool = False


@dataclass(frozen=True, kw_only=True)
class Delta:
    """A piece of an answer that is on its way, to be shown and forgotten. `kind`: text, thinking,
    or call (then the text is the tool's name)."""

    kind: str
    text: str


async def _nothing() -> None:
    return None


def _unseen(delta: Delta) -> None:
    return None


@dataclass(frozen=True, kw_only=True)
class ModelRequest:
    """What one turn needs.

    `before_send` is awaited as the very last step before the request leaves this
    process; it raises when this process may no longer make calls. `key` names
    the node and try, for logs and for a scripted model's place in its script.
    `turn` says which turn of the conversation is asked for, from 1: it may have more
    than `messages` still tell of. 0: none, but a summary of them.
    `settings` are the manifest's (temperature, maxTokens, toolChoice, …). `place` says
    which of the agent's models is asked, as the turns' `state` does: what only its
    author understands of a turn goes back to that model alone. `without` names options
    (see `options`) that the model's server has refused. `output_schema`: what the final
    answer must fit, for providers that can be told so; the instructions say it too.
    `on_delta` is called with pieces of an answer that comes as a stream; it must not raise.
    """

    instructions: str
    messages: Sequence[Message]
    tools: Sequence[ToolDefinition] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    max_output_tokens: int | None = None
    timeout_seconds: float = 600.0
    key: str = ""
    turn: int | None = None
    place: int = 0
    without: frozenset[str] = frozenset()
    output_schema: Mapping[str, Any] | None = None
    before_send: Callable[[], Awaitable[None]] = _nothing
    on_delta: Callable[[Delta], None] = _unseen


@dataclass(frozen=True, kw_only=True)
class ModelResponse:
    """A turn that is whole, with what it cost."""

    turn: pb.AssistantTurn
    usage: Usage


class ModelError(Exception):
    """A request that gave no turn.

    `reason` is CamelCase from: RateLimited, Overloaded, Timeout, ConnectionError,
    ServerError, InvalidResponse, Unauthorized, Forbidden, NotFound, BadRequest,
    ContextLengthExceeded, ContentFilter, ModelError. `message` names the provider
    and what it said (at most 1 KiB, no secrets). `retry_after_seconds` is the
    provider's `Retry-After`, in either of its forms. `usage` is what is known to
    have been spent all the same. `refused_option`: the server did not understand that
    option of the request, and may well answer one that is `without` it.
    """

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        retryable: bool,
        retry_after_seconds: float | None = None,
        usage: Usage | None = None,
        refused_option: str = "",
    ) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message
        self.retryable = retryable
        self.retry_after_seconds = retry_after_seconds
        self.usage = usage or Usage()
        self.refused_option = refused_option


class ModelSetupError(Exception):
    """A model that cannot be built: an unknown provider, a missing package, key or script. One line."""


class Model(Protocol):
    """One model of one provider."""

    @property
    def name(self) -> str:
        """As the manifest names it, "openai:gpt-5" for one."""

    async def request(self, request: ModelRequest) -> ModelResponse:
        """One request, one turn; raises ModelError, and nothing else of its own."""

    async def close(self) -> None:
        """Closes connections."""
