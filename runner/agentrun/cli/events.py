"""`agentrun events`: a run's log, a line a record, and what comes to it.

What holds: each record is printed once, in order, with its seq; `--after` goes on
behind one. Following ends by itself when the run has ended.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from contextlib import suppress

from agentrun.cli.common import on_run, print_json_line, print_text
from agentrun.local.reading import payload
from agentrun.local.runs import no_such_run
from agentrun.local.stores import Place
from agentrun.local.views import event_view
from agentrun.log.appender import retried
from agentrun.log.clock import Clock
from agentrun.log.errors import LogError, StoreUnavailable
from agentrun.log.replay import decode
from agentrun.log.store import LogStore, RunInfo
from agentrun.proto import log_pb2 as pb

POLL_SECONDS = 2.0
"""How often the log is read where no hint says that it grew."""

ROWS_MAX = 500
"""Records that are read at once."""

SHOWN_BYTES_MAX = 1024 * 1024
"""A larger output is not fetched to be shown."""


def run(args: argparse.Namespace) -> int:
    """The exit code."""

    async def events(store: LogStore, info: RunInfo, place: Place) -> int:
        if args.follow:
            await _follow(store, info, args.after, args.output)
        else:
            await _print_new(store, info, args.after, args.output)
        return os.EX_OK

    return on_run(args, events)


async def _follow(store: LogStore, info: RunInfo, after: int, output: str) -> None:
    run_id = info.run.run_id
    hinted = asyncio.Event()
    with suppress(StoreUnavailable):
        await store.listen(lambda which: hinted.set() if which in (None, run_id) else None)
    clock = Clock()
    while True:
        hinted.clear()
        # Asked before the rows are read: once it has ended, nothing is added to them.
        now = await retried(lambda: store.get_run(run_id), clock)
        if now is None:
            raise no_such_run(str(run_id))
        after = await _print_new(store, now, after, output)
        if now.run.ended:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(POLL_SECONDS):
                await hinted.wait()


async def _print_new(store: LogStore, info: RunInfo, after: int, output: str) -> int:
    """Prints what stands behind `after`; the seq of the last record printed."""
    clock = Clock()
    while True:
        start = after
        rows = await retried(
            lambda: store.read_rows(info.run.run_id, after=start, limit=ROWS_MAX),  # noqa: B023
            clock,
        )
        for seq, data in rows:
            await _print(store, info, seq, decode(info.run.run_id, seq, data), output)
            after = seq
        if len(rows) < ROWS_MAX:
            return after


async def _print(store: LogStore, info: RunInfo, seq: int, record: pb.NodeRecord, output: str) -> None:
    data: bytes | None = None
    if record.output.blob.size_bytes <= SHOWN_BYTES_MAX:
        with suppress(LogError):
            data = await payload(store, info, record.output)
    event = event_view(seq, record, data)
    if output == "json":
        print_json_line(event)
        return
    line = f"{seq:>5}  {event['time'] or '-'}  {record.id:<16}  {record.kind:<20}  {event['what']}"
    print_text(line.rstrip())
