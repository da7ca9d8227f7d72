"""The command `agentrun`: reads its arguments, runs one command, tells what went wrong.

Who calls: the console script and `python -m agentrun`. What holds: whatever is foreseen
is told in one line on stderr with its exit code; `AGENTRUN_LOG=debug` shows the rest.
Each command's module is imported when it is used.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec

from agentrun.cli import streams
from agentrun.cli.arguments import build
from agentrun.cli.text import printable
from agentrun.log.masks import Masks

EXIT_CANNOT_START = 2
EXIT_FAULT = 70
"""A fault of agentrun itself."""

EXIT_FENCED = 76
EXIT_INTERRUPTED = 130
"""Ctrl-C, in a command that runs nothing."""

EXIT_BROKEN_PIPE = 141
EXIT_OUTPUT = 74
"""What was asked for could not be written: a full disk, for one."""

COMMANDS_GROUP = "agentrun.commands"
"""Entry points of commands that are not of this package."""

LOG_VARIABLE = "AGENTRUN_LOG"
SERVER_VARIABLE = "AGENTRUN_SERVER"

masks = Masks(characters_min=4)
"""Secrets that no line for people shows: those of this process's run, once they are read."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and ends the process: a thread that hangs (a look-up of a name, a tool
    that was left behind) must not keep a finished run's command from ending."""
    said = sys.argv[1:] if argv is None else argv
    if _command_of_another_package(said) is None:
        streams.take_over()
    code = run_command(said)
    streams.flush()
    os._exit(code)


def run_command(argv: Sequence[str]) -> int:
    """Runs the command; its exit code."""
    if (other := _command_of_another_package(argv)) is not None:
        return other(argv[1:])
    try:
        return _run(argv)
    except SystemExit as end:
        return int(end.code or 0)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return EXIT_BROKEN_PIPE
    except streams.OutputError as error:
        say(str(error))
        return EXIT_OUTPUT
    except Exception as error:
        return _tell(error)


def _run(argv: Sequence[str]) -> int:
    parser = build()
    args = parser.parse_args(argv)
    if args.version:
        from importlib.metadata import version

        streams.put(f"agentrun {version('agentrun')}\n")
        return os.EX_OK
    if args.command is None:
        parser.print_help(sys.stderr)
        return EXIT_CANNOT_START
    _set_up_log()
    gc.disable()  # what is imported stays: looking through it in vain costs a tenth of the start
    remote = args.server or ("" if args.store else os.environ.get(SERVER_VARIABLE, ""))
    command = import_module("agentrun.cli.remote" if remote else f"agentrun.cli.{args.command}")
    gc.freeze()
    gc.enable()
    code: int = command.run(args)
    return code


def _command_of_another_package(argv: Sequence[str]) -> Callable[[Sequence[str]], int] | None:
    """`agentrun operator`, say: the library does not know the operator, but its entry point."""
    if not argv or not argv[0].isidentifier() or find_spec(f"agentrun.cli.{argv[0]}") is not None:
        return None
    from importlib.metadata import entry_points

    for entry in entry_points(group=COMMANDS_GROUP, name=argv[0]):
        command: Callable[[Sequence[str]], int] = entry.load()
        return command
    return None


def _set_up_log() -> None:
    level = os.environ.get(LOG_VARIABLE, "").upper()
    if level in ("DEBUG", "INFO", "WARNING", "ERROR"):
        logging.basicConfig(level=level, stream=sys.stderr)
        logging.getLogger().handlers[0].setFormatter(
            _Masking("%(asctime)s %(levelname)s %(name)s: %(message)s")
        )
    else:
        # Python's last resort would print warnings of libraries over a progress display.
        logging.getLogger().addHandler(logging.NullHandler())


class _Masking(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return masks.text(super().format(record))


def _tell(error: Exception) -> int:
    """One line for what is foreseen; its exit code."""
    from agentrun.local.errors import LocalError
    from agentrun.log.errors import Fenced, LogError

    logging.getLogger(__name__).debug("the command failed", exc_info=error)
    if isinstance(error, Fenced):
        say(f"another process has taken the run over ({error.why})")
        return EXIT_FENCED
    foreseen = ("ManifestError", "SetupError", "ApiError", "ServerUnavailable")
    if isinstance(error, LocalError | LogError) or type(error).__name__ in foreseen:
        for line in str(error).splitlines() or [type(error).__name__]:
            say(line)
        return EXIT_CANNOT_START
    say(f"a fault of agentrun: {type(error).__name__}: {error} ({LOG_VARIABLE}=debug shows where)")
    return EXIT_FAULT


def say(line: str) -> None:
    """A line for a person."""
    try:
        print(f"agentrun: {printable(masks.text(line))}", file=sys.stderr, flush=True)
    except (OSError, ValueError):
        pass  # the terminal is gone; the exit code tells
