"""What the strictest of real providers refuse in a conversation.

For `StubModel(strict=True)`. Each rule stands for a server that answers 400 to
it, so that a conversation that passes is accepted anywhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}").fullmatch


def problems(path: str, body: Mapping[str, Any], before: Mapping[str, Any] | None) -> list[str]:
    """Why `body` is refused; empty when it is not. `before` is the body of the request before."""
    found: list[str] = []
    if path.endswith("/chat/completions"):
        found += _chat(body)
    elif "/messages" in path:
        found += _anthropic(body)
    if before is not None and _tools(before) != _tools(body):
        found.append("the tools changed, or their order")
    return found


def _tools(body: Mapping[str, Any]) -> list[Any]:
    return list(body.get("tools") or [])


def _chat(body: Mapping[str, Any]) -> Iterator[str]:
    seen: set[str] = set()
    waiting: list[str] = []
    for place, message in enumerate(body.get("messages") or []):
        where = f"message {place}"
        if message.get("role") == "tool":
            if message.get("tool_call_id") not in waiting:
                yield f"{where}: a result without its call"
            else:
                waiting.remove(message["tool_call_id"])
        elif waiting:
            yield f"{where}: calls without a result: {waiting}"
            waiting = []
        yield from (f"{where}: {problem}" for problem in _content(message))
        for call in message.get("tool_calls") or []:
            yield from (f"{where}: {problem}" for problem in _call(call, seen))
            waiting.append(call.get("id"))
    if waiting:
        yield f"calls without a result at the end: {waiting}"


def _content(message: Mapping[str, Any]) -> Iterator[str]:
    if "content" not in message:
        yield "no content key"
    elif message["content"] is None:
        if not message.get("tool_calls"):
            yield "content is null and there are no tool calls"
    elif not str(message["content"]).strip():
        yield "content is empty"
    if "tool_calls" in message and not message["tool_calls"]:
        yield "an empty list of tool calls"


def _call(call: Mapping[str, Any], seen: set[str]) -> Iterator[str]:
    wire_id, function = call.get("id") or "", call.get("function") or {}
    if not _ID(wire_id):
        yield f"a call with the id {wire_id!r}"
    if wire_id in seen:
        yield f"the id {wire_id!r} twice"
    seen.add(wire_id)
    if not _ID(function.get("name") or ""):
        yield f"a call of {function.get('name')!r}"
    try:
        if not isinstance(json.loads(function.get("arguments") or ""), dict):
            yield "arguments that are no object"
    except ValueError:
        yield "arguments that are not JSON"


def _anthropic(body: Mapping[str, Any]) -> Iterator[str]:
    seen: set[str] = set()
    waiting: list[str] = []
    messages = body.get("messages") or []
    for place, message in enumerate(messages):
        blocks = message["content"]
        if isinstance(blocks, str):
            blocks = [{"type": "text", "text": blocks}]
        if not blocks:
            yield f"message {place}: no content"
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if results != waiting:
            yield f"message {place}: results {results} for the calls {waiting}"
        waiting = []
        for block in blocks:
            if block["type"] == "text" and not block["text"].strip():
                yield f"message {place}: an empty text block"
            if block["type"] == "tool_use":
                if not _ID(block["id"]) or block["id"] in seen or not isinstance(block["input"], dict):
                    yield f"message {place}: a bad tool_use {block}"
                seen.add(block["id"])
                waiting.append(block["id"])
    if waiting:
        yield f"calls without a result at the end: {waiting}"
