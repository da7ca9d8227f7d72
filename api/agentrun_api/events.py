"""A run's log as server-sent events.

Who calls: the app. What holds: the event store is the log. A record's event has its seq as id, so
`Last-Event-ID` goes on behind it, at any replica, with no gap and no repetition. Events without an
id are of the moment and are not told again.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Header, Query, Request

from agentrun.local.views import event_view
from agentrun.log.replay import decode
from agentrun.log.store import RunInfo
from agentrun_api import sse
from agentrun_api.access import Caller, Verb
from agentrun_api.feed import Event
from agentrun_api.problems import Problem, ProblemDetails
from agentrun_api.services import Services, find_run, services_of

router = APIRouter(tags=["events"])

RECORD, END = "record", "end"


def encode(run_id: UUID, seq: int, record: bytes) -> Event:
    """The event of a record. An output that stands in a blob is told by its size: events stay small."""
    found = decode(run_id, seq, record)
    inline = found.output.inline if found.output.WhichOneof("where") != "blob" else None
    data = _json(event_view(seq, found, inline))
    return Event(seq=seq, data=sse.event(RECORD, data, seq), last=found.HasField("final"))


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


@router.get(
    "/v1/runs/{run_id}/events",
    summary="What a run did, and does",
    status_code=200,
    response_class=sse.EventStream,
    responses={
        200: {"content": {"text/event-stream": {}}, "description": "Events; see docs/api.md."},
        400: {"model": ProblemDetails, "description": "The id to go on behind is no id of this run."},
    },
)
async def events(
    request: Request,
    caller: Caller,
    run_id: str,
    after: Annotated[
        str | None,
        Query(description="The seq to go on behind; 0 for all. `Last-Event-ID`, where it is sent, counts."),
    ] = None,
    last_event_id: Annotated[
        str | None, Header(description="The id of the last event that was seen.")
    ] = None,
) -> sse.EventStream:
    """History first, then what comes, until the run has ended."""
    services = services_of(request)
    info = await find_run(services, run_id)
    await caller.require_run(Verb.GET, info.run)
    cursor = await _cursor(services, info, last_event_id, after)
    return sse.EventStream(_stream(services, info.run.run_id, cursor), until=services.closing)


async def _stream(services: Services, run_id: UUID, cursor: int) -> AsyncIterator[bytes]:
    async with aclosing(services.feeds.watch(run_id, cursor, idle_seconds=sse.HEARTBEAT_SECONDS)) as found:
        async for events_ in found:
            yield b"".join(event.data for event in events_) or sse.HEARTBEAT
    info = await services.store.get_run(run_id)
    stand = await services.executor.look(info) if info is not None else None
    told = {"phase": stand.phase, "reason": stand.reason, "message": stand.message} if stand else {}
    yield sse.event(END, _json(told))


async def _cursor(services: Services, info: RunInfo, header: str | None, query: str | None) -> int:
    """Where to go on. Problem 400 for what cannot be an id of this run."""
    name, text = ("Last-Event-ID", header) if header else ("after", query)
    if not text:
        return 0
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise Problem(400, "BadEventID", f"{name} must be the id of an event: a number, not {text[:60]!r}")
    cursor = int(text)
    if cursor and not await services.store.read_rows(info.run.run_id, after=cursor - 1, limit=1):
        raise Problem(
            400, "EventIDBeyondEnd", f"{name} is {cursor}, and run {info.run.run_id} has no such event"
        )
    return cursor
