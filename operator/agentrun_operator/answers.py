"""Answers that people give through an object's annotations, and what of them is to be posted. Pure.

    agentrun.dev/approve: call-1-0-4f3a9c21, call-1-1-07be55d0
    agentrun.dev/deny: call-2-0-1c9d2e44=too much; call-2-1-a2b3c4d5

Who calls: `objects` reads the annotations, `observe` and `plan` ask what is left to do.
What holds: an annotation is posted only for a call that waits under just that id, so
that what stays on an object, or comes with another one of its name, approves nothing;
what is both approved and denied is denied.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agentrun.log.asks import answer_row
from agentrun.log.store import InboxRow

APPROVE, DENY = "agentrun.dev/approve", "agentrun.dev/deny"
IDS_MAX = 100
"""Of one object; those behind them wait until others are taken away."""

VALUE_CHARACTERS_MAX = 64 * 1024
_ID = re.compile(r"[A-Za-z0-9_.!#~/-]{1,1024}")


@dataclass(frozen=True, kw_only=True)
class Said:
    """What one annotation says of one call. `manager`: who wrote it, as the API server calls them."""

    id: str
    approve: bool
    reason: str = ""
    manager: str = ""


def said_in(metadata: Mapping[str, Any]) -> tuple[Said, ...]:
    """What an object's annotations say; what cannot be an id is left out."""
    annotations = metadata.get("annotations")
    if not isinstance(annotations, Mapping):
        return ()
    found: dict[str, Said] = {}
    for name, approve in ((DENY, False), (APPROVE, True)):
        text = annotations.get(name)
        if not isinstance(text, str):
            continue
        manager = _manager(metadata, name)
        for ids, reason in _entries(text[:VALUE_CHARACTERS_MAX], reasons=not approve):
            for id_ in re.split(r"[\s,]+", ids):
                if _ID.fullmatch(id_):
                    found.setdefault(id_, Said(id=id_, approve=approve, reason=reason, manager=manager))
    return tuple(found.values())[:IDS_MAX]


def _entries(text: str, *, reasons: bool) -> Iterable[tuple[str, str]]:
    """Entries are apart by ";" or a line break; behind "=" stands the reason, for all ids before it."""
    for entry in re.split(r"[;\n]", text):
        ids, _, reason = entry.partition("=")
        yield ids, reason.strip() if reasons else ""


def _manager(metadata: Mapping[str, Any], annotation: str) -> str:
    for entry in metadata.get("managedFields") or ():
        fields = entry.get("fieldsV1") if isinstance(entry, Mapping) else None
        of_metadata = fields.get("f:metadata") if isinstance(fields, Mapping) else None
        owned = of_metadata.get("f:annotations") if isinstance(of_metadata, Mapping) else None
        if isinstance(owned, Mapping) and f"f:{annotation}" in owned:
            return str(entry.get("manager") or "")
    return ""


def unanswered(said: Iterable[Said], rows: Iterable[InboxRow]) -> list[Said]:
    """What was said and has no row in the inbox."""
    answered = {row.id for row in rows}
    return [one for one in said if one.id not in answered]


def to_post(said: Iterable[Said], rows: Iterable[InboxRow], asks: Collection[str]) -> list[Said]:
    """What is to be posted: it answers one of the calls that wait, and nobody has answered it."""
    return [one for one in unanswered(said, rows) if one.id in asks]


def row_of(said: Said, object_: str) -> InboxRow:
    """The inbox row of an annotation on an object (namespace/name)."""
    name = APPROVE if said.approve else DENY
    by = f"annotation {name} on {object_}"
    return answer_row(said.id, approve=said.approve, by=by, reason=said.reason, via=said.manager)
