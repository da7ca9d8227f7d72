"""`agentrun approvals`: the calls of a run that wait for a person."""

from __future__ import annotations

import argparse
import json
import os
from contextlib import suppress
from typing import Any

from agentrun.cli.common import on_run, print_json, print_text
from agentrun.cli.main import say
from agentrun.cli.text import table
from agentrun.local.answering import Call, calls_waiting
from agentrun.local.reading import payload, read_log
from agentrun.local.records import moment, one_line
from agentrun.local.stores import Place
from agentrun.log.asks import answered
from agentrun.log.errors import LogError
from agentrun.log.store import LogStore, RunInfo
from agentrun.proto import log_pb2 as pb

ARGUMENTS_CHARACTERS_MAX = 400
"""Of a call's arguments in a table; -o json has all of them."""


def run(args: argparse.Namespace) -> int:
    """The exit code."""

    async def approvals(store: LogStore, info: RunInfo, place: Place) -> int:
        log = await read_log(store, info)

        async def read(where: pb.Payload) -> bytes | None:
            with suppress(LogError):
                return await payload(store, info, where)
            return None

        calls = await calls_waiting(store, info, log.history, read)
        if args.output == "json":
            views = [call_view(call) for call in calls]
            print_json({"runID": str(info.run.run_id), "name": info.run.name, "calls": views})
        elif calls:
            print_text(_text(calls))
        else:
            say(f"no call of run {info.run.run_id} waits for an answer")
        return os.EX_OK

    return on_run(args, approvals)


def call_view(call: Call) -> dict[str, Any]:
    """A call that waits, as JSON shows it (docs/cli.md)."""
    return {
        "id": call.ask.id,
        "node": call.ask.node_id,
        "tool": call.ask.what,
        "reason": call.ask.reason,
        "arguments": _parsed(call.arguments),
        "since": moment(call.ask.since_us),
        "answer": None if call.answer is None else answer_view(*answered(call.answer)[1:]),
    }


def answer_view(answer: pb.Answer, at_us: int) -> dict[str, Any]:
    """What was said."""
    return {
        "decision": decision_name(answer.decision),
        "by": answer.by,
        "reason": answer.reason,
        "arguments": _parsed(answer.arguments) if answer.arguments else None,
        "at": moment(at_us),
    }


def decision_name(decision: pb.Decision) -> str:
    """Approve or Deny."""
    return "Approve" if decision == pb.DECISION_APPROVE else "Deny"


def _parsed(arguments: str | None) -> Any:
    """As JSON has them; the text where they are none."""
    try:
        return None if arguments is None else json.loads(arguments.strip() or "{}")
    except (ValueError, RecursionError):
        return arguments


def _text(calls: list[Call]) -> str:
    rows = [["ID", "TOOL", "REASON", "SINCE", "ANSWER", "ARGUMENTS"]]
    for call in calls:
        said = ""
        if call.answer is not None:
            _, answer, _ = answered(call.answer)
            said = f"{decision_name(answer.decision)} by {answer.by}"
        shown = call.arguments if call.arguments is not None else call.ask.detail
        rows.append(
            [
                call.ask.id,
                call.ask.what,
                call.ask.reason,
                moment(call.ask.since_us) or "",
                one_line(said),
                one_line(shown, characters_max=ARGUMENTS_CHARACTERS_MAX),
            ]
        )
    return table(rows)
