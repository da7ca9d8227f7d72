"""Tools of servers, however odd, make a request that each provider's strictest reader takes."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from agentrun.models.base import ModelRequest, ToolDefinition
from agentrun.proto import transcript_pb2 as pb
from agentrun.tools.base import ServerTool
from agentrun.tools.names import told_names
from agentrun.tools.offer import offer
from tests.support.stub_model import StubModel
from tests.unit.models.conversations import MODELS, built, said

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
STRING = {"type": "string"}
NODE = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}, "value": STRING}}

SCHEMAS: list[Any] = [
    None,
    {},
    {"type": "object"},
    {"type": "object", "additionalProperties": {}},
    {"type": "object", "properties": {"a": STRING}, "required": None},
    {"oneOf": [{"properties": {"a": STRING}, "required": ["a"]}, {"properties": {"b": STRING}}]},
    {"type": "object", "properties": {"node": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": NODE}},
    {"$ref": "#/$defs/Node", "$defs": {"Node": NODE}},
    {"type": "object", "properties": {"a": {"type": ["string", "null"]}}},
    {"type": "object", "properties": {"a": {"type": "array"}}},
    {"type": "object", "properties": {"type": STRING, "$schema": STRING, "a.b": STRING}},
    {"type": "object", "properties": {"a": {"enum": [1, "x", None]}}},
    {"type": "object", "properties": {"a": {"type": "object", "additionalProperties": {"type": "object"}}}},
    {"type": "object", "properties": {"a": {"anyOf": [{"type": "object"}, {"type": "null"}]}}},
    {"type": "string"},
    [],
]
NAMES = [
    "calendar.respondToEvent",
    "user-profile/update",
    "Create CIFS Share",
    "x" * 90,
    "🙂",
    "a.b",
    "a_b",
    "look",
    *(f"tool-{n}" for n in range(120)),
]


def definitions() -> list[ToolDefinition]:
    """Two servers with the same tools of odd names and schemas, beside a tool of the manifest's."""
    listed = [
        ServerTool(
            name=name, description="x" * 60_000 if n == 3 else "d", parameters=SCHEMAS[n % len(SCHEMAS)]
        )
        for n, name in enumerate(NAMES)
    ]
    found = offer(listed)
    told = told_names(
        {"one": [t.label for t in found.tools], "two": [t.label for t in found.tools]}, ["look"]
    )
    return [
        ToolDefinition(
            name=told[server, tool.label],
            description=tool.description,
            parameters=json.loads(tool.parameters_json),
        )
        for server in ("one", "two")
        for tool in found.tools
    ]


def sent(body: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Name and schema of each tool, in whichever form the provider has them."""
    for tool in body["tools"]:
        if "functionDeclarations" in tool:
            for function in tool["functionDeclarations"]:
                yield function["name"], function.get("parameters_json_schema")
        else:
            function = tool.get("function", tool)
            yield function["name"], function.get("parameters") or function.get("input_schema")


def objects(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        if schema.get("type") in ("object", "OBJECT"):
            yield schema
        for item in schema.values():
            yield from objects(item)
    elif isinstance(schema, list):
        for item in schema:
            yield from objects(item)


@pytest.mark.parametrize("provider", MODELS)
def test_no_tool_of_a_server_makes_a_request_fail(provider: str) -> None:
    tools = definitions()

    async def main() -> None:
        model = built(provider, stub)
        try:
            message = pb.UserMessage(text="go")
            await model.request(ModelRequest(instructions="Be brief.", messages=[message], tools=tools))
        finally:
            await model.close()

    with StubModel([said(provider, "hello")]) as stub:
        asyncio.run(main())
    found = list(sent(stub.requests[0].body))
    assert [name for name, _ in found] == [tool.name for tool in tools]
    assert len({name for name, _ in found}) == len(found) == 2 * (len(NAMES) - 16)
    for name, schema in found:
        assert NAME.fullmatch(name)
        for part in objects(schema):
            assert isinstance(part.get("properties"), dict), (name, schema)
        assert not {"oneOf", "anyOf", "allOf", "not", "enum", "$ref"} & set(schema), (name, schema)
