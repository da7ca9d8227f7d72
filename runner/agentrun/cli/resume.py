"""`agentrun resume`: goes on with a run from its stored definition, without its file."""

from __future__ import annotations

import argparse
from typing import Any

from agentrun.cli.attend import attend, make_program, report_ended, with_texts
from agentrun.cli.common import on_run
from agentrun.cli.main import say
from agentrun.local.holders import holder
from agentrun.local.levels import change_levels, of_resume
from agentrun.local.process import this_machine
from agentrun.local.runs import require_free, require_ours, spec_of
from agentrun.local.stores import Place
from agentrun.log.store import LogStore, RunInfo
from agentrun.signals import EXIT_PAUSED, Interrupted, Signals, interrupt


def run(args: argparse.Namespace) -> int:
    """The exit code."""
    with Signals(interrupt) as signals:

        async def resume(store: LogStore, info: RunInfo, place: Place) -> int:
            return await _resume(store, info, place, args, signals)

        try:
            return on_run(args, resume, writes=True)
        except Interrupted:
            say("stopped before the run went on")
            return EXIT_PAUSED


async def _resume(
    store: LogStore, info: RunInfo, place: Place, args: argparse.Namespace, signals: Signals
) -> int:
    require_ours(info)
    if info.run.ended:
        return await report_ended(store, info, args)
    if not args.take_over:
        require_free(info.run.run_id, holder(info.last_attempt, this_machine()))
    spec = await spec_of(store, info, lambda named: with_texts(named, info.run.name))
    program = make_program(spec, info.run.name, args.store)
    await change_levels(store, info, of_resume(_raised(args)))
    return await attend(
        store,
        info,
        program,
        place=place,
        args=args,
        signals=signals,
        grace_seconds=spec.termination_grace_period_seconds,
    )


def _raised(args: argparse.Namespace) -> dict[str, Any]:
    """The limits that were named, by the manifest's names."""
    named = {
        "tokens": args.budget_tokens,
        "wallSeconds": args.budget_wall_seconds,
        "turns": args.budget_turns,
        "retries": args.budget_retries,
    }
    return {name: value for name, value in named.items() if value is not None}
