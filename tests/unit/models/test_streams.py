"""A streamed answer is the answer: the same turn and usage as in one piece, or no turn at all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, cast

import pytest

from agentrun.models import ModelError, ModelRequest, ModelResponse
from agentrun.models.answer import read_answer, spent
from agentrun.models.base import Delta, Usage
from agentrun.models.streams.reader import Reader
from agentrun.models.wire import Dialect, anthropic, chat, google, responses
from agentrun.proto import transcript_pb2 as pb
from tests.support.stub_streams import DONE, Event, events_of, framed
from tests.unit.models.conversations import MODELS

DIALECTS = {"openai": chat, "openai-responses": responses, "anthropic": anthropic, "google": google}
TEXT = "Grüße 🙂, a\u2028b\u0085c: 日本"
NUMBERS = '{"id": 9007199254740993, "f": 1.0, "neg": -0.0, "s": "🙂\\u2028"}'
REQUEST = ModelRequest(instructions="Be brief.", messages=[pb.UserMessage(text="go")])

BODIES: dict[str, dict[str, Any]] = {
    "openai": {
        "id": "c1",
        "model": "m",
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "message": {
                    "role": "assistant",
                    "content": TEXT,
                    "reasoning_content": "hm, so",
                    "tool_calls": [
                        {"id": "a", "type": "function", "function": {"name": "zeta", "arguments": NUMBERS}},
                        {"id": "b", "type": "function", "function": {"name": "alpha", "arguments": "{}"}},
                    ],
                },
            }
        ],
        "usage": {"prompt_tokens": 40, "completion_tokens": 9, "total_tokens": 49},
    },
    "anthropic": {
        "id": "m1",
        "model": "m",
        "role": "assistant",
        "type": "message",
        "stop_reason": "tool_use",
        "content": [
            {"type": "thinking", "thinking": "hm, so", "signature": "sig=="},
            {"type": "redacted_thinking", "data": "enc=="},
            {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {"q": "🙂", "n": 1}},
            {"type": "web_search_tool_result", "tool_use_id": "srv", "content": [{"url": "u", "n": 1.0}]},
            {"type": "text", "text": TEXT},
            {"type": "tool_use", "id": "a", "name": "zeta", "input": {"id": 9007199254740993, "f": 1.0}},
            {"type": "tool_use", "id": "b", "name": "alpha", "input": {}},
        ],
        "usage": {
            "input_tokens": 229,
            "cache_creation_input_tokens": 1000,
            "cache_read_input_tokens": 50,
            "output_tokens": 77,
        },
    },
    "google": {
        "modelVersion": "m",
        "responseId": "r1",
        "candidates": [
            {
                "content": {
                    "parts": [
                        {"text": "hm, so", "thought": True},
                        {"text": TEXT},
                        {"functionCall": {"name": "zeta", "args": {"f": 1.0}}, "thoughtSignature": "sig=="},
                        {"functionCall": {"name": "alpha", "args": {}}},
                    ]
                },
                "finishReason": "STOP",
            }
        ],
        "usageMetadata": {
            "promptTokenCount": 30,
            "candidatesTokenCount": 5,
            "thoughtsTokenCount": 7,
            "totalTokenCount": 42,
            "cachedContentTokenCount": 4,
        },
    },
    "openai-responses": {
        "id": "r1",
        "model": "m",
        "status": "completed",
        "output": [
            {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "enc=="},
            {"type": "message", "id": "ms", "content": [{"type": "output_text", "text": TEXT}]},
            {"type": "function_call", "id": "fc", "call_id": "a", "name": "zeta", "arguments": NUMBERS},
        ],
        "usage": {
            "input_tokens": 30,
            "output_tokens": 12,
            "total_tokens": 42,
            "input_tokens_details": {"cached_tokens": 4},
            "output_tokens_details": {"reasoning_tokens": 7},
        },
    },
}


async def _pieces(data: Sequence[bytes]) -> AsyncIterator[bytes]:
    for piece in data:
        yield piece


def streamed(
    provider: str, data: Sequence[bytes], shown: Callable[[Delta], None] = lambda _: None
) -> ModelResponse:
    """The answer in these bytes; raises ModelError with what it has cost."""
    reader = Reader(provider, shown)
    dialect = cast(Dialect, DIALECTS[provider])
    try:
        body = asyncio.run(reader.read(_pieces(data)))
    except ModelError as error:
        if reader.assembler.begun:
            error.usage = spent(reader.assembler.body(), dialect, REQUEST, reader.said_bytes)
        raise
    return read_answer(body, {}, provider=provider, dialect=dialect, request=REQUEST)


def normal(response: ModelResponse, *, arguments: bool = False) -> ModelResponse:
    """With the spaces between JSON's tokens as this file has them: in opaque blocks, and in `arguments`."""
    turn = pb.AssistantTurn()
    turn.CopyFrom(response.turn)
    for part in turn.parts:
        if part.HasField("opaque"):
            part.opaque.json = json.dumps(json.loads(part.opaque.json), sort_keys=True)
        if part.HasField("tool_call") and arguments:
            part.tool_call.arguments = json.dumps(json.loads(part.tool_call.arguments))
    return ModelResponse(turn=turn, usage=response.usage)


