"""One YAML or JSON document, read strictly into plain Python values.

Used by `manifest`. Invariants: a repeated key or a second document is refused
and never silently wins; text, depth and size are bounded however it was made.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from agentrun.spec.base import INTEGER_MAX, unprintable
from agentrun.spec.document_bounds import DEPTH_MAX, Refused, read_integer
from agentrun.spec.errors import ManifestError, Path, Problem, format_path, show

DOCUMENT_BYTES_MAX = 4 * 1024 * 1024


def read_document(text: str | bytes, *, source: str) -> Any:
    """The document's value: dicts, lists, str, int, float, bool and None. Raises ManifestError."""
    try:
        decoded = _decode(text)
        value = _read_json(decoded) if decoded.lstrip().startswith("{") else _NOT_JSON
        if value is _NOT_JSON:
            # A runner pod reads definitions, which are JSON: it never pays for this import.
            from agentrun.spec.yamltree import read_yaml

            value = read_yaml(decoded)
        return value
    except Refused as refused:
        raise ManifestError([Problem("", str(refused))], source=source) from None


def tree_problems(value: object, path: Path = ()) -> Iterator[Problem]:
    """What no field may hold, wherever it stands; for trees of any origin.

    That is: control characters, numbers out of range, keys that are no text, and
    more than 64 levels.
    """
    if len(path) > DEPTH_MAX:
        yield Problem(format_path(path[:3]), f"must be nested at most {DEPTH_MAX} levels deep")
    elif isinstance(value, dict):
        for key, child in value.items():
            if not isinstance(key, str):
                yield Problem(
                    format_path(path), f"has the key {show(key)}, which must be text; put it in quotes"
                )
            elif problem := unprintable(key):
                yield Problem(format_path(path), f"has a key whose {problem}")
            else:
                yield from tree_problems(child, (*path, key))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from tree_problems(child, (*path, index))
    elif (problem := _scalar_problem(value)) is not None:
        yield Problem(format_path(path), problem)


def _scalar_problem(value: object) -> str | None:
    if isinstance(value, str):
        return unprintable(value)
    if isinstance(value, float) and not abs(value) < float("inf"):
        return "must be a finite number"
    if isinstance(value, int) and not -INTEGER_MAX - 1 <= value <= INTEGER_MAX:
        return f"is a number out of range: at most {INTEGER_MAX} is possible"
    return None


def _decode(text: str | bytes) -> str:
    size_bytes = len(text) if isinstance(text, bytes) else len(text.encode(errors="replace"))
    if size_bytes > DOCUMENT_BYTES_MAX:
        raise Refused(f"must be at most {DOCUMENT_BYTES_MAX} bytes, and has {size_bytes}")
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise Refused(f"must be UTF-8, and byte {error.start + 1} is not") from None
    text = text.removeprefix("\ufeff")
    for number, line in enumerate(text.split("\n")):
        if (problem := unprintable(line)) is not None:
            raise Refused(f"line {number + 1}: {problem}")
    return text


# JSON

_NOT_JSON = object()


def _read_json(text: str) -> Any:
    """The value, or _NOT_JSON when YAML should have a look (a flow mapping begins with a brace too)."""
    try:
        return json.loads(
            text,
            object_pairs_hook=_unique,
            parse_int=read_integer,
            parse_constant=lambda name: float(name.lower()),
        )
    except json.JSONDecodeError:
        return _NOT_JSON
    except RecursionError:
        raise Refused(f"must be nested at most {DEPTH_MAX} levels deep") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise Refused(f"the key {show(key)} stands twice in one mapping")
        result[key] = value
    return result
