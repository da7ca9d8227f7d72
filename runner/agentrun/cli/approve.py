"""`agentrun approve` and `agentrun deny`: answers a call that waits for a person."""

from __future__ import annotations

import argparse
import os

from agentrun.cli.approvals import answer_view, decision_name
from agentrun.cli.common import even_if_nobody_reads, on_run, print_json, print_text
from agentrun.cli.main import say
from agentrun.local.answering import Given, check_arguments, give, whoami
from agentrun.local.holders import holder
from agentrun.local.process import this_machine
from agentrun.local.reading import read_log
from agentrun.local.records import instant, one_line
from agentrun.local.runs import OWNER_PREFIX
from agentrun.local.stores import Place
from agentrun.log.asks import ARGUMENTS_BYTES_MAX, answer_row, answered
from agentrun.log.store import LogStore, RunInfo

EXIT_ANOTHER_STANDS = 1
_DONE = {"Approve": "approved", "Deny": "denied"}


def run(args: argparse.Namespace) -> int:
    """The exit code: 0 what was said stands, 1 something else was said before."""
    return answer(args, approve=True)


def answer(args: argparse.Namespace, *, approve: bool) -> int:
    """See `run`."""
    arguments = getattr(args, "arguments", None)
    if arguments is not None:
        check_arguments(arguments, ARGUMENTS_BYTES_MAX)
    row = answer_row(args.id, approve=approve, by=whoami(), reason=args.reason, arguments=arguments or "")

    async def answered_(store: LogStore, info: RunInfo, place: Place) -> int:
        log = await read_log(store, info)
        given = await give(store, info, log.history, row)
        code = os.EX_OK if given.ours else EXIT_ANOTHER_STANDS
        with even_if_nobody_reads():
            if args.output == "json":
                view = {"runID": str(info.run.run_id), "id": row.id, "tool": given.what, "first": given.first}
                _, said, at_us = answered(given.row)
                print_json({**view, "answer": answer_view(said, at_us), "exitCode": code})
            else:
                _tell(given, info)
        return code

    return on_run(args, answered_, writes=True)


def _tell(given: Given, info: RunInfo) -> None:
    id_, said, _ = answered(given.row)
    what = f"{id_} ({given.what})"
    done = _DONE[decision_name(said.decision)]
    if not given.first:
        why = f": {said.reason}" if said.reason else ""
        line = f"{what} was {done} already, by {said.by} at {instant(given.row.created_at)}{why}"
        if given.ours:
            print_text(line)
        else:
            say(one_line(f"{line}; the first answer stands", characters_max=500))
        return
    print_text(f"{what} is {done}")
    if info.run.owner.startswith(OWNER_PREFIX) and not holder(info.last_attempt, this_machine()).live:
        say(f"nobody runs the run; go on with: agentrun resume {info.run.run_id}")
