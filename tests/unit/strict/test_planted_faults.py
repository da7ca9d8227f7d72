"""The histories are worth their time: each fault, planted, is found by them."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from agentrun.agent import loop, toolbox
from agentrun.agent.ask import usage_of
from agentrun.agent.conversation import Conversation
from agentrun.agent.toolbox import Toolbox
from agentrun.graph.node import NodeRun
from agentrun.models import convert
from agentrun.models.base import Message, ModelRequest, Usage
from agentrun.models.convert import library_parameters
from agentrun.models.streams.anthropic import AnthropicStream
from agentrun.models.wire import anthropic, chat, google, rawjson, responses
from agentrun.models.wire.ids import wire_ids
from agentrun.models.wire.values import filled
from agentrun.proto import transcript_pb2 as pb
from tests.support.strict import exact
from tests.support.strict.history import History

HISTORIES_MAX = 120
Patch = pytest.MonkeyPatch

pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")


def found(*said: str, provider: str = "anthropic") -> bool:
    """The first history that goes wrong says one of these."""
    for seed in range(HISTORIES_MAX):
        try:
            History(seed, provider).execute()
        except AssertionError as error:
            assert any(text in str(error) for text in said), error
            return True
    return False


# --- what is told of what was done


def resumed(node: Any) -> bool:
    """The process is not the run's first."""
    return bool(node._log.attempt > 1)


def test_a_result_that_is_dropped_after_a_resume_is_found(monkeypatch: Patch) -> None:
    before = Conversation.before

    async def dropping(self: Conversation, node: Any, number: int) -> list[Message]:
        messages = await before(self, node, number)
        last = isinstance(messages[-1], pb.ToolResult)
        return messages[:-1] if resumed(node) and last else messages

    monkeypatch.setattr(Conversation, "before", dropping)
    assert found("BadRequest")  # it is seen before it is sent, and ends the run


def test_a_result_that_is_dropped_from_the_body_is_found(monkeypatch: Patch) -> None:
    fill = convert.Marks.fill

    def dropping(self: convert.Marks, body: bytes) -> bytes:
        data = exact.parse(fill(self, body))
        content = data["messages"][-1]["content"]
        if len(content) > 1 and content[-1]["type"] == "tool_result":
            content.pop()
        return exact.dump(data).encode()

    monkeypatch.setattr(convert.Marks, "fill", dropping)
    assert found("results [", "for the calls")


def test_results_in_the_order_in_which_they_came_are_found(monkeypatch: Patch) -> None:
    said = Conversation._said

    async def as_they_came(self: Conversation, node: Any, number: int) -> list[Message]:
        messages = await said(self, node, number)
        results = [m for m in messages if isinstance(m, pb.ToolResult)]
        order = [name for name in node.outputs("tool_call") if name.startswith(f"call-{number}-")]
        places = [int(i.rpartition("-")[2]) for i in order]
        came = iter([results[place] for place in places])
        return [next(came) if isinstance(m, pb.ToolResult) else m for m in messages]

    monkeypatch.setattr(Conversation, "_said", as_they_came)
    assert found("asked for")


def test_a_turn_that_is_asked_for_again_is_found(monkeypatch: Patch) -> None:
    before = Conversation.before

    async def forgetting(self: Conversation, node: Any, number: int) -> list[Message]:
        messages = await before(self, node, number)
        turns = [place for place, m in enumerate(messages) if isinstance(m, pb.AssistantTurn)]
        return messages[: turns[-1]] if resumed(node) and turns else messages

    monkeypatch.setattr(Conversation, "before", forgetting)
    assert found("asked for again", "without its result")


def test_an_earlier_message_that_changes_is_found(monkeypatch: Patch) -> None:
    count = itertools.count()
    monkeypatch.setattr(
        "agentrun.models.convert.filled", lambda text, stand_in: f"{next(count)} {filled(text, stand_in)}"
    )
    assert found("changed", "never given")


# --- what stands around it


def test_tools_in_another_order_after_a_resume_are_found(monkeypatch: Patch) -> None:
    definitions = loop.AgentLoop._definitions
    count = itertools.count()

    def turning(self: Any, *args: Any) -> Any:
        tools = definitions(self, *args)
        turns = next(count) % max(1, len(tools))
        return [*tools[turns:], *tools[:turns]]

    monkeypatch.setattr(loop.AgentLoop, "_definitions", turning)
    assert found("['tools'] changed")


def test_a_clock_in_the_instructions_is_found(monkeypatch: Patch) -> None:
    count = itertools.count()

    def dated(request: ModelRequest) -> Any:
        return library_parameters(replace(request, instructions=f"It is {next(count)} o'clock."))

    monkeypatch.setattr("agentrun.models.providers.library_parameters", dated)
    assert found("['system'] changed")


@pytest.mark.parametrize("provider", ["anthropic", "openai", "openai-responses", "google"])
def test_ids_that_are_invented_anew_are_found(monkeypatch: Patch, provider: str) -> None:
    count = itertools.count()

    def anew(messages: Any) -> list[list[str]]:
        return [[f"call_{next(count)}" for _ in turn] for turn in wire_ids(messages)]

    monkeypatch.setattr("agentrun.models.convert.wire_ids", anew)
    assert found("its id was", "changed from", "no tool output", "results [", provider=provider)


