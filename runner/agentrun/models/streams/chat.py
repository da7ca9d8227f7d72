"""Chunks of OpenAI's chat completions, and of the many servers that imitate them.

The end marker is a finish_reason or `[DONE]`: each is missing from some servers. What
servers disagree in: calls without an index, or all with the same one; an id and a name
that are repeated in each piece; usage with the last content, or alone behind it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from agentrun.models.base import Delta
from agentrun.models.wire.rawjson import BadAnswer, parse, raw
from agentrun.models.wire.values import as_dict, as_list

_REASONING = ("reasoning_content", "reasoning")
_DETAILS = "reasoning_details"
_HEAD = ("id", "model", "created", "object")


class _Call:
    """One call, as far as it has come."""

    def __init__(self, index: Any) -> None:
        self.index = index if isinstance(index, int) else None
        self.wire: dict[str, Any] = {}
        self.kind = "function"
        self.name = ""
        self.arguments: list[str] = []

    def json(self) -> dict[str, Any]:
        key = "input" if self.kind == "custom" else "arguments"
        function = {"name": self.name, key: "".join(self.arguments)}
        return {**self.wire, self.kind: function}


class ChatStream:
    """An assembler."""

    def __init__(self) -> None:
        self.whole = self.begun = False
        self._head: dict[str, Any] = {}
        self._seen_choice = False
        self._content: list[str] = []
        self._pieces: list[Any] = []
        self._texts: dict[str, list[str]] = {}
        self._details: list[Any] = []
        self._calls: list[_Call] = []
        self._legacy: _Call | None = None
        self._finish: Any = None
        self._usage: dict[str, Any] | None = None

    def feed(self, text: str, event: Mapping[str, Any]) -> Iterable[Delta]:
        for key in _HEAD:
            if event.get(key) is not None:
                self._head.setdefault(key, event[key])
        own = as_dict(event.get("x_groq")).get("usage")
        for usage in (own, event.get("usage")):
            if isinstance(usage, dict) and usage:
                self._usage = usage
        choices = as_list(event.get("choices"))
        choice = as_dict(choices[0]) if choices else {}
        if not choice or choice.get("index") not in (0, None):
            return []
        self.begun = self._seen_choice = True
        if isinstance(choice.get("finish_reason"), str):
            self._finish = choice["finish_reason"]
            self.whole = True
        key = "delta" if isinstance(choice.get("delta"), dict) else "message"
        return list(self._delta(text, as_dict(choice.get(key)), ("choices", 0, key)))

    def done(self) -> Iterable[Delta]:
        self.whole = self.whole or self._seen_choice
        return []

    def _delta(self, text: str, delta: Mapping[str, Any], path: tuple[str | int, ...]) -> Iterator[Delta]:
        for field in (*_REASONING, "refusal"):
            piece = delta.get(field)
            if isinstance(piece, str) and piece:
                self._texts.setdefault(field, []).append(piece)
        thought = next((delta[field] for field in _REASONING if isinstance(delta.get(field), str)), "")
        if thought:
            yield Delta(kind="thinking", text=thought)
        self._details = _merged_details(self._details, as_list(delta.get(_DETAILS)))
        content = delta.get("content")
        if isinstance(content, list):
            self._pieces.extend(content)
            yield from (Delta(kind="text", text=str(as_dict(piece).get("text") or "")) for piece in content)
        elif isinstance(content, str) and content:
            self._content.append(content)
            yield Delta(kind="text", text=content)
        if isinstance(delta.get("refusal"), str) and delta["refusal"]:
            yield Delta(kind="text", text=delta["refusal"])
        for place, piece in enumerate(as_list(delta.get("tool_calls"))):
            if isinstance(piece, dict):
                yield from self._call(text, piece, (*path, "tool_calls", place))
        if isinstance(delta.get("function_call"), dict):
            self._legacy = self._legacy or _Call(None)
            self._function(text, self._legacy, delta["function_call"], (*path, "function_call"))

    def _call(self, text: str, piece: dict[str, Any], path: tuple[str | int, ...]) -> Iterator[Delta]:
        custom = "function" not in piece and isinstance(piece.get("custom"), dict)
        kind = "custom" if custom else "function"
        function = as_dict(piece.get(kind))
        call, new = self._slot(piece, function)
        call.kind = kind if function else call.kind
        for key, value in piece.items():
            if key not in ("index", "function", "custom") and value not in (None, "", [], {}):
                call.wire[key] = value
        self._function(text, call, function, (*path, kind))
        if new:
            yield Delta(kind="call", text=call.name)

    def _slot(self, piece: Mapping[str, Any], function: Mapping[str, Any]) -> tuple[_Call, bool]:
        """The call that a piece belongs to, and whether it is a new one."""
        index = piece.get("index")
        known = [call for call in self._calls if index is None or call.index == index]
        if known and not _is_next(known[-1], piece, function.get("name")):
            return known[-1], False
        call = _Call(index)
        self._calls.append(call)
        return call, True

    def _function(
        self, text: str, call: _Call, function: Mapping[str, Any], path: tuple[str | int, ...]
    ) -> None:
        name = function.get("name")
        if isinstance(name, str) and name != call.name:
            call.name += name
        key = "input" if call.kind == "custom" else "arguments"
        written = function.get(key)
        if isinstance(written, str):
            call.arguments.append(written)
        elif written is not None:  # some servers send the object itself
            call.arguments.append(raw(text, *path, key) or "")

    def body(self) -> str:
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._content) or None}
        if self._pieces:
            message["content"] = [*self._pieces, *({"text": piece} for piece in self._content)]
        message.update({field: "".join(pieces) for field, pieces in self._texts.items()})
        if self._details:
            message[_DETAILS] = self._details
        if self._calls:
            ordered = sorted(self._calls, key=lambda call: -1 if call.index is None else call.index)
            message["tool_calls"] = [call.json() for call in ordered]
        if self._legacy is not None:
            message["function_call"] = self._legacy.json()["function"]
        choice = {"index": 0, "finish_reason": self._finish, "message": message}
        choices = [choice] if self._seen_choice else []
        return json.dumps({**self._head, "choices": choices, "usage": self._usage})


def _is_next(last: _Call, piece: Mapping[str, Any], name: Any) -> bool:
    """The piece begins another call than `last`, though it may have the same index, or none."""
    if not name:
        return False  # what only adds to a call has no name
    wire_id, last_id = piece.get("id"), last.wire.get("id")
    if wire_id and last_id and wire_id != last_id:
        return True
    if piece.get("index") is None and name != last.name:
        return True
    # Some repeat the name in each piece; none goes on behind arguments that are complete.
    return _is_object("".join(last.arguments))


def _is_object(text: str) -> bool:
    try:
        return isinstance(parse(text), dict)
    except BadAnswer:
        return False


def _merged_details(known: list[Any], more: list[Any]) -> list[Any]:
    """Pieces of one entry have its index and type; their texts belong together."""
    for piece in more:
        last = known[-1] if known else None
        if not (isinstance(piece, dict) and isinstance(last, dict) and _same_detail(last, piece)):
            known.append(dict(piece) if isinstance(piece, dict) else piece)
            continue
        for key, value in piece.items():
            before = last.get(key)
            joins = key in ("text", "summary", "data") and isinstance(before, str) and isinstance(value, str)
            if value is not None:
                last[key] = before + value if joins else value
    return known


def _same_detail(last: dict[str, Any], piece: dict[str, Any]) -> bool:
    return all(piece.get(key) == last.get(key) for key in ("index", "type")) and (
        piece.get("id") in (None, last.get("id"))
    )
