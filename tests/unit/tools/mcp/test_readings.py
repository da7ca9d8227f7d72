"""What servers say, of whatever form: lists of tools, hints, results."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from agentrun.log.masks import Masks
from agentrun.tools import Effect
from agentrun.tools.mcp.listing import cursor_of, effect_of, tools_of
from agentrun.tools.mcp.results import ATTACHMENTS_MAX, TEXT_BYTES_MAX, output_of

READ_ONLY, IDEMPOTENT, UNSAFE = Effect.READ_ONLY, Effect.IDEMPOTENT, Effect.UNSAFE

HINTS: list[tuple[Any, Effect]] = [
    (None, UNSAFE),
    ({}, UNSAFE),
    ("yes", UNSAFE),
    ({"readOnlyHint": True}, READ_ONLY),
    ({"readOnlyHint": True, "idempotentHint": False, "openWorldHint": True}, READ_ONLY),
    ({"readOnlyHint": True, "destructiveHint": False}, READ_ONLY),
    ({"readOnlyHint": True, "destructiveHint": True}, UNSAFE),
    ({"readOnlyHint": "true"}, UNSAFE),
    ({"readOnlyHint": 1}, UNSAFE),
    ({"readOnlyHint": False}, UNSAFE),
    ({"idempotentHint": True}, IDEMPOTENT),
    ({"idempotentHint": True, "destructiveHint": True}, IDEMPOTENT),
    ({"destructiveHint": False}, UNSAFE),
    ({"readOnlyHint": None, "idempotentHint": None}, UNSAFE),
]


@pytest.mark.parametrize(("annotations", "effect"), HINTS)
def test_a_tools_hints_and_its_effect(annotations: Any, effect: Effect) -> None:
    assert effect_of(annotations) is effect


PAGES: list[tuple[Any, list[str]]] = [
    ({}, []),
    ({"tools": None}, []),
    ({"tools": "x"}, []),
    ({"tools": [None, 1, "x", {}, {"name": None}, {"name": 5}, {"name": "good"}]}, ["good"]),
    ({"tools": [{"name": "a", "outputSchema": {"x": 1}, "annotations": 5, "icons": "?"}]}, ["a"]),
    ({"tools": [{"name": "a", "inputSchema": []}, {"name": "b"}]}, ["a", "b"]),
]


@pytest.mark.parametrize(("page", "names"), PAGES)
def test_an_odd_tool_costs_itself_and_no_other(page: Any, names: list[str]) -> None:
    assert [tool.name for tool in tools_of(page, Masks())] == names


def test_a_tool_is_described_by_its_description_or_its_title() -> None:
    page = {"tools": [{"name": "a", "description": "D", "title": "T"}, {"name": "b", "title": "T"}]}
    assert [tool.description for tool in tools_of(page, Masks())] == ["D", "T"]


@pytest.mark.parametrize(("cursor", "found"), [("x", "x"), ("", None), (None, None), (5, None)])
def test_a_cursor_is_a_text(cursor: Any, found: str | None) -> None:
    assert cursor_of({"nextCursor": cursor}) == found


PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
B64 = base64.b64encode(PNG).decode()


def texts(*said: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text} for text in said]


TOLD: dict[str, tuple[dict[str, Any], str]] = {
    "a text": ({"content": texts("hello")}, "hello"),
    "texts": ({"content": texts("a", "b")}, "a\nb"),
    "nothing": ({}, ""),
    "no content": ({"content": None}, ""),
    "structured only": ({"structuredContent": {"a": 1}}, '{"a": 1}'),
    "structured and the same as text": (
        {"content": texts('{"a":1}'), "structuredContent": {"a": 1}},
        '{"a":1}',
    ),
    "structured around the text": (
        {"content": texts("7 sheep"), "structuredContent": {"result": "7 sheep"}},
        "7 sheep",
    ),
    "structured around a text under another name": (
        {"content": texts("a file\n"), "structuredContent": {"content": "a file\n"}},
        "a file\n",
    ),
    "structured around the text and more": (
        {"content": texts("7 sheep"), "structuredContent": {"result": "7 sheep", "at": "noon"}},
        '7 sheep\n{"result": "7 sheep", "at": "noon"}',
    ),
    "structured around a number": ({"content": texts("7"), "structuredContent": {"result": 7}}, "7"),
    "structured and another text": (
        {"content": texts("see below"), "structuredContent": {"a": 1}},
        'see below\n{"a": 1}',
    ),
    "an image": (
        {"content": [{"type": "image", "data": B64, "mimeType": "image/png"}]},
        "[image: image/png, 28 bytes]",
    ),
    "audio": (
        {"content": [{"type": "audio", "data": B64, "mimeType": "audio/wav"}]},
        "[audio: audio/wav, 28 bytes]",
    ),
    "an image of an odd type": (
        {"content": [{"type": "image", "data": B64, "mimeType": "x\ny"}]},
        "[image: application/octet-stream, 28 bytes]",
    ),
    "a media type with parameters": (
        {"content": [{"type": "image", "data": B64, "mimeType": "text/plain;part=whole"}]},
        "[image: text/plain, 28 bytes]",
    ),
    "an image whose data is none": (
        {"content": [{"type": "image", "data": "%%%", "mimeType": "image/png"}]},
        "[image: its data cannot be read]",
    ),
    "an image without data": ({"content": [{"type": "image"}]}, "[image: its data cannot be read]"),
    "a resource of text": (
        {"content": [{"type": "resource", "resource": {"uri": "file:///a", "text": "in it"}}]},
        "[resource file:///a]\nin it",
    ),
    "a resource of bytes": (
        {
            "content": [
                {
                    "type": "resource",
                    "resource": {"uri": "file:///a", "blob": B64, "mimeType": "application/pdf"},
                }
            ]
        },
        "[resource file:///a: application/pdf, 28 bytes]",
    ),
    "a link": (
        {"content": [{"type": "resource_link", "uri": "file:///a", "name": "a", "mimeType": "text/csv"}]},
        "[link to a resource: file:///a, a, text/csv]",
    ),
    "odd blocks": (
        {"content": [None, 5, {"type": "hologram"}, {"type": "text"}, *texts("but this")]},
        "[a block of the unknown type 'None']\n[a block of the unknown type 'None']\n"
        "[a block of the unknown type 'hologram']\n[a block of the unknown type 'text']\nbut this",
    ),
}


@pytest.mark.parametrize("name", TOLD)
def test_a_result_and_what_a_model_is_told(name: str) -> None:
    given, told = TOLD[name]
    output = output_of(given, Masks())
    assert (output.content, output.is_error) == (told, False)
    assert B64 not in output.content
    assert all(payload.inline == PNG for payload in output.attachments)
    assert len(output.attachments) == told.count("28 bytes")


def test_a_result_that_says_it_is_an_error_is_one() -> None:
    output = output_of({"content": texts("no such file"), "isError": True}, Masks())
    assert (output.content, output.is_error) == ("no such file", True)


def test_a_server_that_asks_for_more_input_gets_none() -> None:
    output = output_of({"resultType": "input_required", "inputRequests": {}}, Masks())
    assert output.is_error
    assert "asks for more input" in output.content


def test_a_long_text_of_a_resource_is_attached() -> None:
    resource = {"uri": "file:///a", "text": "x" * (TEXT_BYTES_MAX + 1)}
    output = output_of({"content": [{"type": "resource", "resource": resource}]}, Masks())
    assert output.content == f"[resource file:///a: text/plain, {TEXT_BYTES_MAX + 1} bytes]"
    assert len(output.attachments[0].inline) == TEXT_BYTES_MAX + 1


def test_what_is_too_much_is_described_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentrun.tools.mcp.results.ATTACHMENTS_BYTES_MAX", 60)
    image = {"type": "image", "data": B64, "mimeType": "image/png"}
    output = output_of({"content": [image] * 3}, Masks())
    assert output.content.splitlines()[2] == "[image: image/png, 28 bytes, too large to be kept]"
    assert len(output.attachments) == 2
    monkeypatch.undo()
    assert len(output_of({"content": [image] * 100}, Masks()).attachments) == ATTACHMENTS_MAX


def test_secrets_are_taken_out_of_structured_results() -> None:
    output = output_of({"structuredContent": {"token": "abcdefgh"}}, Masks(["abcdefgh"]))
    assert json.loads(output.content) == {"token": "***"}
