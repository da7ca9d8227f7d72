"""`agentrun cancel`: ends a run before its time, whoever runs it."""

from __future__ import annotations

import argparse

from agentrun.cli.common import even_if_nobody_reads, on_run, print_json, print_text
from agentrun.cli.main import say
from agentrun.local.cancelling import cancel_run
from agentrun.local.process import this_process
from agentrun.local.reading import read_answer, read_log
from agentrun.local.runs import require_ours
from agentrun.local.stores import Place
from agentrun.local.views import result_view
from agentrun.log.store import LogStore, RunInfo
from agentrun.log.summary import Phase, phase_of
from agentrun.signals import EXIT_PAUSED


def run(args: argparse.Namespace) -> int:
    """The exit code: 0 cancelled, 1 ended otherwise, 75 asked and not ended yet."""

    async def cancel(store: LogStore, info: RunInfo, place: Place) -> int:
        return await _cancel(store, info, args)

    return on_run(args, cancel, writes=True)


async def _cancel(store: LogStore, info: RunInfo, args: argparse.Namespace) -> int:
    require_ours(info)
    already = info.run.ended
    ended = already or await cancel_run(
        store,
        info,
        this_process("agentrun cancel"),
        at_once=args.now,
        reason=args.reason,
        wait_seconds=args.wait_seconds,
        on_asked=lambda who: say(f"asked {who} to end it"),
    )
    log = await read_log(store, info)
    final = log.history.final
    if not ended or final is None:
        phase, reason = Phase.RUNNING, "Cancelling"
        message = "its process was asked, and has not ended it yet"
        code = EXIT_PAUSED
    else:
        phase, reason, message = phase_of(final.final.outcome), final.final.reason, final.final.message
        code = 0 if phase is Phase.CANCELLED else 1
    if args.output == "json":
        answer = await read_answer(store, info, log.history)
        view = result_view(
            info, log.history, phase=phase, reason=reason, message=message, answer=answer, exit_code=code
        )
        with even_if_nobody_reads():
            print_json(view)
        return code
    name = f"run {info.run.run_id}"
    if code == EXIT_PAUSED:
        say(f"{name}: {message}; --now gives up its steps in flight")
    elif code == 0:
        with even_if_nobody_reads():
            print_text(f"{name} {'was cancelled already' if already else 'is cancelled'}")
    else:
        say(f"{name} {'has' if already else 'had'} ended: {phase} ({reason})")
    return code
