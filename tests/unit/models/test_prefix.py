"""The beginning of a request is the same in each turn, byte for byte: providers cache by it."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Sequence
from typing import Any

import pytest

from agentrun.models import Message, ModelRequest
from agentrun.models.options import CACHE, fields_of
from agentrun.models.wire.rawjson import raw
from agentrun.proto import transcript_pb2 as pb
from tests.support.stub_model import Reply, Request, StubModel
from tests.support.stub_streams import events_of, framed
from tests.unit.models.conversations import MODELS, ask, built
from tests.unit.models.test_foreign_turns import SECRETS, thinks
from tests.unit.models.test_streams import BODIES

CONVERSATION = {
    "openai": "messages",
    "anthropic": "messages",
    "google": "contents",
    "openai-responses": "input",
}
TURNS = 4


def requests(provider: str, *, processes: bool, place: int = 0) -> list[Request]:
    """Of a conversation of some turns. `processes`: each turn is asked for by another one."""
    streamed = framed(events_of(provider, BODIES[provider]))

    def reply(request: Request) -> Any:
        return thinks(provider) if request.number % 2 else Reply(pieces=streamed)

    async def main() -> list[Request]:
        messages: list[Message] = [pb.UserMessage(text="go {on}")]
        with StubModel(reply, strict=True) as stub:
            model = built(provider, stub)
            for _ in range(TURNS):
                if processes:
                    await model.close()
                    model = built(provider, stub)
                turn = pb.AssistantTurn.FromString((await ask(model, messages)).turn.SerializeToString())
                turn.state.place = place
                calls = [part.tool_call for part in turn.parts if part.HasField("tool_call")]
                results = [pb.ToolResult(name=call.name, content="r 🙂") for call in calls]
                messages = [*messages, turn, *results, pb.UserMessage(text="and then?")]
            await model.close()
            assert not stub.refusals
            return list(stub.requests)

    return asyncio.run(main())


def split(provider: str, request: Request) -> tuple[str, str]:
    """The conversation as it was sent, without its last bracket, and all the rest of the body."""
    text = request.raw.decode()
    said = raw(text, CONVERSATION[provider])
    assert said is not None and text.count(said) == 1
    return said[:-1], text.replace(said, "[]")


def check(provider: str, sent: Sequence[Request]) -> None:
    parts = [split(provider, request) for request in sent]
    assert len({rest for _, rest in parts}) == 1, "tools, instructions and settings stay as they are"
    assert len({request.path for request in sent}) == 1
    for (before, _), (after, _) in itertools.pairwise(parts):
        assert after.startswith(before + ",") and len(after) > len(before)


@pytest.mark.parametrize("processes", [False, True], ids=["one process", "a process a turn"])
@pytest.mark.parametrize("provider", MODELS)
def test_each_turn_goes_on_from_the_bytes_of_the_one_before(provider: str, processes: bool) -> None:
    sent = requests(provider, processes=processes)
    check(provider, sent)
    assert any(secret.encode() in sent[-1].raw for secret in SECRETS), "its thinking among them"


@pytest.mark.parametrize("provider", MODELS)
def test_a_conversation_of_another_models_turns_too(provider: str) -> None:
    sent = requests(provider, processes=False, place=3)
    check(provider, sent)
    assert not any(secret.encode() in sent[-1].raw for secret in SECRETS)


def test_two_processes_send_the_same_bytes() -> None:
    for provider in MODELS:
        one, other = (requests(provider, processes=processes) for processes in (False, True))
        assert [request.raw for request in one] == [request.raw for request in other]


# --- Anthropic's marks


def marks(value: Any) -> int:
    return json.dumps(value).count('"cache_control"')


def test_anthropics_mark_stands_behind_tools_and_instructions_and_nowhere_in_the_conversation() -> None:
    for request in requests("anthropic", processes=False):
        assert request.body["system"][-1]["cache_control"]["type"] == "ephemeral"
        assert marks(request.body) == 1


def test_anthropic_itself_moves_a_mark_of_its_own_with_the_conversation() -> None:
    request = ModelRequest(instructions="", messages=[])
    own = fields_of("anthropic", request, stream=True, own_host=True, native_schemas=False)
    assert own[CACHE] == {"cache_control": {"type": "ephemeral"}}
    other = fields_of("anthropic", request, stream=True, own_host=False, native_schemas=False)
    assert other[CACHE] == {}, "a server that imitates it may refuse the field"
    refused = ModelRequest(instructions="", messages=[], without=frozenset({CACHE}))
    assert CACHE not in fields_of("anthropic", refused, stream=True, own_host=True, native_schemas=False)


@pytest.mark.parametrize("provider", MODELS)
def test_no_clock_and_no_chance_is_in_a_request(provider: str) -> None:
    one, other = (requests(provider, processes=True)[0] for _ in range(2))
    assert one.raw == other.raw
