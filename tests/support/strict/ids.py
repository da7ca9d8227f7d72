"""Ids and arguments of calls as they may come back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from tests.support.strict.answers import Part
from tests.support.strict.exact import Obj, dump, parse

WELL_FORMED = re.compile(r"[a-zA-Z0-9_-]{1,64}").fullmatch


def names(calls: Sequence[Part], sent: Sequence[tuple[Any, Any]]) -> Iterator[str]:
    """`sent` are (id, name) as they came back: what can be kept is kept."""
    once = {call.id for call in calls if sum(other.id == call.id for other in calls) == 1}
    for place, (call, (wire_id, name)) in enumerate(zip(calls, sent, strict=False)):
        if not WELL_FORMED(wire_id or ""):
            yield f"call {place}: the id {wire_id!r}"
        if call.id.startswith("toolu_") and call.id in once and wire_id != call.id:
            yield f"call {place}: its id was {call.id!r} and is {wire_id!r}"
        if not WELL_FORMED(name or "") or (WELL_FORMED(call.name) and name != call.name):
            yield f"call {place}: its name was {call.name!r} and is {name!r}"


def arguments(call: Part, sent: Any) -> str:
    """What is wrong with arguments (a value of `parse`) that came back; an object stays as it was."""
    if not isinstance(sent, Obj):
        return f"the arguments are no object: {dump(sent)}"
    try:
        given = parse(call.text)
    except ValueError:
        return ""
    if isinstance(given, Obj) and dump(given) != dump(sent):
        return f"the arguments were {dump(given)} and are {dump(sent)}"
    return ""


def arguments_text(call: Part, sent: Any) -> str:
    """The same for a string of JSON."""
    if not isinstance(sent, str):
        return f"the arguments are no string: {sent!r}"
    try:
        if isinstance(parse(call.text), Obj):
            return (
                "" if sent.strip() == call.text.strip() else f"the arguments were {call.text} and are {sent}"
            )
    except ValueError:
        pass
    try:
        return arguments(call, parse(sent))
    except ValueError:
        return f"the arguments are not JSON: {sent!r}"


def twice(ids: Sequence[Any]) -> Iterator[str]:
    """Ids that stand twice."""
    for wire_id in sorted({str(one) for one in ids if ids.count(one) > 1}):
        yield f"the id {wire_id!r} stands twice"
