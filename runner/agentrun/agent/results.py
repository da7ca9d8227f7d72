"""What a model is shown of a tool's result, and how it reads the rest.

Who calls: the loop's `tool_call` step, and the conversation. The rule: a result of up to
`shown_bytes` is told whole. Of a longer one the head (two thirds of the room) and the
tail are told, cut between characters, with a line between them that says which bytes are
left out; the whole is an attachment of the call's record. `read_result` pages through it.

What holds: all of this depends on the record alone, so that it is the same after every
replay; an agent reads results of its own calls and of nobody else's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agentrun.graph.types import NodeContext
from agentrun.models.base import ToolDefinition
from agentrun.proto import log_pb2
from agentrun.proto import transcript_pb2 as pb
from agentrun.spec.agent import READ_RESULT
from agentrun.tools import ArgumentsError, parse_arguments

WHOLE = "text/plain;part=whole"
"""The media type of a result's whole text, as an attachment."""

SHOWN_BYTES = 32 * 1024
"""Of one result, where the manifest says nothing."""

PAGE_BYTES = 8 * 1024
"""A page of `read_result`, where the model asks for no length."""

ASIDE_BYTES_MIN = 1024
"""A result that is no longer is never put aside: the line in its place would save little."""

MATCHES_MAX = 20
_AROUND_BYTES = 100
_ROOM_BYTES = 256  # for the line that says what is left out, or where a page lies

_CALL = re.compile(r"call-\d{1,9}-\d{1,9}")

DEFINITION = ToolDefinition(
    name=READ_RESULT,
    description=(
        "Reads more of an earlier tool result that was shown in part or put aside. The line that says so "
        "names it. Gives a page from a byte offset, or with find the places of a text."
    ),
    parameters={
        "type": "object",
        "properties": {
            "result": {"type": "string", "description": 'Name of the result, such as "call-3-0".'},
            "offset": {"type": "integer", "minimum": 0, "description": "Byte to begin at. Default 0."},
            "length": {"type": "integer", "minimum": 1, "description": "Most bytes to read."},
            "find": {"type": "string", "description": "Text to look for, exactly, from offset on."},
        },
        "required": ["result"],
    },
)


def shown(result: pb.ToolResult, name: str, shown_bytes: int) -> tuple[pb.ToolResult, list[log_pb2.Payload]]:
    """The result as the model is told it, and the whole as an attachment where that is less.

    `name`: of the call's node, by which `read_result` finds it."""
    if len(result.content) * 4 <= shown_bytes:
        return result, []
    data = result.content.encode()
    if len(data) <= shown_bytes:
        return result, []
    room = shown_bytes - _ROOM_BYTES
    head = _start(data, room * 2 // 3)
    tail = _start(data, len(data) - (room - head), forward=True)
    line = f"[cut: bytes {head} to {tail} of {len(data)} are left out; {_hint(name, head)} shows them]"
    content = f"{data[:head].decode()}\n{line}\n{data[tail:].decode()}"
    return _retold(result, content, len(data)), [log_pb2.Payload(inline=data, media_type=WHOLE)]


def put_aside(result: pb.ToolResult, name: str) -> pb.ToolResult:
    """An old result as one line; itself where that would save nothing."""
    if len(result.content) <= ASIDE_BYTES_MIN:
        return result
    size = result.whole_bytes or len(result.content.encode())
    content = f"[a result of {size} bytes was here; {_hint(name, 0)} shows it]"
    return _retold(result, content, size)


async def read_result(node: NodeContext, arguments: str, shown_bytes: int) -> tuple[str, bool]:
    """What the built-in tool answers, and whether it could: never longer than `shown_bytes`."""
    try:
        given = parse_arguments(arguments)
        unknown = sorted(set(given) - set(DEFINITION.parameters["properties"]))
        if unknown:
            raise ArgumentsError(f"there is no argument {unknown[0][:60]!r}")
        name = given.get("result")
        if not isinstance(name, str) or not _CALL.fullmatch(name) or not node.is_done(name):
            raise ArgumentsError(f"there is no result {str(name)[:60]!r}; the line that left it out names it")
        offset, length = _count(given, "offset", 0), _count(given, "length", PAGE_BYTES)
        find = given.get("find")
        if find is not None and (not isinstance(find, str) or not find):
            raise ArgumentsError("find must be a text that is not empty")
    except ArgumentsError as error:
        return f"Invalid arguments: {error}", False
    data = await node.attachment(name, WHOLE)
    if data is None:
        data = pb.ToolResult.FromString(await node.output(name)).content.encode()
    room = shown_bytes - _ROOM_BYTES
    if find is not None:
        return _matches(data, name, find, offset, room), True
    return _page(data, name, offset, max(4, min(length, room))), True


def _page(data: bytes, name: str, offset: int, length: int) -> str:
    start = _start(data, offset)
    end = _start(data, start + length)
    onward = f"; the next page begins at {end}" if end < len(data) else "; this is the end"
    return f"[{name}: bytes {start} to {end} of {len(data)}{onward}]\n{data[start:end].decode()}"


def _matches(data: bytes, name: str, find: str, offset: int, room: int) -> str:
    """Each place of the text with what stands around it, a line each."""
    needle = find.encode()
    lines: list[str] = []
    size, at, onward = 0, data.find(needle, offset), ""
    while at >= 0:
        end = _start(data, at + min(len(needle), _AROUND_BYTES) + _AROUND_BYTES)
        around = data[_start(data, max(0, at - _AROUND_BYTES), forward=True) : end].decode()
        line = f"{at}: …{' '.join(around.split())}…"
        size += len(line.encode()) + 1
        if len(lines) == MATCHES_MAX or size > room:
            onward = f"; go on with offset {at}"
            break
        lines.append(line)
        at = data.find(needle, at + len(needle))
    count = f"{len(lines)} places" if len(lines) != 1 else "1 place"
    return "\n".join([f"[{name}: {count} from byte {offset} of {len(data)} on{onward}]", *lines])


def _retold(result: pb.ToolResult, content: str, whole_bytes: int) -> pb.ToolResult:
    told = pb.ToolResult()
    told.CopyFrom(result)
    told.content, told.whole_bytes = content, whole_bytes
    return told


def _count(given: Mapping[str, Any], name: str, unset: int) -> int:
    value = given.get(name)
    if value is None:
        return unset
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
        value = int(value)  # models write numbers so
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ArgumentsError(f"{name} must be a whole number from 0 on")
    return value


def _start(data: bytes, at: int, *, forward: bool = False) -> int:
    """The nearest place at or before `at` (or behind it) that does not lie within a character."""
    at = max(0, min(at, len(data)))
    while 0 < at < len(data) and data[at] & 0xC0 == 0x80:
        at += 1 if forward else -1
    return at


def _hint(name: str, offset: int) -> str:
    return f'{READ_RESULT}(result="{name}", offset={offset})' if offset else f'{READ_RESULT}(result="{name}")'