def in_one_piece(provider: str, body: Any = None) -> ModelResponse:
    data = json.dumps(body or BODIES[provider]).encode()
    return read_answer(
        data, {}, provider=provider, dialect=cast(Dialect, DIALECTS[provider]), request=REQUEST
    )


def failure(provider: str, data: Sequence[bytes]) -> ModelError:
    with pytest.raises(ModelError) as caught:
        streamed(provider, data)
    return caught.value


# --- framing


def _with(extra: Sequence[Event]) -> Callable[[list[Event]], list[bytes]]:
    """Each event behind some that say nothing."""
    return lambda events: framed([inner for event in events for inner in (*extra, event)])


def _lines(events: list[Event]) -> list[bytes]:
    """JSON over several data lines."""
    pretty = [
        (name, data if data == "[DONE]" else json.dumps(json.loads(data), indent=1, ensure_ascii=False))
        for name, data in events
    ]
    return framed(pretty)


FRAMES: dict[str, Callable[[list[Event]], list[bytes]]] = {
    "as usual": framed,
    "CRLF": lambda events: framed(events, b"\r\n"),
    "CR": lambda events: framed(events, b"\r"),
    "no space": lambda events: framed(events, space=""),
    "comments": lambda events: [b": OPENROUTER PROCESSING\n\n:\n\n" + piece for piece in framed(events)],
    "several data lines": _lines,
    "pings": _with([("ping", "{}"), ("keepalive", "not even JSON")]),
    "a BOM and retry": lambda events: [b"\xef\xbb\xbfretry: 3000\n\n", *framed(events)],
    "no blank line at the end": lambda events: [b"".join(framed(events)).rstrip(b"\n") + b"\n"],
    "no end of line at the end": lambda events: [b"".join(framed(events)).rstrip(b"\n")],
    "the end marker twice": lambda events: framed([*events, events[-1]]),
    "[DONE] though nobody asked": lambda events: framed([*events, DONE]),
    "no [DONE]": lambda events: framed([event for event in events if event != DONE]),
}


@pytest.mark.parametrize("provider", MODELS)
@pytest.mark.parametrize("frame", FRAMES)
def test_any_framing_gives_the_same_turn_and_usage(provider: str, frame: str) -> None:
    wanted = in_one_piece(provider)
    assert len(wanted.turn.parts) > 2 and not wanted.usage.estimated
    pieces = FRAMES[frame](events_of(provider, BODIES[provider]))
    data = b"".join(pieces)
    for cut in (pieces, [data], [data[at : at + 1] for at in range(len(data))]):
        loose = frame == "several data lines"  # which moves spaces within objects
        assert normal(streamed(provider, cut), arguments=loose) == normal(wanted, arguments=loose)


@pytest.mark.parametrize("provider", MODELS)
def test_a_server_that_answers_in_one_piece_is_understood(provider: str) -> None:
    data = json.dumps(BODIES[provider], ensure_ascii=False).encode()
    for cut in ([data], [b"\xef\xbb\xbf \n" + data], [data[at : at + 1] for at in range(len(data))]):
        assert normal(streamed(provider, cut)) == normal(in_one_piece(provider))


def test_googles_list_of_chunks_is_a_stream_too() -> None:
    chunks = [json.loads(data) for _, data in events_of("google", BODIES["google"])]
    assert streamed("google", [json.dumps(chunks).encode()]) == in_one_piece("google")


@pytest.mark.parametrize("provider", MODELS)
def test_what_is_shown_is_what_is_said(provider: str) -> None:
    shown: list[Delta] = []
    streamed(provider, framed(events_of(provider, BODIES[provider])), shown.append)
    assert "".join(delta.text for delta in shown if delta.kind == "text") == TEXT
    assert next(delta.text for delta in shown if delta.kind == "call") == "zeta"
    if provider != "openai-responses":
        assert "".join(delta.text for delta in shown if delta.kind == "thinking") == "hm, so"


