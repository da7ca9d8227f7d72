"""`agentrun list`: the newest runs, a line each."""

from __future__ import annotations

import argparse
import os
from datetime import UTC, datetime
from typing import Any

from agentrun.cli.common import print_json, read_log, run_async
from agentrun.cli.main import say
from agentrun.cli.text import age, shortest_unique, table
from agentrun.local.holders import holder
from agentrun.local.process import this_machine
from agentrun.local.stores import Place, opened, place_of, reach
from agentrun.local.views import list_entry, needs_log


def run(args: argparse.Namespace) -> int:
    """The exit code."""
    with place_of(args.store, create=False) as place:
        entries = run_async(_entries(place, args.limit)) if place is not None else []
    if args.output == "json":
        print_json({"runs": entries})
    elif entries:
        print(_table(entries), flush=True)
    else:
        say("there are no runs")
    return os.EX_OK


async def _entries(place: Place, limit: int) -> list[dict[str, Any]]:
    machine = this_machine()
    async with opened(place, writes=False) as store:
        entries = []
        for info in await reach(lambda: store.list_runs(limit=limit)):
            history = (await read_log(store, info)).history if needs_log(info) else None
            entries.append(list_entry(info, holder(info.last_attempt, machine), history))
        return entries


def _table(entries: list[dict[str, Any]]) -> str:
    length = shortest_unique([entry["runID"] for entry in entries])
    rows = [["PHASE", "NAME", "ID", "AGE", "TURNS", "TOKENS", "REASON"]]
    for entry in entries:
        created = datetime.fromisoformat(entry["createdAt"])
        rows.append(
            [
                entry["phase"],
                entry["name"],
                entry["runID"][:length],
                age((datetime.now(UTC) - created).total_seconds()),
                str(entry["turns"]),
                f"{entry['tokens']:,}",
                entry["reason"],
            ]
        )
    return table(rows, right=(3, 4, 5))
