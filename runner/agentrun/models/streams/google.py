"""Chunks of Google's streamGenerateContent: each is an answer with some more parts.

The end marker is a finishReason, or a prompt that was blocked. Pieces of one text
become one part again; a part with a signature, a call or a block stays as it came.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from agentrun.models.base import Delta
from agentrun.models.wire.rawjson import raw
from agentrun.models.wire.values import as_dict, as_list

_PLAIN = {"text", "thought"}
_HEAD = ("modelVersion", "responseId", "promptFeedback")


class GoogleStream:
    """An assembler."""

    def __init__(self) -> None:
        self.whole = self.begun = False
        self._head: dict[str, Any] = {}
        self._candidate: dict[str, Any] = {}
        self._parts: list[str | dict[str, Any]] = []
        self._usage: dict[str, Any] = {}

    def feed(self, text: str, event: Mapping[str, Any]) -> Iterable[Delta]:
        self._head |= {key: event[key] for key in _HEAD if event.get(key) is not None}
        self._usage |= {k: v for k, v in as_dict(event.get("usageMetadata")).items() if v is not None}
        if as_dict(event.get("promptFeedback")).get("blockReason"):
            self.whole = True
        candidates = as_list(event.get("candidates"))
        candidate = as_dict(candidates[0]) if candidates else {}
        if not candidate:
            return []
        self.begun = True
        self._candidate |= {k: v for k, v in candidate.items() if k != "content" and v is not None}
        self.whole = self.whole or bool(candidate.get("finishReason"))
        parts = as_list(as_dict(candidate.get("content")).get("parts"))
        return [
            delta
            for place, part in enumerate(parts)
            if isinstance(part, dict)
            for delta in self._part(text, part, ("candidates", 0, "content", "parts", place))
        ]

    def done(self) -> Iterable[Delta]:
        return []

    def _part(self, text: str, part: dict[str, Any], path: tuple[str | int, ...]) -> Iterator[Delta]:
        said = part.get("text")
        if isinstance(said, str) and said:
            yield Delta(kind="thinking" if part.get("thought") else "text", text=said)
        call = part.get("functionCall")
        if isinstance(call, dict):
            yield Delta(kind="call", text=str(call.get("name") or ""))
        last = self._parts[-1] if self._parts else None
        if not (isinstance(said, str) and set(part) <= _PLAIN):
            self._parts.append(raw(text, *path) or "{}")
        elif isinstance(last, dict) and bool(last.get("thought")) == bool(part.get("thought")):
            last["text"] += said
        else:
            self._parts.append(dict(part))

    def body(self) -> str:
        head = {**self._head, "usageMetadata": self._usage}
        if not self.begun:
            return json.dumps(head)
        parts = ",".join(part if isinstance(part, str) else json.dumps(part) for part in self._parts)
        content = f'{{"role":"model","parts":[{parts}]}}'
        rest = json.dumps(self._candidate)
        candidate = f'{rest[:-1]}{"," if self._candidate else ""}"content":{content}}}'
        return f'{json.dumps(head)[:-1]},"candidates":[{candidate}]}}'
