"""Runs a run at this terminal, from its attempt to the line that says how it stands.

Who calls: the commands `run` and `resume`. What holds: the exit code is that of the
log's outcome; whoever stops watching loses nothing but the view.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

from agentrun.agent import Program, prepare
from agentrun.cli.common import even_if_nobody_reads, print_json, print_text
from agentrun.cli.main import masks, say
from agentrun.cli.progress import Progress, choose_progress
from agentrun.graph.executor import Outcome
from agentrun.graph.session import CLOSE_SECONDS_MAX, Session
from agentrun.local.keeping import keep_alive
from agentrun.local.process import this_process
from agentrun.local.reading import payload, read_log
from agentrun.local.records import MESSAGE_CHARACTERS_MAX, answer_of, one_line, result_text
from agentrun.local.runs import allocate
from agentrun.local.stores import DSN_VARIABLE, Place, passwords, without_password
from agentrun.local.views import result_view
from agentrun.log.asks import WAITING_REASONS
from agentrun.log.errors import RunEnded, StoreUnavailable
from agentrun.log.replay import History
from agentrun.log.store import LogStore, RunInfo
from agentrun.log.summary import Phase, phase_of
from agentrun.proto import log_pb2 as pb
from agentrun.signals import AT_ONCE_SECONDS_MAX, EXIT_PAUSED, Signals, close_attempt_apart
from agentrun.spec import CONFIG_DIR_VARIABLE, AgentRunSpec, resolve_secrets, resolve_texts

_LIMIT_OPTIONS = {
    "tokens": "--budget-tokens",
    "wallSeconds": "--budget-wall-seconds",
    "turns": "--budget-turns",
    "retries": "--budget-retries",
}


def with_texts(spec: AgentRunSpec, source: str) -> AgentRunSpec:
    """The spec with the texts that it names. Raises ManifestError."""
    folder = os.environ.get(CONFIG_DIR_VARIABLE)
    return resolve_texts(spec, Path(folder) if folder else None, source=source)


def make_program(spec: AgentRunSpec, source: str, store: str | None) -> Program:
    """What runs, with its secrets out of the environment. Raises ManifestError, SetupError.

    From here on no line for people shows a secret. `store`: as an option has named it."""
    secrets = resolve_secrets(spec, os.environ, source=source)
    hidden = [form for dsn in (store, os.environ.get(DSN_VARIABLE)) if dsn for form in passwords(dsn)]
    masks.add([*secrets.values(), *hidden])
    folder = os.environ.get(CONFIG_DIR_VARIABLE)
    return prepare(spec, secrets, hidden=hidden, config_dir=Path(folder) if folder else None)


async def attend(
    store: LogStore,
    info: RunInfo,
    program: Program,
    *,
    place: Place,
    args: argparse.Namespace,
    signals: Signals,
    grace_seconds: float,
) -> int:
    """Gets an attempt and runs it; the exit code. Raises HeldElsewhere, Fenced, …"""
    process = this_process(f"agentrun {args.command}")
    # From here on a signal ends an attempt that says so, and is not to be taken for a crash.
    watch = partial(
        signals.watch, words_seconds=grace_seconds, end_seconds=grace_seconds + AT_ONCE_SECONDS_MAX
    )
    watch(_later, _later)
    allocated = await allocate(store, info.run.run_id, process, take_over=args.take_over)
    info = allocated.info
    if allocated.attempt is None:
        return await report_ended(store, info, args)
    run_id, attempt = info.run.run_id, allocated.attempt
    signals.last_words = lambda: close_attempt_apart(place.open, run_id, attempt)
    progress = choose_progress(quiet=args.quiet)
    session = Session(
        store,
        program,
        run_id=run_id,
        attempt=attempt,
        process=f"{process.command} on {process.host}, pid {process.pid}",
        grace_seconds=grace_seconds,
        observer=progress.observe,
        on_claimed=progress.claimed,
        result_text=result_text,
    )
    signals.on_hard_end = lambda: _hard_end(progress, info, args)
    watch(session.stop, session.stop_at_once)
    if signals.count:
        session.stop()
    progress.begin(info, attempt)
    try:
        async with _kept_alive(place, progress):
            outcome = await session.run()
    except RunEnded:
        return await report_ended(store, info, args)
    except StoreUnavailable as error:
        outcome = Outcome(outcome=pb.OUTCOME_UNSPECIFIED, reason="StoreUnavailable", message=str(error))
    finally:
        progress.end()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS_MAX):
                await program.close()
    return await _report(store, info, progress.history or History(info.run.run_id), outcome, args)


@asynccontextmanager
async def _kept_alive(place: Place, progress: Progress) -> AsyncIterator[None]:
    """A server of our own is started again when it dies meanwhile."""
    if place.server is None:
        yield
        return
    keeping = asyncio.create_task(keep_alive(place.server, progress.note))
    try:
        yield
    finally:
        keeping.cancel()


def _later() -> None:
    """The signal is counted; the session is told when there is one."""


def _hard_end(progress: Progress, info: RunInfo, args: argparse.Namespace) -> None:
    """The process ends where it stands, a step in the middle."""
    progress.restore()
    say("paused (Terminated)")
    say(f"go on with: {_how_to_go_on(info, 'Terminated', '', args)}")


async def report_ended(store: LogStore, info: RunInfo, args: argparse.Namespace) -> int:
    """Says how a run ended that somebody else has ended."""
    log = await read_log(store, info)
    final = log.history.final
    assert final is not None, "a run that has ended has a final record"
    said = final.final
    outcome = Outcome(outcome=said.outcome, reason=said.reason, message=said.message)
    return await _report(store, info, log.history, outcome, args)


async def _report(
    store: LogStore, info: RunInfo, history: History, outcome: Outcome, args: argparse.Namespace
) -> int:
    """Says how the run stands; the exit code."""
    phase, reason, message = phase_of(outcome.outcome), outcome.reason, outcome.message
    code = {Phase.SUCCEEDED: 0, Phase.PAUSED: EXIT_PAUSED}.get(phase, 1)
    answer = None
    if history.final is not None and phase is Phase.SUCCEEDED:
        answer = answer_of(history.final, await payload(store, info, history.final.output))
    if phase is not Phase.SUCCEEDED:
        told = f": {one_line(message, characters_max=MESSAGE_CHARACTERS_MAX)}" if message else ""
        say(f"{phase.lower()} ({reason}){told}")
    if phase is Phase.PAUSED:
        if reason in WAITING_REASONS:
            say(f"answer with: {_command(info, 'approve', args)} ID (or deny)")
        say(f"go on with: {_how_to_go_on(info, reason, message, args)}")
    with even_if_nobody_reads():
        if args.output == "json":
            view = result_view(
                info, history, phase=phase, reason=reason, message=message, answer=answer, exit_code=code
            )
            print_json(view)
        elif answer is not None:
            print_text(answer)
    return code


def _how_to_go_on(info: RunInfo, reason: str, message: str, args: argparse.Namespace) -> str:
    """The command that goes on, with the options that it needs."""
    text = _command(info, "resume", args)
    if reason == "BudgetExceeded":
        limit = message.partition(":")[0].removeprefix("budget.")
        option = _LIMIT_OPTIONS.get(limit)
        if option is not None:
            raised = f"spec.budget.{limit}"
            text += f" {option} N (or raise {raised} and run the manifest again with this --run-id)"
    return text


def _command(info: RunInfo, name: str, args: argparse.Namespace) -> str:
    """A command on the run, with the store that this one was given."""
    words = ["agentrun", name, str(info.run.run_id)]
    if args.store:
        words += ["--store", without_password(args.store)]
    return " ".join(shlex.quote(word) for word in words)
