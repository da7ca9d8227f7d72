"""Questions to people and their answers, as the log and the inbox hold them. Pure.

Who calls: the executor, which asks; the command and the operator, which show what
waits and post what was said. What holds: a question's id is of its run, its node and
nothing else, so that an answer never reaches another run or another question; the
first row with that id is the answer; what cannot be read approves nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from uuid import UUID

from google.protobuf.message import DecodeError

from agentrun.log.final import bounded
from agentrun.log.replay import History
from agentrun.log.store import InboxRow
from agentrun.log.text import safe_text
from agentrun.proto import log_pb2 as pb

APPROVAL = "approval"
"""The kind of an answer's row in the inbox."""

APPROVAL_REQUIRED, OUTCOME_UNKNOWN = "ApprovalRequired", "OutcomeUnknown"
WAITING_REASONS = frozenset({APPROVAL_REQUIRED, OUTCOME_UNKNOWN})
"""Why a run is parked that waits for a person."""

SHOWN_CHARACTERS_MAX = 300
"""Of arguments, where anybody may see them."""

REASON_CHARACTERS_MAX = 1000
BY_CHARACTERS_MAX = 200
ARGUMENTS_BYTES_MAX = 64 * 1024
"""Of arguments that a person gives in place of the model's."""

UNREADABLE = "the answer cannot be read"
_SUFFIX_CHARACTERS = 8
_SECRET = re.compile(
    r"passw(or)?d|passphrase|(^|[_-])(pass|pwd|auth)$|secret|token(?!s)|api_?-?key|credential|authorization"
    r"|private_?-?key|cookie",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A question that nobody has answered, or whose answer no record has used yet.

    `what` is what it is about (a tool's name), `detail` its arguments as anybody may see them.
    """

    id: str
    node_id: str
    reason: str
    what: str
    detail: str
    since_us: int


def ask_id(run_id: UUID, node_id: str, key: str) -> str:
    """The id of a node's question. `key` tells questions of one node apart."""
    digest = sha256(f"{run_id} {node_id} {key}".encode()).hexdigest()
    return f"{node_id}-{digest[:_SUFFIX_CHARACTERS]}"


def ask_record_id(node_id: str, key: str) -> str:
    """The id of the record that asks it."""
    return f"{node_id}{'#' if key else ''}{key}!ask"


def waiting(history: History) -> list[Waiting]:
    """The questions that are open, in the order of the log."""
    if history.final is not None:
        return []
    return [
        Waiting(
            id=id_,
            node_id=record.parents[0],
            reason=record.ask.reason,
            what=record.ask.subject,
            detail=record.ask.detail,
            since_us=record.finished_us,
        )
        for id_, record in history.asks.items()
        if id_ not in history.consumed and not _over(history, record.parents[0])
    ]


def _over(history: History, node_id: str) -> bool:
    """The node is done, or a node around it."""
    parts = node_id.split("/")
    return any("/".join(parts[: count + 1]) in history.done for count in range(len(parts)))


def is_answered(history: History, rows: Iterable[InboxRow]) -> bool:
    """The inbox has an answer that some open question waits for: the run can go on."""
    open_ids = {ask.id for ask in waiting(history)}
    return any(row.id in open_ids for row in rows)


# --- answers


def answer_row(
    id_: str, *, approve: bool, by: str, reason: str = "", arguments: str = "", via: str = ""
) -> InboxRow:
    """The row that answers a question. `via` says how it came, where `by` alone does not."""
    who = safe_text(by)[:BY_CHARACTERS_MAX] + (f" ({safe_text(via)[:BY_CHARACTERS_MAX]})" if via else "")
    answer = pb.Answer(
        decision=pb.DECISION_APPROVE if approve else pb.DECISION_DENY,
        by=who,
        reason=safe_text(reason)[:REASON_CHARACTERS_MAX],
        arguments=arguments,
    )
    return InboxRow(id=id_, kind=APPROVAL, payload=answer.SerializeToString())


def read_answer(row: InboxRow) -> pb.Answer:
    """What a row says; a row that cannot be understood is a denial."""
    try:
        answer = pb.Answer.FromString(row.payload)
    except DecodeError:
        answer = pb.Answer()
    if row.kind != APPROVAL or answer.decision not in (pb.DECISION_APPROVE, pb.DECISION_DENY):
        return pb.Answer(decision=pb.DECISION_DENY, by=answer.by, reason=UNREADABLE)
    return answer


def answered(row: InboxRow) -> tuple[str, pb.Answer, int]:
    """Id, answer and time (microseconds since 1970, by the store's clock) of a row."""
    at_us = round(row.created_at.timestamp() * 1e6) if row.created_at is not None else 0
    return row.id, read_answer(row), at_us


# --- what may be shown


def shown_arguments(text: str, characters_max: int = SHOWN_CHARACTERS_MAX) -> str:
    """Arguments on one line for anybody to see: shortened, and without what is named like a secret."""
    try:
        value = json.loads(text.strip() or "{}")
        flat = json.dumps(_without_secrets(value), ensure_ascii=False, separators=(", ", ": "))
    except (ValueError, RecursionError):
        return f"{len(text.encode(errors='replace'))} bytes that are not JSON"
    flat = "".join(c if c.isprintable() else "\ufffd" for c in safe_text(flat))
    return flat if len(flat) <= characters_max else flat[: characters_max - 1] + "…"


def _without_secrets(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: "***" if _SECRET.search(k) else _without_secrets(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_without_secrets(item) for item in value]
    return value


def told(calls: Iterable[Waiting]) -> str:
    """What waits, in a message for people; bounded."""
    found = list(calls)
    if not found:
        return ""
    many = f"{len(found)} calls wait" if len(found) > 1 else "1 call waits"
    return bounded(f"{many} for an answer: " + "; ".join(f"{c.id} {c.what}({c.detail})" for c in found))
