"""`agentrun list`: the newest runs, a line each."""

from __future__ import annotations

import argparse
import os
from typing import Any

from agentrun.cli.common import print_json, print_text, run_async
from agentrun.cli.main import say
from agentrun.cli.text import age, shortest_unique, table
from agentrun.local.holders import holder
from agentrun.local.process import this_machine
from agentrun.local.reading import read_log
from agentrun.local.stores import Place, opened, place_of, reach
from agentrun.local.views import list_entry, needs_log
from agentrun.log.store import RunInfo


def run(args: argparse.Namespace) -> int:
    """The exit code."""
    with place_of(args.store, create=False) as place:
        entries, ages = run_async(_entries(place, args.limit)) if place is not None else ([], [])
    if args.output == "json":
        print_json({"runs": entries})
    elif entries:
        print_text(_table(entries, ages))
    else:
        say("there are no runs")
    return os.EX_OK


async def _entries(place: Place, limit: int) -> tuple[list[dict[str, Any]], list[str]]:
    """The runs, and how old each is by the store's clock."""
    machine = this_machine()
    async with opened(place, writes=False) as store:
        entries, ages = [], []
        for info in await reach(lambda: store.list_runs(limit=limit)):
            history = (await read_log(store, info)).history if needs_log(info) else None
            entries.append(list_entry(info, holder(info.last_attempt, machine), history))
            ages.append(_age(info))
        return entries, ages


def _age(info: RunInfo) -> str:
    if info.read_at is None or info.run.created_at is None:
        return "-"
    return age((info.read_at - info.run.created_at).total_seconds())


def _table(entries: list[dict[str, Any]], ages: list[str]) -> str:
    length = shortest_unique([entry["runID"] for entry in entries])
    rows = [["PHASE", "NAME", "ID", "AGE", "TURNS", "TOKENS", "REASON"]]
    for entry, old in zip(entries, ages, strict=True):
        rows.append(
            [
                entry["phase"],
                entry["name"],
                entry["runID"][:length],
                old,
                str(entry["turns"]),
                f"{entry['tokens']:,}",
                entry["reason"],
            ]
        )
    return table(rows, right=(3, 4, 5))