# --- streams that are no answer


@pytest.mark.parametrize("provider", MODELS)
def test_a_stream_that_ends_anywhere_before_its_end_marker_is_no_turn(provider: str) -> None:
    events = events_of(provider, BODIES[provider])
    pieces = framed(events)
    ends = len(pieces) - {"openai": 3, "anthropic": 1, "google": 1, "openai-responses": 1}[provider]
    for count in range(1, ends + 1):
        failed = failure(provider, pieces[:count])
        assert (failed.reason, failed.retryable) == ("InvalidResponse", True), count
    streamed(provider, pieces[: ends + 1])


@pytest.mark.parametrize("provider", MODELS)
def test_a_stream_that_ends_within_a_character_is_no_turn(provider: str) -> None:
    data = b"".join(framed(events_of(provider, BODIES[provider])))
    at = data.index("🙂".encode()) + 2
    assert failure(provider, [data[:at]]).retryable


ERRORS: dict[str, tuple[Event, str, bool]] = {
    "Anthropic's": (
        ("error", '{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'),
        "Overloaded",
        True,
    ),
    "OpenRouter's": (("", '{"error":{"code":502,"message":"Upstream died"}}'), "ServerError", True),
    "beside choices": (
        ("", '{"error":{"code":429,"message":"slow"},"choices":[{"delta":{"content":""},'
         '"finish_reason":"error"}],"candidates":[{"finishReason":"STOP"}]}'),
        "RateLimited",
        True,
    ),
    "a line of its own": (("error", '{"message":"something broke"}'), "ModelError", True),
    "no JSON": (("error", "upstream timed out"), "ModelError", True),
    "responses'": (
        ("error", '{"type":"error","code":"server_error","message":"oh"}'), "ServerError", True
    ),
    "a filter": (("", '{"error":{"code":"content_filter","message":"no"}}'), "ContentFilter", False),
    "a key": (("", '{"error":{"code":401,"message":"who?"}}'), "Unauthorized", False),
    "a call that cannot be read": (
        ("error", '{"error":{"message":"bad call","type":"invalid_request_error","code":"tool_use_failed",'
         '"status_code":400}}'),
        "InvalidResponse",
        True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("provider", MODELS)
@pytest.mark.parametrize("error", ERRORS)
def test_an_error_in_the_stream_is_no_turn_and_charges_what_is_known(provider: str, error: str) -> None:
    event, reason, retryable = ERRORS[error]
    events = events_of(provider, BODIES[provider])
    for place in (1, len(events) // 2, len(events) - 3):
        failed = failure(provider, framed([*events[:place], event, *events[place:]]))
        assert (failed.reason, failed.retryable) == (reason, retryable)
        assert failed.message.startswith(provider)
        if provider == "anthropic":
            assert failed.usage.tokens_in == 1279, "message_start has said it"
        elif place > 1 and provider != "google":
            assert failed.usage.estimated and failed.usage.tokens_out > 0


@pytest.mark.parametrize("provider", MODELS)
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" \n",
        b"data: [DONE]\n\n",
        b": nothing\n\n",
        b"data: {\n\n",
        b"data: 7\n\n",
        b"data: []\n\n",
        b"data: {}\n\n",
        b'data: {"choices": []}\n\ndata: [DONE]\n\n',
        b'data: {"choices": null}\n\n',
        b'data: {"choices": [{"delta": null}]}\n\n',
        b'data: {"type": "message_stop"}\n\n',
        b'data: {"type": "content_block_delta", "index": 7, "delta": {"type": "text_delta"}}\n\n',
        b'data: {"type": "response.completed"}\n\n',
        b'data: {"candidates": null}\n\n',
        b"<html>log in</html>",
        b'{"contentType": "application/json", "method": "POST"}',
        b"OK",
        b"\xff\xfe\x00\x00",
        b"data: " + b"[" * 100_000 + b"\n\n",
    ],
)
def test_what_is_no_answer_is_an_error_that_says_so(provider: str, data: bytes) -> None:
    failed = failure(provider, [data])
    assert failed.reason == "InvalidResponse" and failed.message.startswith(provider)
    assert failed.usage.tokens_out == 0


# --- usage


@pytest.mark.parametrize(
    ("events", "usage"),
    [
        (  # null on every chunk, the figures in a last one without choices
            ['{"choices":[{"delta":{"content":"x"}}],"usage":null}', '{"choices":[{"finish_reason":"stop"}]}',
             '{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2}}'],
            Usage(tokens_in=9, tokens_out=2),
        ),
        (  # with the last content
            ['{"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}],'
             '"usage":{"prompt_tokens":9,"completion_tokens":2}}'],
            Usage(tokens_in=9, tokens_out=2),
        ),
        (  # in both places, and growing: never added up
            ['{"choices":[{"delta":{"content":"x"}}],"usage":{"prompt_tokens":9,"completion_tokens":1}}',
             '{"choices":[{"delta":{},"finish_reason":"stop"}],'
             '"usage":{"prompt_tokens":9,"completion_tokens":2}}',
             '{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2}}'],
            Usage(tokens_in=9, tokens_out=2),
        ),
        (  # thinking that only the total shows
            ['{"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}],'
             '"usage":{"prompt_tokens":35,"completion_tokens":12,"total_tokens":109}}'],
            Usage(tokens_in=35, tokens_out=74, tokens_reasoning=62),
        ),
        (  # Groq's own place for it
            ['{"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}],'
             '"x_groq":{"usage":{"prompt_tokens":9,"completion_tokens":2}}}'],
            Usage(tokens_in=9, tokens_out=2),
        ),
    ],
)  # fmt: skip
def test_usage_in_each_place_where_servers_put_it(events: list[str], usage: Usage) -> None:
    assert streamed("openai", framed([("", event) for event in [*events, "[DONE]"]])).usage == usage


@pytest.mark.parametrize("provider", MODELS)
def test_a_stream_without_usage_is_estimated_and_says_so(provider: str) -> None:
    body = {k: v for k, v in BODIES[provider].items() if k not in ("usage", "usageMetadata")}
    usage = streamed(provider, framed(events_of(provider, body))).usage
    assert usage.estimated and usage.tokens_in > 0 and usage.tokens_out > 0


def test_anthropics_later_figures_are_sums_and_a_zero_is_no_figure() -> None:
    events = events_of("anthropic", BODIES["anthropic"])
    late = {"type": "message_delta", "delta": {}, "usage": {"input_tokens": 0, "output_tokens": 70}}
    events.insert(len(events) - 2, ("message_delta", json.dumps(late)))
    assert streamed("anthropic", framed(events)).usage == in_one_piece("anthropic").usage


# --- calls as servers disagree about them


def chat_calls(*pieces: dict[str, Any]) -> list[tuple[str, str, str]]:
    chunks = [{"choices": [{"index": 0, "delta": {"tool_calls": [piece]}}]} for piece in pieces]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    turn = streamed("openai", framed([("", json.dumps(chunk)) for chunk in [*chunks, end]])).turn
    calls = [part.tool_call for part in turn.parts if part.HasField("tool_call")]
    return [(call.wire_id, call.name, call.arguments) for call in calls]


def piece(arguments: Any = None, name: str | None = None, **more: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {**more, "function": {key: value for key, value in function.items() if value is not None}}


@pytest.mark.parametrize(
    ("pieces", "calls"),
    [
        (  # as OpenAI sends them
            [piece("", "f", index=0, id="a"), piece('{"x"', index=0), piece("", "g", index=1, id="b"),
             piece(":1}", index=0), piece("{}", index=1)],
            [("a", "f", '{"x":1}'), ("b", "g", "{}")],
        ),
        (  # id and name in each piece
            [piece('{"x"', "f", index=0, id="a"), piece(":1}", "f", index=0, id="a")],
            [("a", "f", '{"x":1}')],
        ),
        (  # whole calls, all with index 0
            [piece('{"x":1}', "f", index=0, id="a"), piece('{"x":2}', "f", index=0, id="b")],
            [("a", "f", '{"x":1}'), ("b", "f", '{"x":2}')],
        ),
        (  # whole calls without ids, all with index 0
            [piece('{"x":1}', "f", index=0, id=""), piece('{"x":2}', "f", index=0, id="")],
            [("", "f", '{"x":1}'), ("", "f", '{"x":2}')],
        ),
        (  # no index at all
            [piece('{"x":1}', "f", id="a"), piece('{"x":2}', "g", id="b")],
            [("a", "f", '{"x":1}'), ("b", "g", '{"x":2}')],
        ),
        (  # no index, in pieces
            [piece("", "f", id="a"), piece('{"x"'), piece(":1}"), piece("", "f", id="b"), piece("{}")],
            [("a", "f", '{"x":1}'), ("b", "f", "{}")],
        ),
        ([piece("{}", "f", index=0, id="s"), piece("{}", "g", index=1, id="s")],
         [("s", "f", "{}"), ("s", "g", "{}")]),  # the same id twice
        ([piece("{}", "f", index=0, id=None)], [("", "f", "{}")]),
        ([piece({"n": 1}, "f", index=0, id="a")], [("a", "f", '{"n": 1}')]),  # an object, not a text
        ([piece("{}", "g", index=1, id="b"), piece("{}", "f", index=0, id="a")],
         [("a", "f", "{}"), ("b", "g", "{}")]),  # out of order
        ([piece("{}", "get_", index=0, id="a"), piece("{}", "x", index=1, id="b")],
         [("a", "get_", "{}"), ("b", "x", "{}")]),
    ],
)  # fmt: skip
def test_calls_come_together_whatever_the_server_leaves_out(
    pieces: list[dict[str, Any]], calls: list[tuple[str, str, str]]
) -> None:
    assert chat_calls(*pieces) == calls


def test_an_emoji_that_a_server_cuts_in_two_escapes_is_one_again() -> None:
    halves = [
        '{"choices":[{"delta":{"content":"\\ud83d"}}]}',
        '{"choices":[{"delta":{"content":"\\ude42"}}]}',
    ]
    end = '{"choices":[{"delta":{},"finish_reason":"stop"}]}'
    turn = streamed("openai", framed([("", event) for event in [*halves, end]])).turn
    assert turn.parts[0].text.text == "🙂"


@pytest.mark.parametrize("finish", [None, "stop", "tool_calls", "foo_bar"])
def test_calls_are_calls_whatever_the_finish_says(finish: str | None) -> None:
    body = json.loads(json.dumps(BODIES["openai"]))
    body["choices"][0]["finish_reason"] = finish
    turn = streamed("openai", framed(events_of("openai", body))).turn
    assert turn.finish == pb.FINISH_REASON_TOOL_CALLS and not turn.truncated


def test_arguments_that_the_limit_cut_stay_as_they_are() -> None:
    events = events_of("anthropic", BODIES["anthropic"])
    cut = [event for event in events if ":9007199254740993" not in event[1]]
    last = {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 99}}
    start: dict[str, Any] = {"type": "content_block_start", "index": 9,
             "content_block": {"type": "tool_use", "id": "c", "name": "zeta", "input": {}}}  # fmt: skip
    delta = {"type": "content_block_delta", "index": 9,
             "delta": {"type": "input_json_delta", "partial_json": '{"to": "a@ex'}}  # fmt: skip
    cut[-2:-1] = [(str(event["type"]), json.dumps(event)) for event in (start, delta, last)]
    turn = streamed("anthropic", framed(cut)).turn
    assert turn.truncated and turn.parts[-1].tool_call.arguments == '{"to": "a@ex'


def test_reasoning_details_in_pieces_are_whole_again() -> None:
    def chunk(**detail: Any) -> Event:
        return "", json.dumps({"choices": [{"delta": {"reasoning_details": [detail]}}]})

    events = [
        chunk(type="reasoning.text", index=0, text="so "),
        chunk(type="reasoning.text", index=0, text="far", signature="sig"),
        chunk(type="reasoning.encrypted", index=1, data="enc"),
        ("", '{"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}'),
    ]
    opaque = next(
        part.opaque for part in streamed("openai", framed(events)).turn.parts if part.HasField("opaque")
    )
    assert json.loads(opaque.json) == [
        {"type": "reasoning.text", "index": 0, "text": "so far", "signature": "sig"},
        {"type": "reasoning.encrypted", "index": 1, "data": "enc"},
    ]


def test_a_response_whose_end_leaves_the_output_out_is_made_of_its_items() -> None:
    events = events_of("openai-responses", BODIES["openai-responses"])
    end = json.loads(events[-1][1])
    end["response"] = {**end["response"], "output": []}
    events[-1] = (events[-1][0], json.dumps(end))
    assert streamed("openai-responses", framed(events)) == in_one_piece("openai-responses")


@pytest.mark.parametrize(("status", "reason"), [("incomplete", "max_output_tokens"), ("failed", "")])
def test_a_response_says_how_it_ended(status: str, reason: str) -> None:
    body = {
        **BODIES["openai-responses"],
        "status": status,
        "incomplete_details": {"reason": reason} if reason else None,
        "error": {"code": "server_error", "message": "oh"} if status == "failed" else None,
    }
    data = framed(events_of("openai-responses", body))
    if status == "failed":
        assert failure("openai-responses", data).reason == "ServerError"
    else:
        assert streamed("openai-responses", data).turn.truncated


def test_a_prompt_that_google_blocks_is_refused_as_in_one_piece() -> None:
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}}
    failed = failure("google", framed([("", json.dumps(blocked))]))
    assert (failed.reason, failed.retryable) == ("ContentFilter", False)
