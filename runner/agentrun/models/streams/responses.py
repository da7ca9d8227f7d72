"""Events of OpenAI's responses: the last of them holds the whole response.

The end marker is response.completed, .incomplete or .failed. Servers that leave the
output out of it have sent each item when it was done.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from agentrun.models.base import Delta
from agentrun.models.wire.rawjson import raw
from agentrun.models.wire.values import as_dict, as_list

_ENDS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")
_SHOWN = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "text",
    "response.reasoning_summary_text.delta": "thinking",
    "response.reasoning_text.delta": "thinking",
}


class ResponsesStream:
    """An assembler."""

    def __init__(self) -> None:
        self.whole = self.begun = False
        self._response: dict[str, Any] = {}
        self._text = ""
        self._items: dict[Any, str] = {}

    def feed(self, text: str, event: Mapping[str, Any]) -> Iterable[Delta]:
        kind = str(event.get("type"))
        if isinstance(event.get("response"), dict):
            self.begun = True
            self._response = event["response"]
            self._text = raw(text, "response") or "{}"
        if kind in _ENDS:
            self.whole = self.begun
        elif kind == "response.output_item.done" and isinstance(event.get("item"), dict):
            self.begun = True
            self._items[event.get("output_index")] = raw(text, "item") or "{}"
        elif kind == "response.output_item.added":
            item = as_dict(event.get("item"))
            if item.get("type") == "function_call":
                return [Delta(kind="call", text=str(item.get("name") or ""))]
        elif kind in _SHOWN and isinstance(event.get("delta"), str):
            self.begun = True
            return [Delta(kind=_SHOWN[kind], text=event["delta"])]
        return []

    def done(self) -> Iterable[Delta]:
        return []

    def body(self) -> str:
        if self.whole and (as_list(self._response.get("output")) or not self._items):
            return self._text
        head = json.dumps({key: value for key, value in self._response.items() if key != "output"})
        items = ",".join(self._items.values())
        return f'{head[:-1]}{"," if len(head) > 2 else ""}"output":[{items}]}}'
