"""What is a turn, what is an error, and which errors are worth another try."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from agentrun.models import ModelError, ModelRequest, ModelResponse
from agentrun.models.answer import read_answer, read_failure
from agentrun.models.wire import Dialect, anthropic, chat, google, responses
from agentrun.proto import transcript_pb2 as pb
from tests.support.stub_model import completion

DIALECTS = {"openai": chat, "openai-responses": responses, "anthropic": anthropic, "google": google}
CONTEXT = "ContextLengthExceeded"
CUT = '{"path":"a.md","content":"# Title\nSec'
SHORT = '{"path":"a.md","content":"# Title"}'


def answer(body: Any, provider: str = "openai") -> ModelResponse:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_answer(
        data,
        {},
        provider=provider,
        dialect=cast(Dialect, DIALECTS[provider]),
        request=ModelRequest(instructions="", messages=[pb.UserMessage(text="go")]),
    )


def failure(body: Any, provider: str = "openai") -> ModelError:
    with pytest.raises(ModelError) as caught:
        answer(body, provider)
    return caught.value


def message(content: list[Any], stop_reason: str | None = "end_turn", **more: Any) -> dict[str, Any]:
    return {"id": "msg", "type": "message", "content": content, "stop_reason": stop_reason, **more}


def candidate(parts: list[Any], reason: str | None = "STOP") -> dict[str, Any]:
    return {"candidates": [{"content": {"parts": parts}, "finishReason": reason}]}


def texts(turn: pb.AssistantTurn) -> list[str]:
    return [part.text.text for part in turn.parts if part.HasField("text")]


def calls(turn: pb.AssistantTurn) -> list[tuple[str, str]]:
    return [(p.tool_call.name, p.tool_call.arguments) for p in turn.parts if p.HasField("tool_call")]


class TestOutputLimit:
    """A cut turn says so, whatever it holds."""

    @pytest.mark.parametrize(
        ("arguments", "reason", "truncated"),
        [
            ([CUT], "length", True),
            ([SHORT], "length", True),
            ([SHORT, CUT], "length", True),
            # A router hid the reason: the arguments do not parse, which the loop sees.
            ([CUT], "tool_calls", False),
        ],
    )
    def test_calls(self, arguments: list[str], reason: str, truncated: bool) -> None:
        body = completion(calls=[("write", text) for text in arguments], finish_reason=reason)
        turn = answer(body).turn
        assert turn.truncated == truncated
        assert [text for _, text in calls(turn)] == arguments
        assert turn.finish_raw == reason

    def test_anthropic(self) -> None:
        block = {"type": "tool_use", "id": "t", "name": "write", "input": {"path": "a.md"}}
        turn = answer(message([block], "max_tokens"), "anthropic").turn
        assert turn.truncated and turn.finish == pb.FINISH_REASON_LENGTH

    def test_google_and_responses(self) -> None:
        assert answer(candidate([{"text": "x"}], "MAX_TOKENS"), "google").turn.truncated
        body = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "output": []}
        assert answer(body, "openai-responses").turn.truncated

    def test_only_reasoning(self) -> None:
        turn = answer(completion("", finish_reason="length", reasoning_content="let me think")).turn
        assert turn.truncated and texts(turn) == []
        assert turn.parts[0].thinking.text == "let me think"


class TestNoCompletion:
    """A good status with a body that holds no turn."""

    @pytest.mark.parametrize(
        ("body", "reason", "retryable", "said"),
        [
            ({"error": {"message": "Upstream overloaded", "code": 502}}, "ServerError", True, "Upstream"),
            ({"error": {"message": "slow", "code": 429}}, "RateLimited", True, "slow"),
            ({"error": {"message": "slow", "code": "429"}}, "RateLimited", True, "slow"),
            ({"error": {"message": "no", "code": 400}}, "BadRequest", False, "no"),
            ({"error": {"message": "odd"}}, "ModelError", False, "odd"),
            ({"error": "just text"}, "ModelError", False, "just text"),
            (
                {"error": {"code": 502}, "choices": [{"message": {"content": "x"}}]},
                "ServerError",
                True,
                "502",
            ),
            ({"choices": [{"error": {"message": "cut", "code": 502}}]}, "ServerError", True, "cut"),
            ({"object": "error", "message": "vllm", "code": 503}, "Overloaded", True, "vllm"),
            ({"choices": None}, "InvalidResponse", True, "choices"),
            ({"choices": []}, "InvalidResponse", True, "choices"),
            ({"choices": "x"}, "InvalidResponse", True, "choices"),
            ({"choices": [None]}, "InvalidResponse", True, "choices"),
            ({"choices": [{"message": None}]}, "InvalidResponse", True, "message"),
            ({"choices": [{"message": "x"}]}, "InvalidResponse", True, "message"),
            ({"contentType": "application/json", "method": "POST"}, "InvalidResponse", True, "choices"),
            (b"<html><title>Log in</title></html>", "InvalidResponse", False, "Log in"),
            (b"", "InvalidResponse", True, "empty"),
            (b"   \n\n ", "InvalidResponse", True, "empty"),
            (b"\x1f\x8b\x08garbage", "InvalidResponse", True, "not JSON"),
            (b"null", "InvalidResponse", True, "object"),
            (b"[]", "InvalidResponse", True, "object"),
            (b"42", "InvalidResponse", True, "object"),
            (b"[" * 100_000, "InvalidResponse", True, "nested"),
            (b'{"choices":[{"message":{"content":"cut of', "InvalidResponse", True, "JSON"),
        ],
    )
    def test_chat(self, body: Any, reason: str, retryable: bool, said: str) -> None:
        error = failure(body)
        assert (error.reason, error.retryable) == (reason, retryable)
        assert "openai" in error.message and said in error.message

    @pytest.mark.parametrize("provider", DIALECTS)
    @pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'"x"', b'{"error":{}}', b"\xff\xfe"])
    def test_every_provider_refuses_what_is_none(self, provider: str, body: bytes) -> None:
        error = failure(body, provider)
        assert (error.reason, error.retryable) == ("InvalidResponse", True)

    def test_anthropic_error_with_a_good_status(self) -> None:
        body = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
        error = failure(body, "anthropic")
        assert (error.reason, error.retryable) == ("Overloaded", True)

    def test_responses_that_failed(self) -> None:
        body: dict[str, Any] = {"status": "failed", "output": []}
        body["error"] = {"code": "server_error", "message": "sorry"}
        assert failure(body, "openai-responses").retryable
        body["error"] = None
        assert failure(body, "openai-responses").reason == "ModelError"

    def test_google_blocked_the_prompt(self) -> None:
        error = failure({"promptFeedback": {"blockReason": "SAFETY"}}, "google")
        assert (error.reason, error.retryable) == ("ContentFilter", False)

    def test_google_garbled_a_call(self) -> None:
        usage = {"promptTokenCount": 7, "candidatesTokenCount": 3}
        error = failure({**candidate([], "MALFORMED_FUNCTION_CALL"), "usageMetadata": usage}, "google")
        assert (error.reason, error.retryable) == ("InvalidResponse", True)
        assert (error.usage.tokens_in, error.usage.tokens_out) == (7, 3)

    def test_tokens_of_a_failed_answer_are_known_when_it_says_them(self) -> None:
        error = failure({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 1}})
        assert (error.usage.tokens_in, error.usage.tokens_out) == (9, 1)
        assert failure({"choices": []}).usage.tokens_in == 0

    @pytest.mark.parametrize("provider", DIALECTS)
    def test_any_shape_gives_a_turn_or_a_model_error(self, provider: str) -> None:
        """Each value of a good answer is replaced by each kind of wrong one."""
        whole: dict[str, Any] = {
            "openai": completion("x", calls=[("t", "{}")], reasoning_content="r", reasoning_details=[{}]),
            "anthropic": message(
                [{"type": "text", "text": "x"}, {"type": "tool_use", "id": "1", "name": "t", "input": {}}],
                usage={"input_tokens": 1, "iterations": [{}]},
            ),
            "google": candidate(
                [{"text": "x"}, {"functionCall": {"name": "t", "args": {}}}, {"executableCode": {}}]
            ),
            "openai-responses": {
                "status": "completed",
                "output": [
                    {"type": "reasoning", "id": "r", "summary": [{"text": "x"}]},
                    {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "x"}]},
                    {"type": "function_call", "call_id": "c", "name": "t", "arguments": "{}"},
                ],
            },
        }
        for variant in variants(whole[provider]):
            try:
                turn = answer(variant, provider).turn
            except ModelError:
                continue
            ids = [f"c{i}" for i in range(len(calls(turn)))]
            written = cast(Dialect, DIALECTS[provider]).write(turn, ids, own=True)
            assert json.loads(f"[{written}]")


def variants(value: Any) -> list[Any]:
    wrong: list[Any] = [None, True, 0, -1.5, "", "x", [], [None], ["x"], {}, {"a": 1}]
    found: list[Any] = list(wrong)
    if isinstance(value, dict):
        for key in value:
            found += [{**value, key: other} for other in variants(value[key])]
            found.append({k: v for k, v in value.items() if k != key})
    elif isinstance(value, list):
        for place, item in enumerate(value):
            found += [[*value[:place], other, *value[place + 1 :]] for other in variants(item)]
    return found


class TestFinishReasons:
    """The reason is a hint; what is there counts."""

    @pytest.mark.parametrize(
        ("reason", "with_calls", "finish"),
        [
            ("stop", True, pb.FINISH_REASON_TOOL_CALLS),
            ("tool_calls", True, pb.FINISH_REASON_TOOL_CALLS),
            ("foo_bar", True, pb.FINISH_REASON_TOOL_CALLS),
            (None, True, pb.FINISH_REASON_TOOL_CALLS),
            ("length", True, pb.FINISH_REASON_LENGTH),
            ("tool_calls", False, pb.FINISH_REASON_STOP),
            ("stop", False, pb.FINISH_REASON_STOP),
            (None, False, pb.FINISH_REASON_STOP),
            ("content_filter", False, pb.FINISH_REASON_CONTENT_FILTER),
            ("foo_bar", False, pb.FINISH_REASON_OTHER),
            (7, False, pb.FINISH_REASON_STOP),
        ],
    )
    def test_chat(self, reason: Any, with_calls: bool, finish: pb.FinishReason) -> None:
        body = completion("x", calls=[("t", "{}")] if with_calls else [])
        body["choices"][0]["finish_reason"] = reason
        turn = answer(body).turn
        assert turn.finish == finish
        assert turn.finish_raw == (reason if isinstance(reason, str) else "")

    @pytest.mark.parametrize(
        ("reason", "finish", "truncated"),
        [
            ("end_turn", pb.FINISH_REASON_STOP, False),
            ("refusal", pb.FINISH_REASON_REFUSAL, False),
            ("pause_turn", pb.FINISH_REASON_PAUSE, False),
            ("model_context_window_exceeded", pb.FINISH_REASON_LENGTH, True),
            ("foo_bar", pb.FINISH_REASON_OTHER, False),
        ],
    )
    def test_anthropic(self, reason: str, finish: pb.FinishReason, truncated: bool) -> None:
        turn = answer(message([{"type": "text", "text": "x"}], reason), "anthropic").turn
        assert (turn.finish, turn.finish_raw, turn.truncated) == (finish, reason, truncated)

    def test_google_safety_is_a_content_filter(self) -> None:
        body = {"candidates": [{"finishReason": "SAFETY"}]}
        assert answer(body, "google").turn.finish == pb.FINISH_REASON_CONTENT_FILTER

    def test_a_refusal_is_kept_as_what_was_said(self) -> None:
        turn = answer(completion(None, refusal="I can't help with that")).turn
        assert turn.finish == pb.FINISH_REASON_REFUSAL and texts(turn) == ["I can't help with that"]

    def test_an_empty_list_of_calls_is_none(self) -> None:
        turn = answer(completion("x", finish_reason="tool_calls", tool_calls=[])).turn
        assert calls(turn) == [] and turn.finish == pb.FINISH_REASON_STOP

    def test_the_legacy_field_is_a_call(self) -> None:
        body = completion(None, finish_reason="function_call", function_call={"name": "t", "arguments": "{}"})
        turn = answer(body).turn
        assert calls(turn) == [("t", "{}")] and turn.finish == pb.FINISH_REASON_TOOL_CALLS


class TestExactness:
    """Text and arguments come in as they were written."""

    NUMBERS = (
        '{"id": 9007199254740993, "n": 1, "f": 1.0, "e": 1e400, "neg": -0.0, '
        '"big": 123456789012345678901234567890, "amount": 19.90}'
    )

    def test_arguments(self) -> None:
        assert calls(answer(completion(calls=[("t", self.NUMBERS)])).turn) == [("t", self.NUMBERS)]
        block = f'{{"type":"tool_use","id":"1","name":"t","input":{self.NUMBERS}}}'
        body = f'{{"content":[{{"type":"text","text":"x"}},{block}],"stop_reason":"tool_use"}}'
        assert calls(answer(body.encode(), "anthropic").turn) == [("t", self.NUMBERS)]
        part = f'{{"functionCall":{{"name":"t","args":{self.NUMBERS}}}}}'
        body = f'{{"candidates":[{{"content":{{"parts":[{part}]}}}}]}}'
        assert calls(answer(body.encode(), "google").turn) == [("t", self.NUMBERS)]
        item = {"type": "function_call", "call_id": "c", "name": "t", "arguments": self.NUMBERS}
        turn = answer({"status": "completed", "output": [item]}, "openai-responses").turn
        assert calls(turn) == [("t", self.NUMBERS)]

    def test_a_server_that_sends_an_object_instead_of_a_string(self) -> None:
        function = f'{{"name":"t","arguments":{self.NUMBERS}}}'
        body = f'{{"choices":[{{"message":{{"tool_calls":[{{"function":{function}}}]}}}}]}}'
        assert calls(answer(body.encode()).turn) == [("t", self.NUMBERS)]

    def test_text_that_storage_cannot_hold_is_made_safe(self) -> None:
        body = completion("a\0b\ud800", calls=[("t\0", '{"x":"\\u0000"}', "i\0")])
        turn = answer(body).turn
        assert texts(turn) == ["a\ufffdb\ufffd"]
        assert calls(turn) == [("t\ufffd", '{"x":"\\u0000"}')]
        assert turn.SerializeToString()

    def test_broken_utf_8_and_a_mark_at_the_start(self) -> None:
        body = b'\xef\xbb\xbf{"choices":[{"message":{"content":"a\xff\xe2\x80\xa8b"}}]}'
        assert texts(answer(body).turn) == ["a\ufffd\u2028b"]

    def test_content_in_pieces(self) -> None:
        pieces = [
            {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
            {"type": "text", "text": "a"},
            {"type": "text", "text": "b"},
        ]
        turn = answer(_with_content(pieces)).turn
        assert texts(turn) == ["ab"] and turn.parts[0].thinking.text == "hm"


def _with_content(content: Any) -> dict[str, Any]:
    body = completion("x")
    body["choices"][0]["message"]["content"] = content
    return body


class TestFailures:
    """A status that is no success, and what the body says of it."""

    @pytest.mark.parametrize(
        ("status", "body", "reason", "said"),
        [
            (400, b'{"error":{"message":"many","code":"context_length_exceeded"}}', CONTEXT, "many"),
            (400, b'{"error":{"type":"x","message":"prompt is too long: 9 > 8"}}', CONTEXT, "9 > 8"),
            (400, b'{"error":{"message":"filtered","code":"content_filter"}}', "ContentFilter", "filtered"),
            (404, b'{"detail":"Not Found"}', "NotFound", "Not Found"),
            (422, b'{"detail":[{"loc":["body"]}]}', "BadRequest", "body"),
            (500, b"<h1>Bad</h1>", "ServerError", "<h1>Bad</h1>"),
            (500, b"", "ServerError", "500"),
            (
                503,
                b'[{"error":{"code":503,"status":"UNAVAILABLE","message":"later"}}]',
                "Overloaded",
                "later",
            ),
            (400, b'{"object":"error","message":"vllm says no"}', "BadRequest", "vllm says no"),
        ],
    )
    def test_reason_and_text(self, status: int, body: bytes, reason: str, said: str) -> None:
        error = read_failure(status, body, {}, provider="p")
        assert error.reason == reason and said in error.message and "p answered" in error.message

    def test_how_long_to_wait(self) -> None:
        error = read_failure(429, b"{}", {"retry-after": "7"}, provider="p")
        assert error.retryable and error.retry_after_seconds == 7
        detail = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}
        body = {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "m", "details": [detail]}}
        error = read_failure(429, json.dumps(body).encode(), {}, provider="p")
        assert (error.reason, error.retry_after_seconds) == ("RateLimited", 34.5)
