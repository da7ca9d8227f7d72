"""Turns what a tool gave into the text that a model is told. Called by every tool kind.

`render_result`, by type:

- `str` stays as it is, `None` is the empty text; everything else is JSON, with:
- NaN and infinities as the strings "NaN", "Infinity", "-Infinity"; integers exact;
- `Decimal` as a string with its exact digits; dates and times as ISO 8601;
- bytes as their text where they are UTF-8, else as "base64:…";
- dataclasses, named tuples, pydantic models and mappings as objects, sequences and
  sets as arrays (a set in the order of its elements' JSON), an enum as its value;
- keys as text; two keys that give the same text are refused, not merged;
- generators and iterators are refused, for they may never end;
- anything else as its `str()`.

Invariants: a result is at most `RESULT_BYTES_MAX` of UTF-8, holds nothing that
storage cannot hold, and takes no more work than that bound: writing stops there, so
that an object that refers to itself a million times over is harmless. What is kept of a
result is cut by `cut_text` alone: the beginning stays, and a last line says what is
missing. How much of it a model is shown is another matter, and the agent layer's.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import json
import math
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence, Set, ValuesView
from enum import Enum
from typing import Any

from agentrun.log.text import safe_text
from agentrun.tools.arguments import NESTING_MAX
from agentrun.tools.errors import ResultError

RESULT_BYTES_MAX = 1024 * 1024
"""As much of a result is kept."""
ERROR_BYTES_MAX = 4 * 1024
_NOTE_BYTES_MAX = 80
_CAUSES_MAX = 5


def render_result(value: Any) -> str:
    """`value` as text by the rules above; raises ResultError where it cannot be shown."""
    if value is None:
        return ""
    writer = _Writer(RESULT_BYTES_MAX)
    try:
        simple = _simple(value)
        if isinstance(simple, str):
            return cut_text(simple)
        writer.write(simple, 1)
    except _Full:
        # The rest was never written, so how long it would be is not known.
        return cut_text("".join(writer.pieces), more=True)
    except ResultError:
        raise
    except Exception as error:  # __str__, properties and the like are the tool's own code
        raise ResultError(f"{type(error).__name__} while it was written as text") from error
    return cut_text("".join(writer.pieces))


def render_error(error: BaseException) -> str:
    """ "Type: message" of what a tool raised, at most `ERROR_BYTES_MAX`."""
    if isinstance(error, BaseExceptionGroup):  # its own message only counts them
        causes = "; ".join(render_error(inner) for inner in error.exceptions[:_CAUSES_MAX])
        return cut_text(causes, bytes_max=ERROR_BYTES_MAX)
    name = type(error).__name__
    try:
        message = str(error)
    except Exception:
        message = "(no message)"
    return cut_text(f"{name}: {message}" if message else name, bytes_max=ERROR_BYTES_MAX)


def cut_text(text: str, *, bytes_max: int = RESULT_BYTES_MAX, more: bool = False) -> str:
    """`text` made safe, and at most `bytes_max` of UTF-8, the note on the cut included.

    `more`: something that is not in `text` is missing behind it, so the note stands
    in any case and states no total.
    """
    text = safe_text(text)
    if len(text) * 4 <= bytes_max and not more:
        return text
    data = text.encode()
    if len(data) <= bytes_max and not more:
        return text
    kept = data[: bytes_max - _NOTE_BYTES_MAX].decode(errors="ignore")
    total = "" if more else f" of {len(data)}"
    return f"{kept}\n[cut: only the first {len(kept.encode())}{total} bytes are kept]"


class _Full(Exception):
    """The bound is reached."""


class _Writer:
    """Writes JSON piece by piece, so that it can stop at the bound."""

    def __init__(self, bytes_max: int) -> None:
        self.pieces: list[str] = []
        self._left = bytes_max
        self._open: set[int] = set()

    def write(self, value: Any, depth: int) -> None:
        """Appends `value`, which `_simple` has seen."""
        if isinstance(value, dict | list):
            if depth > NESTING_MAX:
                raise ResultError(f"it is nested deeper than {NESTING_MAX} levels")
            if isinstance(value, dict):
                self._object(value, depth)
            else:
                self._array(value, depth)
        else:
            self._put(_scalar(value))

    def _child(self, value: Any, depth: int) -> None:
        # Ids of the caller's own objects: what `_simple` makes of them is new each time.
        if id(value) in self._open:
            raise ResultError("it contains itself")
        self._open.add(id(value))
        self.write(_simple(value), depth + 1)
        self._open.discard(id(value))

    def _object(self, value: dict[Any, Any], depth: int) -> None:
        seen: set[str] = set()
        self._put("{")
        for key, item in value.items():
            name = _key(key)
            if name in seen:
                raise ResultError(f"two of its keys are {json.dumps(name[:60])} as text")
            self._put(("," if seen else "") + json.dumps(name, ensure_ascii=False) + ":")
            seen.add(name)
            self._child(item, depth)
        self._put("}")

    def _array(self, value: list[Any], depth: int) -> None:
        self._put("[")
        for index, item in enumerate(value):
            if index:
                self._put(",")
            self._child(item, depth)
        self._put("]")

    def _put(self, piece: str) -> None:
        self.pieces.append(piece)
        self._left -= len(piece)
        if self._left < 0:
            raise _Full


def _simple(value: Any) -> Any:
    """One level of `value` as a dict, a list, or a scalar that `_scalar` knows."""
    if isinstance(value, Enum):
        return _simple(value.value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return value if isinstance(value, dict) else dict(value)
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return value._asdict()
    if isinstance(value, bytes | bytearray | memoryview):
        return _bytes_text(bytes(value))
    if isinstance(value, Set):
        return _sorted(list(value))
    if isinstance(value, Sequence | ValuesView):
        return value if isinstance(value, list) else list(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(type(value), "model_dump"):  # a pydantic model, with no need to import pydantic
        return dict(value.model_dump())
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, Iterator | AsyncIterator):  # it may never end
        raise ResultError("it is an iterator; return a list")
    return str(value)  # Decimal among others, whose str() is exact


def _scalar(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'
    try:
        return json.dumps(value, ensure_ascii=False)
    except ValueError:  # an integer past Python's limit of digits
        raise ResultError("it holds a number with too many digits") from None


def _key(key: Any) -> str:
    simple = _simple(key)
    if isinstance(simple, dict | list):
        return str(key)
    return simple if isinstance(simple, str) else _scalar(simple).strip('"')


def _sorted(items: list[Any]) -> list[Any]:
    # A set of strings comes in another order in each process.
    try:
        return sorted(items)
    except TypeError:
        return sorted(items, key=repr)


def _bytes_text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(data).decode()
