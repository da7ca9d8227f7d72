"""Conversations and models that the tests of real providers share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentrun.models import (
    Message,
    Model,
    ModelRequest,
    ModelResponse,
    ToolDefinition,
    build_model,
)
from agentrun.proto import transcript_pb2 as pb
from tests.support.stub_model import StubModel

MODELS = {
    "openai": "openai:stub-1",
    "openai-responses": "openai-responses:stub-1",
    "anthropic": "anthropic:claude-stub",
    "google": "google:gemini-3-pro",
}
TOOLS = (
    ToolDefinition(
        name="zeta",
        description="Does Z.",
        parameters={"type": "object", "properties": {"a": {"type": "integer", "minimum": 3}}},
    ),
    ToolDefinition(name="alpha", description="Does A.", parameters={"type": "object", "properties": {}}),
)


def built(provider: str, stub: StubModel, **more: Any) -> Model:
    base_url = stub.url if provider.startswith("openai") else stub.origin
    return build_model(MODELS[provider], base_url=base_url, **more)


async def ask(model: Model, messages: Sequence[Message] = (), **more: Any) -> ModelResponse:
    request = ModelRequest(
        instructions="Be brief.", messages=messages or [pb.UserMessage(text="go")], tools=TOOLS, **more
    )
    return await model.request(request)


def said(provider: str, text: str) -> Mapping[str, Any]:
    """A good answer of the provider's own shape."""
    if provider == "anthropic":
        return {"content": [{"type": "text", "text": text}], "stop_reason": "end_turn"}
    if provider == "google":
        return {"candidates": [{"content": {"parts": [{"text": text}]}, "finishReason": "STOP"}]}
    if provider == "openai-responses":
        content = [{"type": "output_text", "text": text}]
        return {"status": "completed", "output": [{"type": "message", "id": "m", "content": content}]}
    return {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]}


def text_of(response: ModelResponse) -> str:
    return "".join(part.text.text for part in response.turn.parts)


def turn(*parts: pb.Part, provider: str = "openai", **more: Any) -> pb.AssistantTurn:
    return pb.AssistantTurn(parts=parts, provider=provider, **more)


def text_part(text: str) -> pb.Part:
    return pb.Part(text=pb.TextPart(text=text))


def thinking_part(text: str, **more: Any) -> pb.Part:
    return pb.Part(thinking=pb.ThinkingPart(text=text, **more))


def call_part(arguments: str = "{}", *, name: str = "zeta", wire_id: str = "") -> pb.Part:
    return pb.Part(tool_call=pb.ToolCallPart(name=name, arguments=arguments, wire_id=wire_id))
