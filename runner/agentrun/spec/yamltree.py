"""YAML to plain values, event by event.

Used by `document`. YAML is read as kubectl reads it (`yes` and `on` are true,
dates are text), so that a file means the same on both ways in. Invariants: a
repeated key, a tag, a merge key or a reference to itself is refused; depth and
size stay bounded, aliases written out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from agentrun.spec.document_bounds import DEPTH_MAX, Place, Refused, read_integer, refused_at
from agentrun.spec.errors import show

EXPANDED_SIZE_MAX = 4 * 1024 * 1024
"""Characters and values of a document once its aliases are written out."""

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_STRING_TAGS = ("!", "tag:yaml.org,2002:str")
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = frozenset({"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"})
_FALSE = frozenset({"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"})
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9_]*)")
_RADIX = re.compile(r"([-+]?)(0x[0-9a-fA-F_]+|0b[01_]+|0o?[0-7_]+)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


@dataclass
class _Open:
    """A list or mapping whose end has not come yet."""

    value: list[Any] | dict[Any, Any]
    anchor: str | None
    size: int = 1
    key: Any = None
    has_key: bool = False


@dataclass
class _Builder:
    """Builds values from YAML events without recursion, and keeps the bounds."""

    stack: list[_Open] = field(default_factory=list)
    anchors: dict[str, tuple[Any, int]] = field(default_factory=dict)
    documents: list[Any] = field(default_factory=list)

    def take(self, event: yaml.Event) -> None:
        place = _place(event)
        if isinstance(event, yaml.DocumentStartEvent):
            self.anchors.clear()
        elif isinstance(event, yaml.ScalarEvent):
            value = _scalar(event)
            self._finish(value, event.anchor, 1 + len(event.value), place)
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in self.anchors:
                raise refused_at(
                    place, f"no anchor &{event.anchor} ends before this; text that begins with * needs quotes"
                )
            self._add(*self.anchors[event.anchor], place)
        elif isinstance(event, yaml.SequenceStartEvent | yaml.MappingStartEvent):
            if len(self.stack) >= DEPTH_MAX:
                raise refused_at(place, f"must be nested at most {DEPTH_MAX} levels deep")
            if event.tag is not None:
                raise refused_at(place, f"the tag {show(event.tag)} is not allowed")
            self.stack.append(_Open([] if isinstance(event, yaml.SequenceStartEvent) else {}, event.anchor))
        elif isinstance(event, yaml.SequenceEndEvent | yaml.MappingEndEvent):
            closed = self.stack.pop()
            self._finish(closed.value, closed.anchor, closed.size, place)

    def _finish(self, value: Any, anchor: str | None, size: int, place: Place) -> None:
        # An anchor counts only once its value is whole, so nothing can hold itself.
        if anchor is not None:
            self.anchors[anchor] = (value, size)
        self._add(value, size, place)

    def _add(self, value: Any, size: int, place: Place) -> None:
        if not self.stack:
            self.documents.append(value)
            return
        top = self.stack[-1]
        top.size += size
        if top.size > EXPANDED_SIZE_MAX:
            raise refused_at(place, "the document is too large once its aliases are written out")
        if isinstance(top.value, list):
            top.value.append(value)
        elif top.has_key:
            top.value[top.key] = value
            top.has_key = False
        else:
            self._add_key(top, value, place)

    @staticmethod
    def _add_key(top: _Open, key: Any, place: Place) -> None:
        if isinstance(key, dict | list):
            raise refused_at(place, "a key must be text, not a mapping or list")
        if key == "<<":
            raise refused_at(place, "merge keys (<<) are not allowed; write the fields out")
        if key in top.value:
            raise refused_at(place, f"the key {show(key)} stands twice in one mapping")
        top.key, top.has_key = key, True


def read_yaml(text: str) -> Any:
    """The one document in the text, empty ones aside. Raises Refused."""
    builder = _Builder()
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        raise _broken(text, error) from None
    except yaml.YAMLError as error:
        raise Refused(f"not valid YAML: {' '.join(str(error).split())}") from None
    documents = [value for value in builder.documents if value is not None]
    if not documents:
        raise Refused("is empty: a manifest has apiVersion, kind, metadata and spec")
    if len(documents) > 1:
        raise Refused(
            f"holds {len(documents)} documents, and a manifest is one; put each in a file of its own"
        )
    return documents[0]


def _broken(text: str, error: yaml.MarkedYAMLError) -> Refused:
    mark = error.problem_mark or error.context_mark
    problem = error.problem or "it cannot be read"
    if mark is None:
        return Refused(f"not valid YAML: {problem}")
    place = (mark.line, mark.column)
    lines = text.splitlines()
    line = lines[mark.line] if mark.line < len(lines) else ""
    if line[mark.column : mark.column + 1] == "\t":
        return refused_at(place, "a tab, which YAML does not take here; indent with spaces")
    if problem.startswith("mapping values are not allowed"):
        problem = "a second ':' in one line; put text that holds ': ' in quotes"
    elif "nesting depth" in problem:
        # libyaml looks ahead, and may reach its own bound before the builder sees ours.
        return refused_at(place, f"must be nested at most {DEPTH_MAX} levels deep")
    elif "cannot start any token" in problem:
        problem = f"no value can begin with {show(line[mark.column : mark.column + 1])}; put it in quotes"
    return refused_at(place, f"not valid YAML: {problem}")


def _place(event: yaml.Event) -> Place:
    mark = event.start_mark
    return (mark.line, mark.column) if mark is not None else (0, 0)


def _scalar(event: yaml.ScalarEvent) -> Any:
    text = event.value
    if event.tag is not None and event.tag not in _STRING_TAGS:
        raise refused_at(_place(event), f"the tag {show(event.tag)} is not allowed")
    if event.tag is not None or not event.implicit[0]:
        return text
    return _plain(text)


def _plain(text: str) -> Any:
    """What an unquoted value means."""
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _DECIMAL.fullmatch(text):
        return read_integer(text.replace("_", ""))
    if (found := _RADIX.fullmatch(text)) is not None:
        return _radix(found[1], found[2].replace("_", "").lower())
    if _FLOAT.fullmatch(text):
        return float(text.replace("_", ""))
    if _NOT_FINITE.fullmatch(text):
        return float(text.lower().replace(".", ""))
    return text


def _radix(sign: str, digits: str) -> int:
    base = {"0x": 16, "0b": 2}.get(digits[:2], 8)
    value = int(digits.removeprefix("0x").removeprefix("0b").removeprefix("0o") or "0", base)
    return -value if sign == "-" else value
