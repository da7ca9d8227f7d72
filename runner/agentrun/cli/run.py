"""`agentrun run`: a manifest becomes a run, or goes on with the one that it was.

What holds: all that can be wrong with a manifest is found before anything is made; a
run that is there already is recognised by its definition, and what runs is the stored
one, with the texts that were read first.
"""

from __future__ import annotations

import argparse
import stat
import sys
from pathlib import Path
from uuid import UUID

from agentrun.agent import Program
from agentrun.cli.attend import attend, make_program, report_ended, with_texts
from agentrun.cli.common import run_async
from agentrun.cli.main import say
from agentrun.local.errors import LocalError, NoSuchRun
from agentrun.local.holders import holder
from agentrun.local.levels import change_levels, of_manifest
from agentrun.local.process import this_machine
from agentrun.local.runs import definition_of, make_run, new_run_id, require_free, spec_of
from agentrun.local.stores import Place, opened, place_of, reach
from agentrun.signals import EXIT_PAUSED, Interrupted, Signals, interrupt
from agentrun.spec import AgentRun, AgentRunSpec, load_manifest

MANIFEST_BYTES_READ_MAX = 4 * 1024 * 1024 + 1
"""One more than a document may have: enough to be told that it is too long."""


def run(args: argparse.Namespace) -> int:
    """The exit code."""
    with Signals(interrupt) as signals:
        try:
            manifest, spec, program = _read(args.file, args.store)
            run_id = _run_id(args.run_id, manifest)
            with place_of(args.store) as place:
                assert place is not None
                return run_async(_run(place, run_id, manifest, spec, program, args, signals))
        except Interrupted:
            say("stopped before the run began")
            return EXIT_PAUSED


def _read(file: str, store: str | None) -> tuple[AgentRun, AgentRunSpec, Program]:
    """The manifest, its spec with all texts, and what it runs.

    Raises ManifestError, SetupError, LocalError.
    """
    source, folder = ("standard input", Path()) if file == "-" else (file, Path(file).parent)
    try:
        text = _read_stdin() if file == "-" else _read_file(Path(file))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise LocalError(f"{source} cannot be read: {why}") from error
    manifest = load_manifest(text, source=source, base_dir=folder)
    spec = with_texts(manifest.spec, source)
    return manifest, spec, make_program(spec, source, store)


def _read_stdin() -> bytes:
    if sys.stdin is None:
        raise ValueError("it is closed")
    return sys.stdin.buffer.read(MANIFEST_BYTES_READ_MAX)


def _read_file(path: Path) -> bytes:
    """Raises OSError, ValueError: what has no end, or waits for a person, is no manifest."""
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISDIR(mode)):
        raise ValueError("it is neither a file nor a pipe")
    with path.open("rb") as opened:
        return opened.read(MANIFEST_BYTES_READ_MAX)


def _run_id(named: str | None, manifest: AgentRun) -> UUID:
    if named is None:
        return manifest.spec.run_id or new_run_id()
    try:
        return UUID(named)
    except ValueError:
        raise NoSuchRun(f"--run-id must be a UUID, not {named[:60]!r}") from None


async def _run(
    place: Place,
    run_id: UUID,
    manifest: AgentRun,
    spec: AgentRunSpec,
    program: Program,
    args: argparse.Namespace,
    signals: Signals,
) -> int:
    async with opened(place, writes=True) as store:
        info = await reach(lambda: make_run(store, run_id, manifest))
        if info.run.ended:
            return await report_ended(store, info, args)
        if not args.take_over:
            require_free(run_id, holder(info.last_attempt, this_machine()))
        standing = await spec_of(store, info, lambda _: spec)
        if definition_of(standing) != definition_of(spec):  # its texts have changed since
            program = make_program(standing, args.file, args.store)
        await change_levels(store, info, of_manifest(manifest.spec))
        return await attend(
            store,
            info,
            program,
            place=place,
            args=args,
            signals=signals,
            grace_seconds=manifest.spec.termination_grace_period_seconds,
        )
