"""The command line: what may be said, and what `--help` tells.

Who calls: `main`. Imports next to nothing: help and mistakes are told at once.
"""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from agentrun.cli.streams import put

EXIT_CODES = "exit codes: 0 ended well, 1 ended in failure, 2 cannot start, 75 paused, 76 fenced off"

RUN_HELP = "the run's id, or its beginning (at least 4 characters)"


class Parser(argparse.ArgumentParser):
    """Tells a mistake in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"agentrun: {message} (see {self.prog} --help)\n")

    def print_help(self, file: Any = None) -> None:
        """To stdout unless told otherwise; there a failure is told."""
        if file is None:
            put(self.format_help())
        else:
            super().print_help(file)


def positive(text: str) -> int:
    """A whole number of at least 1."""
    return _whole(text, 1)


def natural(text: str) -> int:
    """A whole number of at least 0."""
    return _whole(text, 0)


def _whole(text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least {least}, not {text!r}")
    return value


def build() -> Parser:
    """The parser. `command` names the module of this package that does it."""
    parser = Parser(
        prog="agentrun",
        description="Durable runs of AI agents: a finished step is never lost.",
        epilog=EXIT_CODES,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="say which version this is")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", parser_class=Parser)
    _add_run(commands)
    _add_resume(commands)
    _add_list(commands)
    _add_show(commands)
    _add_events(commands)
    _add_cancel(commands)
    _add_answers(commands)
    return parser


def _command(commands: argparse._SubParsersAction[Parser], name: str, says: str) -> Parser:
    made = commands.add_parser(name, help=says, description=says, epilog=EXIT_CODES, allow_abbrev=False)
    made.add_argument("-o", "--output", choices=("text", "json"), default="text", help="default: text")
    made.add_argument(
        "--store",
        metavar="DSN",
        help="a postgresql:// URL (default: AGENTRUN_DATABASE_URL, else a Postgres of this machine's own)",
    )
    made.add_argument(
        "--server",
        metavar="URL",
        help="ask an agentrun API for it (default: AGENTRUN_SERVER, where no --store is named)",
    )
    return made


def _add_run(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = _command(commands, "run", "run a manifest here, or go on with its run")
    parser.add_argument("file", metavar="FILE", help="the manifest; - reads standard input")
    parser.add_argument("--run-id", metavar="UUID", help="the run's id (default: spec.runID, else a new one)")
    _add_running(parser)


def _add_resume(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = _command(commands, "resume", "go on with a run")
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)
    _add_running(parser)
    limits = parser.add_argument_group("raise the budget")
    limits.add_argument("--budget-tokens", metavar="N", type=positive)
    limits.add_argument("--budget-wall-seconds", metavar="N", type=positive)
    limits.add_argument("--budget-turns", metavar="N", type=positive)
    limits.add_argument("--budget-retries", metavar="N", type=natural)


def _add_running(parser: Parser) -> None:
    parser.add_argument(
        "--take-over", action="store_true", help="take the run from the live process that runs it"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress, only the answer")


def _add_list(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = _command(commands, "list", "list runs, the newest first")
    parser.add_argument("--limit", metavar="N", type=positive, default=50, help="default: 50")


def _add_show(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = _command(commands, "show", "show a run: outcome, answer, budget, attempts, steps")
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)


def _add_events(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = _command(commands, "events", "print a run's log, a line a record")
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)
    parser.add_argument("--after", metavar="SEQ", type=natural, default=0, help="begin behind this record")
    parser.add_argument(
        "-f", "--follow", action="store_true", help="wait for further records until the run has ended"
    )


def _add_cancel(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = _command(commands, "cancel", "end a run before its time")
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)
    parser.add_argument("--now", action="store_true", help="give up the steps in flight")
    parser.add_argument("--reason", metavar="TEXT", default="", help="for the record")
    parser.add_argument(
        "--wait-seconds",
        metavar="N",
        type=positive,
        default=60,
        help="how long a live process may take to end it (default: 60)",
    )


def _add_answers(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = _command(commands, "approvals", "list the calls of a run that wait for a person")
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)
    for name, says in (
        ("approve", "let a call be made that waits for a person"),
        ("deny", "say no to a call that waits for a person"),
    ):
        parser = _command(commands, name, says)
        parser.add_argument("run", metavar="RUN", help=RUN_HELP)
        parser.add_argument("id", metavar="ID", help="the call's id, as `agentrun approvals RUN` lists it")
        parser.add_argument("--reason", metavar="TEXT", default="", help="for the record, and for the model")
        if name == "approve":
            parser.add_argument(
                "--arguments", metavar="JSON", help="call with these in place of the model's arguments"
            )
