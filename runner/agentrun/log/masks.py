"""Takes known secrets out of what came from somewhere else, before it is kept or told.

Who calls: the agent layer on every answer of a model and a tool, and whatever writes lines
for people. What holds: of a secret that is known, neither the value nor a form of it that
servers commonly echo (in JSON, in a URL, in base64) gets past `text`. Values that are
shorter than `characters_min` are not looked for: they stand in every other word.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus

if TYPE_CHECKING:
    from google.protobuf.message import Message

MASK = "***"
_CUT = "\n[cut: "
"""How a text goes on that `agentrun.tools` has cut."""

ANSWER_CHARACTERS_MIN = 8
"""In answers, which a shorter value would change where nobody has quoted it."""

LINE_CHARACTERS_MIN = 16
"""A line of a value that has several is looked for by itself from this length on."""


class Masks:
    """Knows the secrets of one process or run. More may be added; none is taken away."""

    def __init__(self, values: Iterable[str] = (), *, characters_min: int = ANSWER_CHARACTERS_MIN) -> None:
        self._characters_min = characters_min
        self._needles: list[str] = []
        self._data: list[bytes] = []
        self.add(values)

    def add(self, values: Iterable[str]) -> None:
        """These are secrets from now on; the longest forms are looked for first."""
        forms = {
            form
            for value in values
            for part in _parts(value)
            if len(part) >= self._characters_min
            for form in _forms(part)
        }
        self._needles = sorted(forms.union(self._needles), key=lambda form: (-len(form), form))
        self._data = [needle.encode("utf-8", "replace") for needle in self._needles]

    def text(self, text: str) -> str:
        """Without secrets, also without the beginning of one at a place where it was cut."""
        for needle in self._needles:
            if needle in text:
                text = text.replace(needle, MASK)
            if text.endswith("…") or _CUT in text:
                text = self._without_beginning(text, needle)
        return text

    def _without_beginning(self, text: str, needle: str) -> str:
        for mark in ("…", _CUT):
            head, found, tail = text.rpartition(mark)
            lengths = range(min(len(needle) - 1, len(head)), self._characters_min - 1, -1)
            length = next((n for n in lengths if found and head.endswith(needle[:n])), 0)
            if length:
                text = head[:-length] + MASK + found + tail
        return text

    def beginning(self, text: str) -> int:
        """How many characters at the end of a text may be the beginning of a secret."""
        return max((_overlap(text, needle) for needle in self._needles), default=0)

    def data(self, data: bytes) -> bytes:
        """The same, of text as bytes."""
        for needle in self._data:
            if needle in data:
                data = data.replace(needle, MASK.encode())
        return data

    def value(self, value: Any) -> Any:
        """The same, of a JSON value; names in objects stay as they are."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {key: self.value(inner) for key, inner in value.items()}
        return [self.value(inner) for inner in value] if isinstance(value, list) else value

    def message(self, message: Message) -> None:
        """Takes them out of all texts of a message, in place."""
        if not self._needles:
            return
        for field, value in message.ListFields():
            if field.type == field.TYPE_STRING:
                if field.is_repeated:
                    value[:] = [self.text(item) for item in value]
                else:
                    setattr(message, field.name, self.text(value))
            elif field.type == field.TYPE_MESSAGE:
                for inner in value if field.is_repeated else (value,):
                    self.message(inner)


def _overlap(text: str, needle: str) -> int:
    lengths = range(min(len(needle) - 1, len(text)), 0, -1)
    return next((length for length in lengths if text.endswith(needle[:length])), 0)


def _parts(value: str) -> Iterator[str]:
    """The value, and what of it is a secret by itself."""
    value = value.strip()
    yield value
    yield from (line.strip() for line in value.splitlines() if len(line.strip()) >= LINE_CHARACTERS_MIN)
    scheme, _, credentials = value.partition(" ")
    if scheme.isalpha():  # "Bearer …": a server may quote what stands behind it
        yield credentials.strip()


def _forms(value: str) -> Iterator[str]:
    yield value
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield quote(value)
    yield quote(value, safe="")
    yield quote_plus(value)
    for shift in range(3):
        # As a part of something longer that is in base64: without the characters at its ends, which
        # depend on what stands beside it.
        padded = bytes(shift) + value.encode("utf-8", "replace")
        whole = len(padded) - len(padded) % 3
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            inner = encode(padded[:whole]).decode()[4 if shift else 0 :]
            if len(inner) >= ANSWER_CHARACTERS_MIN:
                yield inner
