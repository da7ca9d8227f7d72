"""JSON as text, where parsing it would lose something.

Used by the dialects: arguments are cut out of an answer as they stand, since
`9007199254740993`, `1e400` and `-0.0` do not survive every parser. Raises
`BadAnswer`, and never RecursionError or a limit of `int`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from agentrun.log.text import safe_text

DEPTH_MAX = 200
"""Levels of nesting in arguments that are sent back as JSON."""


class BadAnswer(ValueError):
    """An answer that is no completion. `retryable`: the same request may well do better."""

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message)
        self.retryable = retryable


def _integer(digits: str) -> int | None:
    try:
        return int(digits)
    except ValueError:  # more digits than Python converts
        return None


def _fraction(digits: str) -> float | None:
    number = float(digits)
    return number if math.isfinite(number) else None


_DECODER = json.JSONDecoder(
    parse_int=_integer, parse_float=_fraction, parse_constant=lambda _: None, strict=False
)
_space = re.compile(r"[ \t\n\r]*").match


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


# Only the form counts here; converting numbers could fail on their size.
_CHECKER = json.JSONDecoder(parse_int=len, parse_float=len, parse_constant=_refuse)


def parse(text: str) -> Any:
    """The value of `text`; NaN, infinities and numbers that are too large become null."""
    try:
        return _DECODER.decode(text)
    except ValueError as e:
        raise BadAnswer(f"not JSON ({e}): {text[:200]!r}" if text.strip() else "an empty body") from e
    except RecursionError as e:
        raise BadAnswer("JSON that is nested too deeply") from e


def raw(text: str, *path: str | int) -> str | None:
    """The text of the value at `path` in the valid JSON `text`, as it stands; None where there is none."""
    start, end = _span(text, 0)
    for step in path:
        if isinstance(step, str):
            span = _members(text, start).get(step) if text[start] == "{" else None
        else:
            spans = _items(text, start) if text[start] == "[" else []
            span = spans[step] if step < len(spans) else None
        if span is None:
            return None
        start, end = span
    return text[start:end]


def compact(value: Any) -> str:
    """`value` as JSON without spaces, safe to store."""
    return safe_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def extras(block: Mapping[str, Any], *known: str) -> str:
    """The fields of `block` that our schema has no place for, as JSON; "" when there are none.

    What is null or empty says nothing, and would stand in every record.
    """
    rest = {
        key: value for key, value in block.items() if key not in known and value not in (None, [], {}, "")
    }
    return compact(rest) if rest else ""


def sendable_arguments(arguments: str) -> str:
    """`arguments` as a JSON object that any provider takes.

    An object stays as it was written, byte for byte. None at all is `{}`.
    Anything else (cut off, not JSON, not an object, too deep) goes inside an
    object: many servers parse what they are sent, and would refuse the whole
    request for good.
    """
    if not arguments.strip():
        return "{}"
    if _is_object(arguments):
        return arguments.strip()
    return compact({"invalid_arguments": arguments})


def _is_object(text: str) -> bool:
    if not text.lstrip().startswith("{") or _depth(text) > DEPTH_MAX:
        return False
    try:
        _CHECKER.decode(text)
    except (ValueError, RecursionError):
        return False
    return True


def _depth(text: str) -> int:
    """Levels of nesting, guessed high: brackets in strings count."""
    deepest = level = 0
    for bracket in re.findall(r"[\[\]{}]", text):
        level += 1 if bracket in "[{" else -1
        deepest = max(deepest, level)
    return deepest


def _span(text: str, start: int) -> tuple[int, int]:
    match = _space(text, start)
    at = match.end() if match else start
    return at, _DECODER.raw_decode(text, at)[1]


def _past(text: str, at: int, *marks: str) -> int:
    """Where the next thing begins, past spaces and one of `marks`."""
    match = _space(text, at)
    at = match.end() if match else at
    if text[at] in marks:
        match = _space(text, at + 1)
        at = match.end() if match else at + 1
    return at


def _members(text: str, start: int) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    at = _past(text, start, "{")
    while text[at] != "}":
        key, at = _DECODER.raw_decode(text, at)
        span = _span(text, _past(text, at, ":"))
        found[key] = span
        at = _past(text, span[1], ",")
    return found


def _items(text: str, start: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    at = _past(text, start, "[")
    while text[at] != "]":
        span = _span(text, at)
        found.append(span)
        at = _past(text, span[1], ",")
    return found
