"""The model layer against a server with a real language model.

`AGENTRUN_TEST_MODEL_URL` names an OpenAI-compatible server (its base URL, with
`/v1`), `AGENTRUN_TEST_MODEL_NAME` a model of it. Without the URL these tests
fail: skipped in silence, they would prove nothing. What the model says is not
judged, only its form.
"""

from __future__ import annotations

import asyncio
import json
import os

import pytest

from agentrun.models import Message, ModelError, ModelRequest, ModelResponse, ToolDefinition, build_model
from agentrun.proto import transcript_pb2 as pb

URL = "AGENTRUN_TEST_MODEL_URL"
NAME = "AGENTRUN_TEST_MODEL_NAME"
WEATHER = ToolDefinition(
    name="get_weather",
    description="Tells the weather in a city.",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
)


def ask(
    messages: list[Message], *, tools: bool = False, limit: int = 64, **settings: object
) -> ModelResponse:
    url = os.environ.get(URL)
    if not url:
        pytest.fail(f"{URL} is not set: these tests need a server with a real model")
    name = os.environ.get(NAME, "gemma-3-270m")

    async def main() -> ModelResponse:
        model = build_model(f"openai:{name}", base_url=url, settings={"temperature": 0, **settings})
        try:
            return await model.request(
                ModelRequest(
                    instructions="Answer in one short sentence.",
                    messages=messages,
                    tools=[WEATHER] if tools else [],
                    max_output_tokens=limit,
                    timeout_seconds=120,
                )
            )
        finally:
            await model.close()

    return asyncio.run(main())


def test_a_plain_question_is_answered_with_real_counts() -> None:
    response = ask([pb.UserMessage(text="What is the capital of France?")])
    assert "".join(part.text.text for part in response.turn.parts).strip()
    assert response.turn.finish in (pb.FINISH_REASON_STOP, pb.FINISH_REASON_LENGTH)
    assert response.turn.truncated == (response.turn.finish == pb.FINISH_REASON_LENGTH)
    assert response.usage.tokens_in > 0 and response.usage.tokens_out > 0
    assert not response.usage.estimated


def test_a_forced_call_is_well_formed_and_its_result_can_be_sent() -> None:
    messages: list[Message] = [pb.UserMessage(text="What is the weather in Paris?")]
    first = ask(messages, tools=True, toolChoice="get_weather")
    (call,) = [part.tool_call for part in first.turn.parts if part.HasField("tool_call")]
    assert call.name == "get_weather" and isinstance(json.loads(call.arguments)["city"], str)
    assert first.turn.finish == pb.FINISH_REASON_TOOL_CALLS and not first.usage.estimated
    kept = pb.AssistantTurn.FromString(first.turn.SerializeToString())
    second = ask([*messages, kept, pb.ToolResult(name="get_weather", content="Sunny, 21 °C")], tools=True)
    assert second.turn.parts and second.usage.tokens_in > 0


def test_an_answer_that_is_cut_says_so() -> None:
    response = ask([pb.UserMessage(text="Count from one to one hundred in words.")], limit=3)
    assert response.turn.truncated and response.turn.finish == pb.FINISH_REASON_LENGTH
    assert 0 < response.usage.tokens_out <= 3


def test_a_request_that_is_too_long_has_its_own_reason() -> None:
    with pytest.raises(ModelError) as caught:
        ask([pb.UserMessage(text="word " * 30_000)])
    assert (caught.value.reason, caught.value.retryable) == ("ContextLengthExceeded", False)
