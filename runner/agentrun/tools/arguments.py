"""Parses the arguments of a call from the JSON text that a model wrote.

Used by every tool kind before it makes its call. The rules:

- The text is a JSON object; a text that is empty or only whitespace is `{}`.
- Integers are exact, whatever their size (up to Python's own limit of digits). A
  number with a fraction or an exponent is a `float`; one too large for a float
  (1e400) is refused, and never becomes infinity. `NaN` and `Infinity` are not JSON.
- With `literal_numbers`, a number is kept as it was written (`Number`), so that it
  can be passed on exactly: 19.90 stays 19.90.
- A key that stands twice in one object is refused: which of the two was meant?
- Nesting deeper than `NESTING_MAX` is refused, before a parser could recurse.
- NUL and lone surrogates in strings are replaced, as `safe_text` does.

Invariant: whatever the text is, the outcome is a dict or an `ArgumentsError`.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from typing import Any, NoReturn

from agentrun.log.text import safe_text
from agentrun.tools.errors import ArgumentsError

NESTING_MAX = 100
_SHOWN_MAX = 60

# A string is one token whether or not it is closed, so that no text makes the
# search start over from each of its quotes.
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[{]|[\]}]', re.DOTALL)
_UNSAFE_ESCAPE = re.compile(r"\\u(?:0000|d[89a-f])", re.IGNORECASE)


class Number(str):
    """A JSON number as it was written."""

    __slots__ = ()


def parse_arguments(text: str, *, literal_numbers: bool = False) -> dict[str, Any]:
    """The arguments in `text` by the rules above; raises ArgumentsError."""
    if not text.strip():
        return {}
    _check_nesting(text)
    try:
        value = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_int=Number if literal_numbers else _int,
            parse_float=Number if literal_numbers else _float,
            parse_constant=_constant,
        )
    except json.JSONDecodeError as error:
        raise ArgumentsError(
            f"the arguments are not valid JSON: {error.msg} (line {error.lineno}, column {error.colno})"
        ) from None
    if not isinstance(value, dict):
        raise ArgumentsError('the arguments must be one JSON object, such as {"name": "value"}')
    unsafe = _UNSAFE_ESCAPE.search(text) or not text.isascii()
    return {safe_text(key): _safe(item) for key, item in value.items()} if unsafe else value


def write_exact(value: Any) -> str:
    """JSON of what `parse_arguments` gave with `literal_numbers`, each number as it was written."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, dict):
        inner = ",".join(
            f"{json.dumps(key, ensure_ascii=False)}:{write_exact(item)}" for key, item in value.items()
        )
        return "{" + inner + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(write_exact, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _check_nesting(text: str) -> None:
    depth = 0
    for token in _TOKEN.finditer(text):
        first = text[token.start()]
        if first in "[{":
            depth += 1
            if depth > NESTING_MAX:
                raise ArgumentsError(f"the arguments are nested deeper than {NESTING_MAX} levels")
        elif first in "]}":
            depth -= 1


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        twice = next(key for key, count in counts.items() if count > 1)
        raise ArgumentsError(f'the key "{_short(twice)}" stands more than once; give it once')
    return result


def _int(literal: str) -> int:
    try:
        return int(literal)
    except ValueError:  # Python's limit of digits, a guard against quadratic time
        raise ArgumentsError(f"the number {_short(literal)} has too many digits") from None


def _float(literal: str) -> float:
    value = float(literal)
    if math.isinf(value):
        raise ArgumentsError(f"the number {_short(literal)} is too large for a floating-point number")
    return value


def _constant(literal: str) -> NoReturn:
    raise ArgumentsError(f"the arguments are not valid JSON: {literal} is no JSON number")


def _safe(value: Any) -> Any:
    if type(value) is str:
        return safe_text(value)
    if isinstance(value, dict):
        return {safe_text(key): _safe(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_safe(item) for item in value]
    return value


def _short(text: str) -> str:
    return safe_text(text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "…")
