"""A conversation that one provider began is taken by each other, and by another model of the same one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from agentrun.models import Message
from agentrun.proto import transcript_pb2 as pb
from tests.support.stub_model import AnyReply, Request, StubModel, completion
from tests.unit.models.conversations import MODELS, ask, built, said

GO = pb.UserMessage(text="go")
SECRETS = ("sig-1", "enc-1", "srv-1", "ws-1", "thought-1")
"""What only its author understands."""


def thinks(provider: str) -> AnyReply:
    """An answer with thinking, a block of the server's own, a text and a call."""
    if provider == "anthropic":
        content = [
            {"type": "thinking", "thinking": "thought-1", "signature": "sig-1"},
            {"type": "redacted_thinking", "data": "enc-1"},
            {"type": "server_tool_use", "id": "srv-1", "name": "web_search", "input": {"q": "x"}},
            {"type": "web_search_tool_result", "tool_use_id": "srv-1", "content": [{"url": "ws-1"}]},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "toolu_1", "name": "zeta", "input": {"a": 3}},
        ]
        return {"content": content, "stop_reason": "tool_use"}
    if provider == "google":
        parts = [
            {"text": "thought-1", "thought": True},
            {"executableCode": {"code": "srv-1", "language": "PYTHON"}},
            {"codeExecutionResult": {"output": "ws-1", "outcome": "OUTCOME_OK"}},
            {"text": "I look."},
            {"functionCall": {"name": "zeta", "args": {"a": 3}}, "thoughtSignature": "sig-1"},
        ]
        return {"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]}
    if provider == "openai-responses":
        output = [
            {"type": "reasoning", "id": "thought-1", "summary": [], "encrypted_content": "enc-1"},
            {"type": "web_search_call", "id": "ws-1", "status": "completed"},
            {"type": "message", "id": "srv-1", "content": [{"type": "output_text", "text": "I look."}]},
            {
                "type": "function_call",
                "id": "sig-1",
                "call_id": "c1",
                "name": "zeta",
                "arguments": '{"a": 3}',
            },
        ]
        return {"status": "completed", "output": output}
    details = [{"type": "reasoning.encrypted", "data": "enc-1"}]
    return completion(
        "I look.", calls=[("zeta", '{"a": 3}')], reasoning_content="thought-1", reasoning_details=details
    )


def first_turn(author: str, reply: AnyReply) -> pb.AssistantTurn:
    """As it stands in the log."""

    async def main() -> pb.AssistantTurn:
        with StubModel([reply]) as stub:
            model = built(author, stub)
            answer = await ask(model, [GO])
            await model.close()
            return pb.AssistantTurn.FromString(answer.turn.SerializeToString())

    return asyncio.run(main())


def asked(provider: str, messages: Sequence[Message], place: int = 0) -> Request:
    async def main() -> Request:
        with StubModel([said(provider, "ok")], strict=True) as stub:
            model = built(provider, stub)
            await ask(model, messages, place=place)
            await model.close()
            assert not stub.refusals
            return stub.requests[0]

    return asyncio.run(main())


@pytest.mark.parametrize("author", MODELS)
@pytest.mark.parametrize("reader", MODELS)
def test_what_only_its_author_understands_goes_to_no_other(author: str, reader: str) -> None:
    turn = first_turn(author, thinks(author))
    messages: list[Message] = [GO, turn, pb.ToolResult(name="zeta", content="the result")]
    raw = asked(reader, messages, place=0 if reader == author else 1).raw.decode()
    found = [secret for secret in SECRETS if secret in raw]
    if reader == author:
        assert len(found) >= 2, "its own goes back"
    else:
        assert not found
    assert "I look." in raw and "the result" in raw and "zeta" in raw and '{"a": 3}' in raw.replace("\\", "")


@pytest.mark.parametrize("provider", MODELS)
def test_another_model_of_the_same_provider_is_another_reader(provider: str) -> None:
    turn = first_turn(provider, thinks(provider))
    raw = asked(provider, [GO, turn, pb.ToolResult(name="zeta", content="r")], place=1).raw.decode()
    assert not [secret for secret in SECRETS if secret in raw]


@pytest.mark.parametrize("provider", MODELS)
def test_its_own_turns_go_back_to_a_fallback_too(provider: str) -> None:
    turn = first_turn(provider, thinks(provider))
    turn.state.place = 2
    messages: list[Message] = [GO, turn, pb.ToolResult(name="zeta", content="r")]
    assert any(secret in asked(provider, messages, place=2).raw.decode() for secret in SECRETS)
    assert not any(secret in asked(provider, messages, place=0).raw.decode() for secret in SECRETS)


PAUSED = {
    "content": [{"type": "server_tool_use", "id": "srv-1", "name": "web_search", "input": {}}],
    "stop_reason": "pause_turn",
}


def roles(body: dict[str, Any]) -> list[str]:
    entries = body.get("messages") or body.get("contents") or body["input"]
    return [entry["role"] for entry in entries if entry.get("role") != "system"]


@pytest.mark.parametrize("reader", MODELS)
def test_a_turn_that_its_author_has_paused_is_gone_on_with_by_anybody(reader: str) -> None:
    turn = first_turn("anthropic", PAUSED)
    assert turn.finish == pb.FINISH_REASON_PAUSE
    own = reader == "anthropic"
    body = asked(reader, [GO, turn], place=0 if own else 1).body
    if own:
        assert roles(body) == ["user", "assistant"], "sent back as it was, and nothing said behind it"
        assert body["messages"][1]["content"] == PAUSED["content"]
    else:
        assert roles(body)[-1] == "user", "many providers take no conversation that ends with the model"
        assert len(roles(body)) == 3
