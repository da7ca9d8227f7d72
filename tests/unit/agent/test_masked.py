"""Pieces of a streamed answer show no secret, however the provider cuts it; nor does a list of tools."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from agentrun.agent.masked import MaskedModel, MaskedServer
from agentrun.log.masks import Masks
from agentrun.models import ModelError, ModelRequest, ModelResponse, Usage
from agentrun.models.base import Delta
from agentrun.proto import transcript_pb2 as pb
from agentrun.tools.base import ServerTool
from agentrun.tools.offer import offer
from tests.support.tool_servers import FakeServer

SECRET = "sk-planted-0123456789"


class Streaming:
    name = "streaming"

    def __init__(self, pieces: list[Delta], error: ModelError | None = None) -> None:
        self.pieces = pieces
        self.error = error

    async def request(self, request: ModelRequest) -> ModelResponse:
        for piece in self.pieces:
            request.on_delta(piece)
        if self.error is not None:
            raise self.error
        turn = pb.AssistantTurn()
        turn.parts.add().text.text = "".join(piece.text for piece in self.pieces)
        return ModelResponse(turn=turn, usage=Usage())

    async def close(self) -> None:
        return None


def told(pieces: list[Delta]) -> tuple[list[Delta], str]:
    heard: list[Delta] = []
    request = ModelRequest(instructions="", messages=(), on_delta=heard.append)
    response = asyncio.run(MaskedModel(Streaming(pieces), Masks([SECRET])).request(request))
    return heard, response.turn.parts[0].text.text


@pytest.mark.parametrize("size", range(1, 30))
def test_a_secret_in_pieces_of_any_size(size: int) -> None:
    whole = f"the key is {SECRET}, and sk-plan is none; it ends with sk-pl"
    pieces = [Delta(kind="text", text=whole[k : k + size]) for k in range(0, len(whole), size)]
    heard, text = told(pieces)
    assert "".join(delta.text for delta in heard) == text == whole.replace(SECRET, "***")


def test_pieces_without_a_secret_come_as_they_are() -> None:
    pieces = [
        Delta(kind="thinking", text="hm"),
        Delta(kind="text", text="one "),
        Delta(kind="text", text="two"),
    ]
    assert told(pieces)[0] == pieces


def test_the_names_of_calls_come_one_by_one() -> None:
    pieces = [
        Delta(kind="call", text="tools"),
        Delta(kind="call", text="looks"),
        Delta(kind="text", text="s"),
    ]
    assert told(pieces)[0] == pieces


def test_what_was_held_back_of_one_kind_comes_before_the_next() -> None:
    pieces = [Delta(kind="thinking", text="sk-"), Delta(kind="text", text="planted")]
    assert told(pieces)[0] == pieces


def test_an_error_says_no_secret() -> None:
    error = ModelError("Unauthorized", f"wrong key: {SECRET}", retryable=False)
    model = MaskedModel(Streaming([], error), Masks([SECRET]))
    with pytest.raises(ModelError) as caught:
        asyncio.run(model.request(ModelRequest(instructions="", messages=())))
    assert (caught.value.message, caught.value.retryable) == ("wrong key: ***", False)
    assert SECRET not in str(caught.value)


def listed(parameters: Any, description: str = "") -> ServerTool:
    """The tool as it is recorded behind the masks."""

    async def main() -> Sequence[ServerTool]:
        server = FakeServer(tools=[ServerTool(name="t", description=description, parameters=parameters)])
        return await MaskedServer(server, Masks([SECRET])).list_tools(nothing)

    async def nothing() -> None:
        return None

    (tool,) = asyncio.run(main())
    return tool


def test_a_tools_schema_shows_no_secret_either() -> None:
    """A default is often what the server was given in its environment."""
    schema = {
        "type": "object",
        "properties": {
            "key": {"type": "string", "default": SECRET, "description": f"Bearer {SECRET}", "minLength": 2},
            "kind": {"enum": ["a", SECRET, None, 3]},
        },
        "required": ["key"],
    }
    tool = listed(schema, f"uses {SECRET}")
    (recorded,) = offer([tool]).tools
    assert SECRET not in recorded.parameters_json and recorded.description == "uses ***"
    assert tool.parameters == json.loads(json.dumps(schema).replace(SECRET, "***"))


def test_a_schema_that_nests_for_ever_costs_its_tool_alone() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(5000):
        deep = {"type": "array", "items": deep}
    found = offer([listed({"type": "object", "properties": {"a": deep}})])
    assert not found.tools and "tool 't' is left out" in found.warnings[0]
