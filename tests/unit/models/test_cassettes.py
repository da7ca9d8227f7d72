"""Recorded answers of real servers, played by a small one: each is the right turn, or the right error.

The recordings lie in the folder that SHARED names (beside the repository where it is not set).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentrun.models import Message, ModelError, ModelResponse
from agentrun.models.base import Usage
from agentrun.proto import transcript_pb2 as pb
from tests.support.live_runs import LiveRun, manifest
from tests.support.stub_model import AnyReply, Reply, StubModel
from tests.unit.models.conversations import ask, built

FOLDER = Path(os.environ.get("SHARED", Path(__file__).parents[4] / "shared")) / "cassettes"
NAMES = {
    "redacted thinking": "test_anthropic_model_thinking_part_redacted_stream",
    "no ids": "test_compatible_api_with_tool_calls_without_id",
    "reasoning": "test_crusoe_tool_calling",
    "a thinking stream": "test_deepseek_model_thinking_stream",
    "an error in a stream": "test_tool_use_failed_error_streaming",
}

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no recordings in {FOLDER}: set SHARED")


def replies(name: str) -> list[AnyReply]:
    """The answers of a recording, as they came."""
    recorded = yaml.safe_load((FOLDER / f"{NAMES[name]}.yaml").read_text())
    found: list[AnyReply] = []
    for interaction in recorded["interactions"]:
        response = interaction["response"]
        if "parsed_body" in response:
            found.append(response["parsed_body"])
            continue
        headers = {"content-type": response["headers"]["content-type"][0]}
        data = response["body"]["string"].encode()
        pieces = [data[at : at + 700] for at in range(0, len(data), 700)]
        found.append(Reply(status=response["status"]["code"], pieces=pieces, headers=headers))
    return found


def answers(provider: str, name: str, *, stream: bool = True) -> list[ModelResponse | ModelError]:
    """What each answer of a recording is taken for."""

    async def main() -> list[ModelResponse | ModelError]:
        found: list[ModelResponse | ModelError] = []
        with StubModel(replies(name)) as stub:
            model = built(provider, stub, settings={"stream": stream})
            for _ in replies(name):
                try:
                    found.append(await ask(model))
                except ModelError as error:
                    found.append(error)
            await model.close()
        return found

    return asyncio.run(main())


def turn_of(answer: ModelResponse | ModelError) -> pb.AssistantTurn:
    assert isinstance(answer, ModelResponse), answer
    return answer.turn


def said(turn: pb.AssistantTurn, kind: str) -> str:
    return "".join(getattr(part, kind).text for part in turn.parts if part.HasField(kind))


def calls(turn: pb.AssistantTurn) -> list[tuple[str, str, str]]:
    found = [part.tool_call for part in turn.parts if part.HasField("tool_call")]
    return [(call.wire_id, call.name, call.arguments) for call in found]


def test_every_recording_is_played_here() -> None:
    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(NAMES.values())


def test_redacted_thinking_in_a_stream_is_kept_word_for_word() -> None:
    [answer] = answers("anthropic", "redacted thinking")
    turn = turn_of(answer)
    kinds = [part.WhichOneof("part") for part in turn.parts]
    assert kinds == ["thinking", "thinking", "text"]
    assert all(part.thinking.redacted and not part.thinking.text for part in turn.parts[:2])
    reply = replies("redacted thinking")[0]
    assert isinstance(reply, Reply) and reply.pieces is not None
    recorded = b"".join(reply.pieces).decode()
    for part in turn.parts[:2]:
        assert f'"data":"{part.thinking.signature}"' in recorded
    assert said(turn, "text").endswith("can I assist you today with a legitimate task or question?")
    assert turn.finish == pb.FINISH_REASON_STOP
    assert isinstance(answer, ModelResponse) and answer.usage == Usage(tokens_in=92, tokens_out=189)


def test_redacted_thinking_goes_back_as_it_came() -> None:
    [answer] = answers("anthropic", "redacted thinking")
    turn = turn_of(answer)

    async def main() -> list[Any]:
        with StubModel([{"content": [{"type": "text", "text": "x"}], "stop_reason": "end_turn"}]) as stub:
            model = built("anthropic", stub)
            messages: Sequence[Message] = [pb.UserMessage(text="go"), turn, pb.UserMessage(text="on")]
            await ask(model, messages)
            await model.close()
            blocks: list[Any] = stub.requests[0].messages[1]["content"]
            return blocks

    blocks = asyncio.run(main())
    assert [block["type"] for block in blocks] == ["redacted_thinking", "redacted_thinking", "text"]
    assert [block["data"] for block in blocks[:2]] == [part.thinking.signature for part in turn.parts[:2]]


def test_a_thinking_stream_is_thinking_and_text() -> None:
    [answer] = answers("openai", "a thinking stream")
    turn = turn_of(answer)
    assert [part.WhichOneof("part") for part in turn.parts] == ["thinking", "text"]
    assert said(turn, "thinking").startswith("Hmm, the") and len(said(turn, "thinking")) > 500
    assert said(turn, "text").startswith("Hello") and said(turn, "text").endswith("?")
    assert turn.parts[0].thinking.id == "reasoning_content"
    assert isinstance(answer, ModelResponse)
    assert answer.usage == Usage(tokens_in=6, tokens_out=212, tokens_reasoning=198)


@pytest.mark.parametrize("stream", [True, False], ids=["asked for a stream", "asked for one piece"])
def test_reasoning_beside_a_call(stream: bool) -> None:
    first, second = answers("openai", "reasoning", stream=stream)
    turn = turn_of(first)
    assert calls(turn) == [("chatcmpl-tool-bbb91941bf76335c", "get_weather", '{"city": "Paris"}')]
    assert said(turn, "thinking").startswith("The user wants to know")
    assert isinstance(first, ModelResponse)
    assert first.usage == Usage(tokens_in=167, tokens_out=37, tokens_reasoning=25)
    assert said(turn_of(second), "text").startswith("The weather in Paris is currently **sunny**")


@pytest.mark.parametrize("stream", [True, False], ids=["asked for a stream", "asked for one piece"])
def test_a_call_without_an_id_and_thinking_that_only_the_total_shows(stream: bool) -> None:
    first, second = answers("openai", "no ids", stream=stream)
    assert calls(turn_of(first)) == [("", "get_current_time", "{}")]
    assert isinstance(first, ModelResponse)
    assert first.usage == Usage(tokens_in=35, tokens_out=74, tokens_reasoning=62)
    assert said(turn_of(second), "text") == "The current time is Noon."


def test_an_error_in_a_stream_and_the_answers_behind_it() -> None:
    first, second, third = answers("openai", "an error in a stream")
    assert isinstance(first, ModelError)
    assert (first.reason, first.retryable) == ("InvalidResponse", True)
    assert "Tool call validation failed" in first.message
    assert first.usage.estimated and first.usage.tokens_out > 0
    assert [call[1:] for call in calls(turn_of(second))] == [("get_something_by_name", '{"name":"example"}')]
    assert isinstance(second, ModelResponse) and isinstance(third, ModelResponse)
    assert second.usage == Usage(tokens_in=304, tokens_out=49, tokens_reasoning=23)
    assert third.usage == Usage(tokens_in=339, tokens_out=58, tokens_reasoning=38)
    assert said(third.turn, "text").endswith(".")


@pytest.mark.parametrize(
    ("name", "tool", "requests", "tokens"),
    [
        ("no ids", "get_current_time", 2, 0),
        ("reasoning", "get_weather", 2, 0),
        ("an error in a stream", "get_something_by_name", 3, 304 + 49 + 339 + 58),
    ],
)
def test_a_run_over_recorded_answers_comes_to_its_end(
    name: str, tool: str, requests: int, tokens: int
) -> None:
    """Against a server that is as strict as the strictest."""
    parameters = {"type": "object", "properties": {}}
    function = {"name": tool, "python": {"entrypoint": "tests.support.agents:echo"}, "effect": "read_only"}
    with StubModel(replies(name), strict=True) as stub:
        run = LiveRun(
            manifest(
                {"name": "openai:m", "baseURL": stub.url},
                agent={"tools": [{**function, "parameters": parameters}]},
            )
        )
        assert run.go().reason == "Completed"
    assert stub.count == requests and not stub.refusals
    assert list(run.history.done) == ["user-1", "turn-1", "tools-1", "call-1-0", "turn-2", "final"]
    totals = run.history.totals
    assert totals.retries == requests - 2
    failed = run.records.get("turn-1#1")
    spent = failed.cost.tokens_in + failed.cost.tokens_out if failed else 0
    assert not tokens or totals.tokens == tokens + spent
