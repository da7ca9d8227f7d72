"""A conversation as the library takes it.

User messages, results and tools become the library's own objects. An assistant
turn becomes a text that holds a mark; when the library has built the body, the
object around each mark is replaced by what the dialect wrote (`Marks.fill`), so
that what a provider said goes back to it exactly as it was said.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentrun.log.text import safe_text
from agentrun.models.base import Message, ModelError, ModelRequest
from agentrun.models.wire import Dialect
from agentrun.models.wire.ids import wire_ids, wire_name
from agentrun.models.wire.values import EMPTY, GO_ON, NO_OUTPUT, filled
from agentrun.proto import transcript_pb2 as pb

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelRequestPart
    from pydantic_ai.models import ModelRequestParameters

_FAILED = (
    pb.TOOL_OUTCOME_ERROR,
    pb.TOOL_OUTCOME_TIMED_OUT,
    pb.TOOL_OUTCOME_UNKNOWN,
    pb.TOOL_OUTCOME_NOT_RUN,
    pb.TOOL_OUTCOME_DENIED,
)


class Marks:
    """Places in one request's body where JSON of our own belongs."""

    def __init__(self) -> None:
        self._fragments: list[bytes] = []
        # Not to be guessed, so that no text of the conversation can be taken for a mark.
        self._nonce = f"agentrun-{secrets.token_hex(8)}"
        self._pattern = re.compile(rb"\{[^{}]*" + self._nonce.encode() + rb"-(\d+)[^{}]*\}")

    def place(self, fragment: str) -> str:
        """The mark to send in place of `fragment`."""
        self._fragments.append(fragment.encode())
        return f"{self._nonce}-{len(self._fragments) - 1}"

    def fill(self, body: bytes) -> bytes:
        """`body` with the object around each mark replaced; every mark must be there, once."""
        found: list[int] = []

        def fragment(match: re.Match[bytes]) -> bytes:
            found.append(int(match[1]))
            return self._fragments[found[-1]]

        filled_body = self._pattern.sub(fragment, body)
        if sorted(found) != list(range(len(self._fragments))):
            raise ModelError("BadRequest", "the conversation could not be written out", retryable=False)
        return filled_body


def library_messages(
    messages: Sequence[Message], *, provider: str, place: int, dialect: Dialect, marks: Marks
) -> list[ModelMessage]:
    """The conversation, with each result under the id of its call, for the model at `place`."""
    from pydantic_ai import messages as lib

    ids = wire_ids(messages)
    result: list[ModelMessage] = []
    parts: list[ModelRequestPart] = []
    waiting: list[str] = []
    turns = 0
    for message in messages:
        if isinstance(message, pb.ToolResult):
            if not waiting:
                raise _unpaired(turns)
            parts.append(_result(message, waiting.pop(0), errors=provider == "anthropic"))
            continue
        if waiting:
            raise _unpaired(turns)
        if isinstance(message, pb.UserMessage):
            parts.append(lib.UserPromptPart(content=filled(message.text, EMPTY)))
            continue
        if parts:
            result.append(lib.ModelRequest(parts=parts))
            parts = []
        own = message.provider == provider and message.state.place == place
        mark = marks.place(dialect.write(message, ids[turns], own=own))
        result.append(lib.ModelResponse(parts=[lib.TextPart(content=mark)]))
        if message.finish == pb.FINISH_REASON_PAUSE and not own and not ids[turns]:
            # Only its author can go on with a turn that it has paused; others are asked to.
            parts.append(lib.UserPromptPart(content=GO_ON))
        waiting, turns = list(ids[turns]), turns + 1
    if waiting:
        raise _unpaired(turns)
    if parts:
        result.append(lib.ModelRequest(parts=parts))
    return result


def library_parameters(request: ModelRequest) -> ModelRequestParameters:
    """Tools and instructions, in the order given: providers cache by prefix."""
    from pydantic_ai.messages import InstructionPart
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.tools import ToolDefinition

    instructions = safe_text(request.instructions)
    return ModelRequestParameters(
        function_tools=[
            ToolDefinition(
                name=tool.name,
                description=safe_text(tool.description),
                parameters_json_schema=dict(tool.parameters),
                strict=False,  # anything else makes the library rewrite schemas
            )
            for tool in request.tools
        ],
        instruction_parts=[InstructionPart(content=instructions)] if instructions.strip() else [],
    )


def _result(result: pb.ToolResult, wire_id: str, *, errors: bool) -> ModelRequestPart:
    """`errors`: the provider can be told that a result is one; elsewhere its text says so."""
    from pydantic_ai.messages import ToolReturnPart

    return ToolReturnPart(
        tool_name=wire_name(result.name),
        content=filled(result.content, NO_OUTPUT),
        tool_call_id=wire_id,
        outcome="failed" if errors and result.outcome in _FAILED else "success",
    )


def _unpaired(turn: int) -> ModelError:
    message = f"transcript: the tool calls of turn {turn} and their results do not pair"
    return ModelError("BadRequest", message, retryable=False)
