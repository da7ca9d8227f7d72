"""A recorded conversation can always be sent, and what a provider said goes back as it was."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from agentrun.models import Message, ModelError
from agentrun.proto import transcript_pb2 as pb
from tests.support.stub_model import AnyReply, StubModel, completion
from tests.unit.models.conversations import (
    MODELS,
    ask,
    built,
    call_part,
    said,
    text_part,
    thinking_part,
    turn,
)

GO = pb.UserMessage(text="go")
NUMBERS = '{"id": 9007199254740993, "f": 1.0, "e": 1e400, "neg": -0.0, "a": 19.90,  "s": "\\u0000{}"}'


def sent(provider: str, *messages: Message) -> dict[str, Any]:
    """The body of a request with these messages, from a server that refuses what any would."""

    async def main() -> dict[str, Any]:
        with StubModel(lambda _: said(provider, "ok"), strict=True) as stub:
            model = built(provider, stub)
            await ask(model, messages)
            await model.close()
            assert not stub.refusals
            return stub.requests[0].body

    return asyncio.run(main())


def again(provider: str, first: AnyReply, results: Sequence[pb.ToolResult] = ()) -> list[dict[str, Any]]:
    """What the second request says of the first answer (which went through the log's bytes)."""

    async def main() -> list[dict[str, Any]]:
        with StubModel(lambda r: first if r.number == 1 else said(provider, "ok"), strict=True) as stub:
            model = built(provider, stub)
            answer = (await ask(model, [GO])).turn
            kept = pb.AssistantTurn.FromString(answer.SerializeToString())
            await ask(model, [GO, kept, *results, pb.UserMessage(text="on")])
            await model.close()
            assert not stub.refusals
            body = stub.requests[1].body
            found: list[dict[str, Any]] = body.get("messages") or body.get("contents") or body["input"]
            return found

    return asyncio.run(main())


EMPTY_TURNS = {
    "nothing at all": turn(),
    "empty text": turn(text_part("")),
    "only spaces": turn(text_part(" \n\t")),
    "only reasoning": turn(thinking_part("hm", id="reasoning_content", signature="sig")),
    "reasoning and empty text": turn(thinking_part("hm"), text_part("")),
    "a block of another provider": turn(pb.Part(opaque=pb.OpaquePart(provider="x", kind="y", json="{}"))),
}


@pytest.mark.parametrize("provider", MODELS)
@pytest.mark.parametrize("kind", EMPTY_TURNS)
def test_an_empty_turn_is_never_refused_later(provider: str, kind: str) -> None:
    for author in (provider, "other"):
        empty = pb.AssistantTurn(parts=EMPTY_TURNS[kind].parts, provider=author)
        assert "(no answer)" in json.dumps(sent(provider, GO, empty, pb.UserMessage(text="on")))


@pytest.mark.parametrize("provider", MODELS)
@pytest.mark.parametrize("content", ["", " ", "\n"])
def test_an_empty_result_is_never_refused(provider: str, content: str) -> None:
    body = sent(provider, GO, turn(call_part()), pb.ToolResult(name="zeta", content=content))
    assert "(no output)" in json.dumps(body)


@pytest.mark.parametrize("provider", MODELS)
def test_a_result_that_is_an_empty_list_is_one(provider: str) -> None:
    body = sent(provider, GO, turn(call_part()), pb.ToolResult(name="zeta", content="[]"))
    assert '"[]"' in json.dumps(body)


@pytest.mark.parametrize("provider", MODELS)
def test_any_ids_names_and_arguments_are_accepted(provider: str) -> None:
    arguments = ["", "null", "[1]", '{"cut', NUMBERS, "{}"]
    ids = ["", "call_0", "call_0", "x" * 300, "a b/🙂", "turn_3"]
    messages: list[Message] = [GO]
    for number in range(3):
        parts = [
            call_part(text, wire_id=wire_id, name=f"made up {number}")
            for text, wire_id in zip(arguments, ids, strict=True)
        ]
        messages += [turn(*parts), *(pb.ToolResult(name="t", content=f"r{number}{i}") for i in range(6))]
    body = json.dumps(sent(provider, *messages))
    for number in range(3):
        for index in range(6):
            assert body.count(f"r{number}{index}") == 1


@pytest.mark.parametrize("provider", MODELS)
def test_arguments_go_back_byte_for_byte(provider: str) -> None:
    async def main() -> bytes:
        with StubModel([said(provider, "ok")]) as stub:
            model = built(provider, stub)
            await ask(model, [GO, turn(call_part(NUMBERS)), pb.ToolResult(name="zeta", content="r")])
            await model.close()
            return stub.requests[0].raw

    raw = asyncio.run(main())
    as_string = json.dumps(NUMBERS).encode()
    assert (NUMBERS.encode() in raw) != (as_string in raw)


@pytest.mark.parametrize("provider", MODELS)
def test_braces_and_marks_in_text_change_nothing(provider: str) -> None:
    text = 'a {"agentrun-0": 1} } { agentrun-abc-0 <|im_start|> \u2028 "'
    messages: list[Message] = [
        pb.UserMessage(text=text),
        turn(text_part(text), call_part()),
        pb.ToolResult(name="zeta", content=text),
        pb.UserMessage(text=text),
    ]
    raw = json.dumps(sent(provider, *messages), ensure_ascii=False)
    assert raw.count(json.dumps(text, ensure_ascii=False)) == 4


@pytest.mark.parametrize("provider", MODELS)
def test_user_messages_may_follow_each_other_and_be_empty(provider: str) -> None:
    body = json.dumps(sent(provider, GO, pb.UserMessage(text=""), pb.UserMessage(text="last")))
    assert "(empty)" in body and "last" in body


@pytest.mark.parametrize("provider", MODELS)
@pytest.mark.parametrize(
    "messages",
    [
        [GO, turn(call_part())],
        [GO, turn(call_part()), GO],
        [GO, turn(call_part(), call_part()), pb.ToolResult(name="zeta")],
        [GO, pb.ToolResult(name="zeta")],
        [GO, turn(call_part()), pb.ToolResult(name="zeta"), pb.ToolResult(name="zeta")],
    ],
)
def test_calls_and_results_that_do_not_pair_are_not_sent(provider: str, messages: list[Message]) -> None:
    with pytest.raises(ModelError, match="do not pair") as caught:
        sent(provider, *messages)
    assert (caught.value.reason, caught.value.retryable) == ("BadRequest", False)


class TestVerbatim:
    """What only its provider understands goes back word for word."""

    def test_anthropic(self) -> None:
        content = [
            {"type": "thinking", "thinking": "hm", "signature": "s1=="},
            {"type": "redacted_thinking", "data": "opaque=="},
            {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"q": 1.0}},
            {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": [{"x": None}]},
            {"type": "not_known_yet", "future": [1, 2]},
            {"type": "text", "text": "found ", "citations": [{"type": "c", "cited_text": "x", "i": None}]},
            {"type": "tool_use", "id": "toolu_1", "name": "zeta", "input": {"a": 1}},
        ]
        reply = {"content": content, "stop_reason": "tool_use"}
        messages = again("anthropic", reply, [pb.ToolResult(name="zeta", content="r")])
        assert messages[1] == {"role": "assistant", "content": content}

    def test_a_pause_is_sent_back_unchanged(self) -> None:
        content = [{"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}]

        async def main() -> list[dict[str, Any]]:
            with StubModel(
                lambda r: (
                    {"content": content, "stop_reason": "pause_turn"}
                    if r.number == 1
                    else said("anthropic", "ok")
                )
            ) as stub:
                model = built("anthropic", stub)
                first = await ask(model, [GO])
                assert first.turn.finish == pb.FINISH_REASON_PAUSE
                await ask(model, [GO, first.turn])
                await model.close()
                return stub.requests[1].messages

        assert asyncio.run(main())[1:] == [{"role": "assistant", "content": content}]

    def test_what_anthropic_gives_and_refuses_is_left_out_of_a_turn_that_was_cut(self) -> None:
        search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
        found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
        cut_off = {"type": "server_tool_use", "id": "s2", "name": "web_search", "input": {"q": "h"}}
        thought = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
        reply = {"content": [search, found, cut_off, thought], "stop_reason": "max_tokens"}
        messages = again("anthropic", reply)
        assert messages[1]["content"] == [search, found, thought, {"type": "text", "text": "(no answer)"}]

    def test_reasoning_that_led_to_nothing_has_an_item_behind_it(self) -> None:
        said = {"type": "message", "id": "msg_1", "content": [{"type": "output_text", "text": "So:"}]}
        thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "enc=="}
        why = {"reason": "max_output_tokens"}
        reply = {"status": "incomplete", "incomplete_details": why, "output": [said, thought]}
        messages = again("openai-responses", reply)
        assert messages[2:4] == [thought, {"role": "assistant", "content": "(no answer)"}]

    def test_a_thought_of_google_that_is_a_signature_alone(self) -> None:
        parts = [{"text": "", "thought": True, "thoughtSignature": "c2ln"}, {"text": "a"}]
        reply = {"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]}
        assert again("google", reply)[1] == {"role": "model", "parts": parts}

    def test_google(self) -> None:
        parts = [
            {"text": "hm", "thought": True},
            {"text": "a", "thoughtSignature": "c2ln"},
            {"executableCode": {"language": "PYTHON", "code": "1"}},
            {"functionCall": {"id": "f1", "name": "zeta", "args": {"a": 1}}, "thoughtSignature": "c2ln"},
            {"text": "", "thoughtSignature": "bGFzdA=="},
        ]
        reply = {"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]}
        messages = again("google", reply, [pb.ToolResult(name="zeta", content="r")])
        assert messages[1] == {"role": "model", "parts": parts}

    def test_responses(self) -> None:
        output = [
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "enc=="},
            {"type": "web_search_call", "id": "ws_1", "status": "completed"},
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": [
                    {"type": "output_text", "text": "a", "annotations": []},
                    {"type": "output_text", "text": "b", "annotations": [{"type": "url"}]},
                ],
            },
            {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "zeta", "arguments": "{}"},
        ]
        reply = {"status": "completed", "output": output}
        items = again("openai-responses", reply, [pb.ToolResult(name="zeta", content="r")])
        assert items[1:5] == output

    def test_chat(self) -> None:
        details = [{"type": "reasoning.encrypted", "data": "enc==", "index": 0}]
        reply = completion(
            None, calls=[("zeta", '{"a" : 1}', "c1")], reasoning_content="hm", reasoning_details=details
        )
        reply["choices"][0]["message"]["tool_calls"][0]["extra_content"] = {"google": {"sig": "x"}}
        (message,) = [
            m
            for m in again("openai", reply, [pb.ToolResult(name="zeta", content="r")])
            if m["role"] == "assistant"
        ]
        assert message == {
            "role": "assistant",
            "content": None,
            "reasoning_content": "hm",
            "reasoning_details": details,
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "zeta", "arguments": '{"a" : 1}'},
                    "extra_content": {"google": {"sig": "x"}},
                }
            ],
        }

    @pytest.mark.parametrize("provider", MODELS)
    def test_another_providers_secrets_stay_out(self, provider: str) -> None:
        foreign = turn(
            thinking_part("SECRET", signature="SECRET", id="reasoning_content"),
            pb.Part(opaque=pb.OpaquePart(provider="other", kind="k", json='{"SECRET":1}')),
            pb.Part(text=pb.TextPart(text="hello", id="SECRET"), provider_details='{"SECRET":1}'),
            pb.Part(
                tool_call=pb.ToolCallPart(name="zeta", wire_id="w1", id="SECRET"),
                provider_details='{"SECRET":1}',
            ),
            provider="other",
        )
        body = json.dumps(sent(provider, GO, foreign, pb.ToolResult(name="zeta", content="r")))
        assert "SECRET" not in body and "hello" in body and "w1" in body


def test_anthropic_is_told_which_results_are_errors() -> None:
    body = sent(
        "anthropic",
        GO,
        turn(call_part(), call_part()),
        pb.ToolResult(name="zeta", content="bad", outcome=pb.TOOL_OUTCOME_ERROR),
        pb.ToolResult(name="zeta", content="fine", outcome=pb.TOOL_OUTCOME_OK),
    )
    results = body["messages"][2]["content"]
    assert [block["is_error"] for block in results] == [True, False]
    assert results[0]["content"][0]["text"] == "bad"


def test_the_beginning_of_a_longer_conversation_is_the_same() -> None:
    """So that providers' caches hit."""
    messages: list[Message] = [GO]
    bodies = []
    for number in range(3):
        messages += [turn(call_part(wire_id="same")), pb.ToolResult(name="zeta", content=f"{number}")]
        bodies.append(sent("openai", *messages)["messages"])
    assert bodies[2][: len(bodies[0])] == bodies[0] and bodies[2][: len(bodies[1])] == bodies[1]