# --- what the model said

_ECHO = ("was {", "blocks are missing", "blocks too many", "never given", "arguments were", "reasoning")


@pytest.mark.parametrize(
    ("dialect", "provider"),
    [(anthropic, "anthropic"), (chat, "openai"), (responses, "openai-responses"), (google, "google")],
)
def test_a_turn_that_is_taken_for_anothers_is_found(monkeypatch: Patch, dialect: Any, provider: str) -> None:
    write = dialect.write
    monkeypatch.setattr(dialect, "write", lambda turn, ids, *, own: write(turn, ids, own=False))
    assert found(*_ECHO, provider=provider)


def test_thinking_that_is_written_anew_is_found(monkeypatch: Patch) -> None:
    thinking = anthropic._thinking

    def stripped(part: pb.ThinkingPart, more: Any) -> str:
        tidy = pb.ThinkingPart.FromString(part.SerializeToString())
        tidy.text = tidy.text.strip()
        return thinking(tidy, more)

    monkeypatch.setattr(anthropic, "_thinking", stripped)
    assert found('was {"type":"thinking"')


@pytest.mark.parametrize(
    ("dialect", "provider"),
    [(anthropic, "anthropic"), (responses, "openai-responses"), (google, "google")],
)
def test_a_servers_block_that_is_parsed_and_written_is_found(
    monkeypatch: Patch, dialect: Any, provider: str
) -> None:
    raw = dialect.raw

    def again(text: str, *path: str | int) -> str | None:
        cut = raw(text, *path)
        return (
            cut
            if cut is None or path[-1] in ("input", "args", "arguments")
            else rawjson.compact(rawjson.parse(cut))
        )

    monkeypatch.setattr(dialect, "raw", again)
    assert found(*_ECHO, provider=provider)


@pytest.mark.parametrize(
    ("dialect", "provider"),
    [(anthropic, "anthropic"), (chat, "openai"), (responses, "openai-responses"), (google, "google")],
)
def test_arguments_that_are_parsed_and_written_are_found(
    monkeypatch: Patch, dialect: Any, provider: str
) -> None:
    def again(arguments: str) -> str:
        sendable = rawjson.sendable_arguments(arguments)
        return rawjson.compact(rawjson.parse(sendable))

    monkeypatch.setattr(dialect, "sendable_arguments", again)
    assert found(*_ECHO, provider=provider)


def test_a_cut_turn_that_goes_back_as_it_came_is_found(monkeypatch: Patch) -> None:
    monkeypatch.setattr(anthropic, "_unanswered", lambda turn: [])
    assert found("without its result", "blocks too many")


def test_an_empty_result_is_found(monkeypatch: Patch) -> None:
    monkeypatch.setattr("agentrun.models.convert.filled", lambda text, stand_in: text)
    assert found("an empty result")


def test_a_stream_that_was_cut_and_is_taken_for_whole_is_found(monkeypatch: Patch) -> None:
    feed = AnthropicStream.feed

    def whole_at_once(self: AnthropicStream, text: str, event: Any) -> Any:
        deltas = feed(self, text, event)
        self.whole = self.begun
        return deltas

    monkeypatch.setattr(AnthropicStream, "feed", whole_at_once)
    assert found(*_ECHO, "turn-")


# --- what is done


def test_an_unsafe_call_that_is_made_again_is_found(monkeypatch: Patch) -> None:
    begin = NodeRun._begin

    def uninterrupted(self: NodeRun) -> None:
        self.interrupted = False
        begin(self)

    monkeypatch.setattr(NodeRun, "_begin", uninterrupted)
    assert found("was sent 2 times")


def test_an_intent_that_is_not_recorded_is_found(monkeypatch: Patch) -> None:
    async def forgotten(self: NodeRun) -> None:
        self._intended = True

    monkeypatch.setattr(NodeRun, "intend", forgotten)
    assert found("was sent 2 times")


def test_calls_of_a_turn_that_was_cut_are_found(monkeypatch: Patch) -> None:
    turn = Conversation.turn

    async def whole(self: Conversation, node: Any, number: int) -> pb.AssistantTurn:
        found_turn = await turn(self, node, number)
        if not node.name.startswith("call-"):
            return found_turn
        copy = pb.AssistantTurn.FromString(found_turn.SerializeToString())
        copy.truncated = False
        return copy

    monkeypatch.setattr(Conversation, "turn", whole)
    assert found("was cut, and its calls are made")


def test_a_result_that_says_that_nothing_was_done_is_found(monkeypatch: Patch) -> None:
    failed = Toolbox._failed

    def not_run(self: Toolbox, tool: Any, node: Any, error: Any) -> pb.ToolResult:
        told = failed(self, tool, node, error)
        return toolbox.result(told.name, toolbox.NOT_RUN, told.content)

    monkeypatch.setattr(Toolbox, "_failed", not_run)
    assert found("says that it was not made")


def test_usage_that_is_not_charged_is_found(monkeypatch: Patch) -> None:
    monkeypatch.setattr(
        "agentrun.agent.loop.usage_of", lambda usage: usage_of(Usage(tokens_in=usage.tokens_in))
    )
    assert found("turn-1")
