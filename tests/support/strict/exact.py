"""JSON that keeps what parsing loses: the text of each number, the order and repetition of keys.

For the strict stubs, which compare what they are sent with what they said. Two texts that differ
in nothing but white space and escapes have one `dump`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any


class Number(str):
    """A number as it was written."""

    __slots__ = ()


class Obj(dict[str, Any]):
    """An object; `pairs` has its members as they came, repeated ones too."""

    def __init__(self, pairs: Iterable[tuple[str, Any]]) -> None:
        self.pairs = list(pairs)
        super().__init__(self.pairs)

    def without(self, *keys: str) -> Obj:
        return Obj((key, value) for key, value in self.pairs if key not in keys)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def parse(text: str | bytes) -> Any:
    """Strictly: no NaN, no control character in a string. Raises ValueError."""
    return json.loads(
        text, parse_int=Number, parse_float=Number, parse_constant=_refuse, object_pairs_hook=Obj
    )


def dump(value: Any) -> str:
    """The one text of a value of `parse`."""
    if isinstance(value, Obj):
        members = (f"{json.dumps(key)}:{dump(member)}" for key, member in value.pairs)
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(dump, value)) + "]"
    return str(value) if isinstance(value, Number) else json.dumps(value)


def quote(text: str) -> str:
    """A JSON string."""
    return json.dumps(text, ensure_ascii=False)
