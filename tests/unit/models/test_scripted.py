"""A scripted model plays its turns from what the request shows, and from nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from agentrun.models import Message, ModelError, ModelRequest, ModelResponse, ModelSetupError, build_model
from agentrun.proto import transcript_pb2 as pb


def play(
    script: Sequence[Mapping[str, Any]], *, turns: int = 0, key: str = "turn#1", **more: Any
) -> ModelResponse:
    messages: list[Message] = [pb.UserMessage(text="go"), *(pb.AssistantTurn() for _ in range(turns))]
    request = ModelRequest(instructions="be brief", messages=messages, key=key, **more)
    return asyncio.run(build_model("scripted:test", script=script).request(request))


def failure(script: Sequence[Mapping[str, Any]], **more: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        play(script, **more)
    return caught.value


def test_the_turn_played_is_the_number_of_turns_in_the_request() -> None:
    script = [{"text": "one"}, {"text": "two"}]
    assert play(script, turns=0).turn.parts[0].text.text == "one"
    assert play(script, turns=1).turn.parts[0].text.text == "two"


def test_past_its_end_the_script_says_so() -> None:
    error = failure([{"text": "one"}, {"text": "two"}], turns=2)
    assert (error.reason, error.retryable) == ("BadRequest", False)
    assert "the script has 2 turns and this is turn 3" in error.message


def test_a_raw_argument_string_is_passed_on_as_it_is_and_an_object_as_json() -> None:
    raw = '{"id": 9007199254740993, "e": 1e400, "neg": -0.0}'
    calls = [{"name": "a", "arguments": raw, "id": "x"}, {"name": "b", "arguments": {"n": 1}}]
    turn = play([{"toolCalls": calls}]).turn
    assert [part.tool_call.arguments for part in turn.parts] == [raw, '{"n": 1}']
    assert [part.tool_call.wire_id for part in turn.parts] == ["x", ""]
    assert turn.finish == pb.FINISH_REASON_TOOL_CALLS and not turn.truncated


def test_a_cut_turn_is_marked_truncated() -> None:
    turn = play([{"toolCalls": [{"name": "a", "arguments": '{"x":'}], "finishReason": "length"}]).turn
    assert turn.truncated and turn.finish == pb.FINISH_REASON_LENGTH


def test_an_error_fails_the_first_tries_of_the_turn_behind_it() -> None:
    script: list[Mapping[str, Any]] = [
        {"text": "one"},
        {"error": {"status": 429, "message": "slow down", "retryAfterSeconds": 7, "times": 2}},
        {"error": {"status": 500}},
        {"text": "two"},
    ]
    first = failure(script, turns=1, key="root/turn_1#1")
    assert (first.reason, first.retryable, first.retry_after_seconds) == ("RateLimited", True, 7)
    assert "slow down" in first.message
    assert failure(script, turns=1, key="root/turn_1#2").reason == "RateLimited"
    assert failure(script, turns=1, key="root/turn_1#3").reason == "ServerError"
    assert play(script, turns=1, key="root/turn_1#4").turn.parts[0].text.text == "two"


def test_an_error_with_times_0_is_raised_always() -> None:
    script: list[Mapping[str, Any]] = [{"error": {"status": 401, "times": 0}}, {"text": "never"}]
    assert failure(script, key="t#999").reason == "Unauthorized"


def test_usage_is_as_written_or_else_guessed_and_marked() -> None:
    usage = play([{"text": "x", "usage": {"inputTokens": 10, "outputTokens": 3, "cachedTokens": 4}}]).usage
    assert (usage.tokens_in, usage.tokens_out, usage.tokens_cached, usage.estimated) == (10, 3, 4, False)
    guesses = [play([{"text": "x" * 400}]).usage for _ in range(2)]
    assert guesses[0] == guesses[1] and guesses[0].estimated
    assert guesses[0].tokens_out == 100 and guesses[0].tokens_in > 0


def test_before_send_comes_before_the_delay_and_may_refuse() -> None:
    async def refuse() -> None:
        raise PermissionError("fenced")

    with pytest.raises(PermissionError):
        play([{"text": "x", "delaySeconds": 60}], before_send=refuse)


def test_a_delay_over_the_timeout_is_a_timeout() -> None:
    error = failure([{"text": "x", "delaySeconds": 60}], timeout_seconds=0.01)
    assert (error.reason, error.retryable) == ("Timeout", True)


@pytest.mark.parametrize(
    "entry",
    [
        {"txt": "x"},
        {"toolCalls": [{}]},
        {"toolCalls": [{"name": "a", "arguments": {"x": float("nan")}}]},
        {"delaySeconds": "soon"},
        {"error": {"status": "bad"}},
        {"error": {"times": -1}},
        {"usage": {"inputTokens": "many"}},
    ],
)
def test_a_bad_script_is_refused_when_built(entry: Mapping[str, Any]) -> None:
    with pytest.raises(ModelSetupError, match="turn 1") as caught:
        build_model("scripted", script=[entry])
    assert "\n" not in str(caught.value)


def test_text_that_storage_cannot_hold_is_made_safe() -> None:
    turn = play([{"text": "a\0b\ud800", "toolCalls": [{"name": "n", "arguments": '{"x": "\0"}'}]}]).turn
    assert turn.parts[0].text.text == "a\ufffdb\ufffd"
    assert turn.SerializeToString()
