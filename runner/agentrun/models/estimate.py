"""Guesses of token counts, where nobody has counted.

The budget reserves `estimate_tokens` before a call; `estimate_usage` stands in
when a provider says nothing of what it used. Both depend on the text alone, so
that the same request gives the same numbers on any machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from agentrun.models.base import Message, ModelRequest, Usage
from agentrun.proto import transcript_pb2 as pb

BYTES_PER_TOKEN_RESERVED = 3
"""Low on purpose: a reservation should rather be too large."""
BYTES_PER_TOKEN = 4
_BYTES_PER_MESSAGE = 12  # roles and marks around each message


def estimate_tokens(request: ModelRequest) -> int:
    """Tokens that `request` may cost as input, guessed high; at least 1."""
    return _tokens(_request_bytes(request), BYTES_PER_TOKEN_RESERVED)


def estimate_message(message: Message) -> int:
    """Tokens that one message of a request may cost, guessed high."""
    return _tokens(_message_bytes(message), BYTES_PER_TOKEN_RESERVED)


def estimate_usage(request: ModelRequest, turn: pb.AssistantTurn | None) -> Usage:
    """What `request` and its answer probably cost; marked as estimated."""
    return Usage(
        tokens_in=_tokens(_request_bytes(request), BYTES_PER_TOKEN),
        tokens_out=_tokens(_turn_bytes(turn), BYTES_PER_TOKEN) if turn is not None else 0,
        tokens_reasoning=_tokens(_thinking_bytes(turn), BYTES_PER_TOKEN) if turn is not None else 0,
        estimated=True,
    )


def _tokens(size_bytes: int, bytes_per_token: int) -> int:
    return -(-size_bytes // bytes_per_token)


def _request_bytes(request: ModelRequest) -> int:
    total = _size(request.instructions) + _BYTES_PER_MESSAGE
    for tool in request.tools:
        total += _size(tool.name) + _size(tool.description)
        total += len(json.dumps(dict(tool.parameters), default=str)) + _BYTES_PER_MESSAGE
    return total + sum(_message_bytes(message) for message in request.messages)


def _message_bytes(message: Message) -> int:
    if isinstance(message, pb.UserMessage):
        return _size(message.text) + _BYTES_PER_MESSAGE
    if isinstance(message, pb.ToolResult):
        return _size(message.name) + _size(message.content) + _BYTES_PER_MESSAGE
    return _turn_bytes(message) + _BYTES_PER_MESSAGE


def _turn_bytes(turn: pb.AssistantTurn) -> int:
    return _thinking_bytes(turn) + sum(_size(text) for part in turn.parts for text in _answer_texts(part))


def _answer_texts(part: pb.Part) -> Iterable[str]:
    kind = part.WhichOneof("part")
    if kind == "text":
        return (part.text.text,)
    if kind == "tool_call":
        return (part.tool_call.name, part.tool_call.arguments)
    if kind == "opaque":
        return (part.opaque.json,)
    return ()


def _thinking_bytes(turn: pb.AssistantTurn) -> int:
    return sum(_size(part.thinking.text) for part in turn.parts if part.HasField("thinking"))


def _size(text: str) -> int:
    """UTF-8 bytes: nearer to tokens than characters are, outside English."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
