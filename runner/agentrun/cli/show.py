"""`agentrun show`: all about one run, read from its log."""

from __future__ import annotations

import argparse
import os
from typing import Any

from agentrun.cli.common import on_run, print_json, print_text
from agentrun.cli.text import limit, table
from agentrun.local.holders import holder
from agentrun.local.process import this_machine
from agentrun.local.reading import read_answer, read_log
from agentrun.local.records import MESSAGE_CHARACTERS_MAX, one_line
from agentrun.local.stores import Place
from agentrun.local.views import run_view
from agentrun.log.store import LogStore, RunInfo


def run(args: argparse.Namespace) -> int:
    """The exit code."""

    async def show(store: LogStore, info: RunInfo, place: Place) -> int:
        view = await _view(store, info)
        if args.output == "json":
            print_json(view)
        else:
            print_text(_text(view))
        return os.EX_OK

    return on_run(args, show)


async def _view(store: LogStore, info: RunInfo) -> dict[str, Any]:
    log = await read_log(store, info)
    return run_view(
        info,
        holder(info.last_attempt, this_machine()),
        log.history,
        attempts=await store.attempts(info.run.run_id),
        records=log.records,
        answer=await read_answer(store, info, log.history),
    )


def _text(view: dict[str, Any]) -> str:
    reason = f" ({view['reason']})" if view["reason"] else ""
    budget = view["budget"]
    head = [
        ["run", view["runID"]],
        ["name", view["name"]],
        ["owner", view["owner"]],
        ["phase", view["phase"] + reason],
        ["message", one_line(view["message"], characters_max=MESSAGE_CHARACTERS_MAX)],
        ["created", view["createdAt"]],
        ["ended", view["endedAt"] or ""],
        *(
            [name, limit(budget[name]["used"], budget[name]["limit"])]
            for name in ("tokens", "turns", "retries", "wallSeconds")
        ),
    ]
    parts = [table([row for row in head if row[1]]), _attempts(view["attempts"]), _steps(view["steps"])]
    if view["answer"] is not None:
        parts.append("ANSWER\n" + view["answer"].rstrip("\n"))
    return "\n\n".join(part for part in parts if part)


def _attempts(attempts: list[dict[str, Any]]) -> str:
    if not attempts:
        return ""
    rows = [["ATTEMPT", "OUTCOME", "REASON", "STARTED", "PROCESS"]]
    for attempt in attempts:
        process = attempt["process"]
        where = f"{process['command']}, pid {process['pid']} on {process['host']}" if process["pid"] else ""
        outcome = attempt["outcome"] or ("running" if attempt["live"] else "dead")
        rows.append([str(attempt["attempt"]), outcome, attempt["reason"], attempt["startedAt"], where])
    return table(rows, right=(0,))


def _steps(steps: list[dict[str, Any]]) -> str:
    if not steps:
        return ""
    rows = [["SEQ", "STEP", "KIND", "MS", "TOKENS"]]
    for step in steps:
        cost = step["cost"]
        tokens = cost["tokensIn"] + cost["tokensOut"]
        shown = f"{tokens:,}" if tokens else ""
        rows.append([str(step["seq"]), step["node"], step["kind"], str(cost["wallMs"]), shown])
    return table(rows, right=(0, 3, 4))
