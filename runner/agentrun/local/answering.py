"""Calls of a run that wait for a person, and giving the answer.

Who calls: the commands `approvals`, `approve` and `deny`. What holds: what waits is read
from the log; an answer is given to a question that is open and to no other; of two
answers the first one stands, and whoever gave the second is told so. An answer steers
nothing that an object owns: it is for any run, whoever its owner is.
"""

from __future__ import annotations

import getpass
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from agentrun.graph.types import scope_of
from agentrun.local.errors import LocalError
from agentrun.log.asks import OUTCOME_UNKNOWN, Waiting, answered, read_answer, waiting
from agentrun.log.replay import History
from agentrun.log.store import InboxRow, LogStore, RunInfo
from agentrun.proto import log_pb2 as pb
from agentrun.proto import transcript_pb2 as transcript
from agentrun.tools.arguments import parse_arguments
from agentrun.tools.errors import ArgumentsError

IDS_SHOWN_MAX = 5

Payload = Callable[[pb.Payload], Awaitable[bytes | None]]
"""Reads the bytes of a payload; None where they are not to be had."""


class NotWaiting(LocalError):
    """No call waits under that id."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call that waits. `arguments`: as the model wrote them, or as a person has changed them before the
    call was made; None where they are not to be had.
    `answer`: what was said already, and is not used yet."""

    ask: Waiting
    arguments: str | None
    answer: InboxRow | None = None


@dataclass(frozen=True, kw_only=True)
class Given:
    """The answer that stands. `ours`: it is the one that was just given, or says the same."""

    row: InboxRow
    what: str
    first: bool
    ours: bool


def whoami() -> str:
    """The user of this process, as the system names them."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):  # a user without a name
        return f"somebody@{socket.gethostname()}"


def check_arguments(text: str, bytes_max: int) -> None:
    """LocalError for what is no JSON object of at most so many bytes."""
    try:
        if not text.strip():
            raise ArgumentsError("they are empty; {} stands for none")
        parse_arguments(text)
        size = len(text.encode())
    except (ArgumentsError, UnicodeEncodeError) as error:
        raise LocalError(f"--arguments: {error}") from None
    if size > bytes_max:
        raise LocalError(f"--arguments: must be at most {bytes_max} bytes, and has {size}")


async def calls_waiting(store: LogStore, info: RunInfo, history: History, payload: Payload) -> list[Call]:
    """What waits, in the order in which it was asked."""
    rows = {row.id: row for row in await store.inbox(info.run.run_id)}
    return [
        Call(
            ask=ask,
            arguments=_changed(history, ask, rows) or await _arguments(history, ask, payload),
            answer=rows.get(ask.id),
        )
        for ask in waiting(history)
    ]


def _changed(history: History, ask: Waiting, rows: Mapping[str, InboxRow]) -> str:
    """What the call was made with, where a person had changed that: from the answer that was used."""
    used = [
        rows[id_]
        for id_, record in history.asks.items()
        if record.parents[0] == ask.node_id and id_ in history.consumed and id_ in rows
    ]
    return next((answer.arguments for answer in map(read_answer, used) if answer.arguments), "")


async def _arguments(history: History, ask: Waiting, payload: Payload) -> str | None:
    scope = scope_of(ask.node_id)
    number, _, index = ask.node_id[len(scope) :].removeprefix("call-").partition("-")
    turn = history.done.get(f"{scope}turn-{number}")
    data = await payload(turn.output) if turn is not None else None
    if data is None or not index.isdigit():
        return None
    try:
        parts = transcript.AssistantTurn.FromString(data).parts
    except DecodeError:
        return None
    calls = [part.tool_call for part in parts if part.HasField("tool_call")]
    return calls[int(index)].arguments if int(index) < len(calls) else None


async def give(store: LogStore, info: RunInfo, history: History, row: InboxRow) -> Given:
    """Posts the answer. Raises NotWaiting."""
    run_id = info.run.run_id
    asked = history.asks.get(row.id)
    open_asks = waiting(history)
    if asked is None or (history.final is not None and row.id not in history.consumed):
        raise NotWaiting(_not_waiting(info, history, row.id, open_asks))
    _, answer, _ = answered(row)
    if answer.arguments and asked.ask.reason == OUTCOME_UNKNOWN:
        raise LocalError(
            "--arguments: a call whose outcome is unknown is made again as it was, or not at all"
        )
    posted = False
    if any(ask.id == row.id for ask in open_asks):
        posted = await store.post(run_id, row)
        await store.notify([run_id])
    stands = next((found for found in await store.inbox(run_id) if found.id == row.id), None)
    if stands is None:
        raise NotWaiting(f"{row.id} does not wait any more: the run has gone on without an answer")
    _, said, _ = answered(stands)
    same = (said.decision, said.arguments) == (answer.decision, answer.arguments)
    return Given(row=stands, what=asked.ask.subject, first=posted, ours=posted or same)


def _not_waiting(info: RunInfo, history: History, id_: str, open_asks: list[Waiting]) -> str:
    run = f"run {info.run.run_id}"
    if history.final is not None:
        return f"{run} has ended: nothing waits for an answer any more"
    if not open_asks:
        return f"no call of {run} waits for an answer"
    ids = ", ".join(ask.id for ask in open_asks[:IDS_SHOWN_MAX])
    more = ", …" if len(open_asks) > IDS_SHOWN_MAX else ""
    return f"no call of {run} waits under the id {id_[:100]!r}; waiting: {ids}{more}"
