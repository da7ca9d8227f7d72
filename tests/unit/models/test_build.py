"""What cannot be built says so in one line, before a run begins."""

from __future__ import annotations

import sys

import pytest

from agentrun.models import (
    Message,
    ModelRequest,
    ModelSetupError,
    ToolDefinition,
    build_model,
    estimate_tokens,
)
from agentrun.models.estimate import estimate_usage
from agentrun.proto import transcript_pb2 as pb

KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY")


@pytest.mark.parametrize("name", ["", "gpt-5", "openai:", "nope:x", ":x", "OpenAI:x"])
def test_an_unknown_name(name: str) -> None:
    with pytest.raises(ModelSetupError, match="openai:NAME"):
        build_model(name, api_key="k")


def test_a_scripted_model_without_a_script() -> None:
    with pytest.raises(ModelSetupError, match=r"script\.turns"):
        build_model("scripted:x")


@pytest.mark.parametrize("provider", ["openai", "openai-responses", "anthropic", "google"])
def test_no_key(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in KEYS:
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(ModelSetupError, match="no API key") as caught:
        build_model(f"{provider}:x")
    assert "\n" not in str(caught.value)


def test_a_missing_package_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anthropic", None)
    with pytest.raises(ModelSetupError, match=r"pip install 'agentrun\[models\]'") as caught:
        build_model("anthropic:x", api_key="k")
    assert "\n" not in str(caught.value)


def request(text: str) -> ModelRequest:
    turn = pb.AssistantTurn()
    turn.parts.add().thinking.text = text
    turn.parts.add().tool_call.arguments = text
    messages: list[Message] = [pb.UserMessage(text=text), turn, pb.ToolResult(content=text)]
    tool = ToolDefinition(name="t", description=text, parameters={"type": "object"})
    return ModelRequest(instructions=text, messages=messages, tools=[tool])


def test_an_estimate_counts_all_that_is_sent_and_guesses_high() -> None:
    large, small = request("x" * 3000), request("")
    assert 6000 <= estimate_tokens(large) - estimate_tokens(small) <= 6010
    assert estimate_tokens(large) > estimate_usage(large, None).tokens_in
    assert estimate_tokens(ModelRequest(instructions="", messages=[])) >= 1
    assert estimate_tokens(request("漢" * 100)) > estimate_tokens(request("x" * 100))
