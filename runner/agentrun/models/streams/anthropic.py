"""Events of Anthropic's messages: blocks that are opened, added to and closed.

The end marker is message_stop. A block that our schema does not know goes on as the
server wrote it, word for word.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from agentrun.models.base import Delta
from agentrun.models.wire.rawjson import BadAnswer, parse, raw
from agentrun.models.wire.usage import count
from agentrun.models.wire.values import as_dict

_READ = ("text", "thinking", "redacted_thinking", "tool_use")
"""Blocks that the dialect reads; the others it keeps as they are."""
_SHOWN = {"text_delta": ("text", "text"), "thinking_delta": ("thinking", "thinking")}


class _Block:
    """One block. `text` is what the server opened it with."""

    def __init__(self, text: str, block: Mapping[str, Any]) -> None:
        self._text = text
        self._block = dict(block)
        self._inputs: list[str] = []
        self._changed = False

    def add(self, delta: Mapping[str, Any]) -> None:
        if isinstance(delta.get("partial_json"), str):
            self._inputs.append(delta["partial_json"])
            return
        for key, value in delta.items():
            if key == "type" or value is None:
                continue
            self._changed = True
            before = self._block.get(key)
            if key == "citation":
                self._block["citations"] = [*(self._block.get("citations") or ()), value]
            elif isinstance(before, str) and isinstance(value, str):
                self._block[key] = before + value
            else:
                self._block[key] = value

    def json(self) -> str:
        written = "".join(self._inputs)
        if self._block.get("type") == "tool_use" and written:
            # As a string: what the model wrote need not be JSON, and stays byte for byte.
            return json.dumps({**self._block, "input": written})
        if written and _is_json(written):
            head = json.dumps({key: value for key, value in self._block.items() if key != "input"})
            return f'{head[:-1]},"input":{written}}}'
        if self._changed or self._block.get("type") in _READ:
            return self._own_json()
        return self._text

    def _own_json(self) -> str:
        given = raw(self._text, "input") if "input" in self._block else None
        if given is None:
            return json.dumps(self._block)
        head = json.dumps({key: value for key, value in self._block.items() if key != "input"})
        return f'{head[:-1]},"input":{given}}}'


class AnthropicStream:
    """An assembler."""

    def __init__(self) -> None:
        self.whole = self.begun = False
        self._message: dict[str, Any] = {}
        self._blocks: dict[Any, _Block] = {}
        self._usage: dict[str, Any] = {}

    def feed(self, text: str, event: Mapping[str, Any]) -> Iterable[Delta]:
        kind = event.get("type")
        if kind == "message_start" and not self.begun:
            self.begun = True
            self._message = as_dict(event.get("message"))
            self._add_usage(self._message.get("usage"))
        elif kind == "content_block_start":
            block = as_dict(event.get("content_block"))
            self._blocks[event.get("index")] = _Block(raw(text, "content_block") or "{}", block)
            if block.get("type") == "tool_use":
                return [Delta(kind="call", text=str(block.get("name") or ""))]
            return _shown("text", block.get("text")) + _shown("thinking", block.get("thinking"))
        elif kind == "content_block_delta":
            return self._delta(event)
        elif kind == "message_delta":
            self._message |= {k: v for k, v in as_dict(event.get("delta")).items() if v is not None}
            self._add_usage(event.get("usage"))
        elif kind == "message_stop":
            self.whole = self.begun
        return []

    def done(self) -> Iterable[Delta]:
        return []

    def _delta(self, event: Mapping[str, Any]) -> list[Delta]:
        delta = as_dict(event.get("delta"))
        block = self._blocks.get(event.get("index"))
        if block is None:
            raise BadAnswer("a piece of a block that was never opened")
        block.add(delta)
        kind, key = _SHOWN.get(str(delta.get("type")), ("", ""))
        return _shown(kind, delta.get(key)) if kind else []

    def _add_usage(self, usage: Any) -> None:
        """Later figures are sums, not additions; a 0 in them may only mean that they are not told."""
        for key, value in as_dict(usage).items():
            known, told = count(self._usage.get(key)), count(value)
            if value is not None and (known is None or told is None or told >= known):
                self._usage[key] = value

    def body(self) -> str:
        rest = {key: value for key, value in self._message.items() if key not in ("content", "usage")}
        if not self.begun:
            return json.dumps(rest)
        head = json.dumps({**rest, "usage": self._usage})
        blocks = ",".join(block.json() for block in self._blocks.values())
        return f'{head[:-1]},"content":[{blocks}]}}'


def _shown(kind: str, text: Any) -> list[Delta]:
    return [Delta(kind=kind, text=text)] if isinstance(text, str) and text else []


def _is_json(text: str) -> bool:
    try:
        parse(text)
    except BadAnswer:
        return False
    return True
