"""The commands with `--server`: the same words, asked of an agentrun API.

Who calls: `main`. What holds: what is printed has the shapes of the commands that read a store
themselves, as far as the API tells them; whoever stops watching a run stops nothing but the view.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from agentrun.cli.common import even_if_nobody_reads, print_json, print_json_line, print_text, run_async
from agentrun.cli.main import SERVER_VARIABLE, say
from agentrun.cli.text import limit, printable, shortest_unique, table
from agentrun.client import RECORD, ApiError, Client, Event, ServerUnavailable
from agentrun.local.answering import check_arguments
from agentrun.local.errors import LocalError, NoSuchRun
from agentrun.local.runs import check_prefix
from agentrun.log.asks import ARGUMENTS_BYTES_MAX, WAITING_REASONS

TOKEN_VARIABLE, TOKEN_FILE_VARIABLE = "AGENTRUN_TOKEN", "AGENTRUN_TOKEN_FILE"

EXIT_PAUSED = 75
SEARCHED_RUNS_MAX = 1000
MANIFEST_BYTES_MAX = 4 * 1024 * 1024
PARKED_POLL_SECONDS = 2.0
PARKED = frozenset({"Suspended", "BudgetExceeded", "ApprovalRequired", "OutcomeUnknown", "CannotStart"})
"""Why a run is parked that nothing but a person moves."""

_CODES = {"Succeeded": 0, "Paused": EXIT_PAUSED}

Answered = Callable[[Client, argparse.Namespace], Awaitable[int]]


def run(args: argparse.Namespace) -> int:
    """The exit code."""
    server = args.server or os.environ[SERVER_VARIABLE]
    work = _COMMANDS[args.command]
    try:
        return run_async(_ask(server, work, args))
    except ValueError as error:  # of the server's address
        raise LocalError(f"--server: {error}") from None


async def _ask(server: str, work: Answered, args: argparse.Namespace) -> int:
    async with Client(server, _token(server), on_away=_away()) as client:
        return await work(client, args)


def _away() -> Callable[[str], None]:
    told: set[str] = set()

    def tell(why: str) -> None:
        if why not in told:
            told.add(why)
            say(f"waiting for the server: {why}")

    return tell


def _token(server: str) -> str:
    """Of the environment, of a file, or of this machine's own server. Raises LocalError."""
    if token := os.environ.get(TOKEN_VARIABLE, "").strip():
        return token
    named = os.environ.get(TOKEN_FILE_VARIABLE)
    file = Path(named) if named else _file_of_this_machine(server)
    if file is None:
        raise LocalError(f"{server} needs a token: set {TOKEN_VARIABLE} or {TOKEN_FILE_VARIABLE}")
    try:
        return file.read_text().strip()
    except (OSError, ValueError) as error:
        raise LocalError(f"the token's file {file} cannot be read: {error}") from error


def _file_of_this_machine(server: str) -> Path | None:
    host = urlsplit(server).hostname or ""
    with suppress(ValueError):
        if host == "localhost" or ip_address(host).is_loopback:
            from agentrun.local.pg_install import default_data_dir

            return default_data_dir() / "api-token"
    return None


async def _find(client: Client, name: str) -> str:
    """The id of the run with that id, or of the only one whose id begins so. Raises NoSuchRun."""
    check_prefix(name)
    if len(name) == 36:
        return name.lower()
    runs = await client.runs(limit=SEARCHED_RUNS_MAX)
    found = [run["runID"] for run in runs if run["runID"].startswith(name.lower())]
    if len(found) != 1:
        how = "no run has" if not found else f"{len(found)} runs have"
        raise NoSuchRun(f"{how} an id that begins with {name!r}")
    return str(found[0])


# --- the commands


async def _run(client: Client, args: argparse.Namespace) -> int:
    if args.run_id or args.take_over:
        raise LocalError("--run-id and --take-over are for runs on this machine; spec.runID names a run")
    run = await client.start(_manifest(args.file))
    run_id = run["runID"]
    if not args.quiet:
        say(f"run {run_id}; Ctrl-C stops watching it, and the run goes on")
    return await _watch(client, run_id, args, after=0)


def _manifest(file: str) -> bytes:
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise LocalError(f"{file} cannot be read: {error.strerror or error}") from error
    if len(data) > MANIFEST_BYTES_MAX:
        raise LocalError(f"{file}: a manifest has at most {MANIFEST_BYTES_MAX} bytes")
    return data


async def _watch(client: Client, run_id: str, args: argparse.Namespace, *, after: int) -> int:
    """Until the run has ended, or is parked and waits for somebody."""
    parts = [
        asyncio.create_task(_print_records(client, run_id, args, after)),
        asyncio.create_task(_parked(client, run_id)),
    ]
    done, rest = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
    for part in rest:
        part.cancel()
    for part in done:
        part.result()
    return await _report(client, run_id, args)


async def _print_records(client: Client, run_id: str, args: argparse.Namespace, after: int) -> None:
    async for event in client.events(run_id, after=after):
        if event.kind == RECORD and not args.quiet:
            say(_line(event))


async def _parked(client: Client, run_id: str) -> None:
    """Waits until nothing but a person moves the run; a server that is away is asked again."""
    while True:
        await asyncio.sleep(PARKED_POLL_SECONDS)
        with suppress(ServerUnavailable):
            run = await client.run(run_id)
            live = any(attempt["live"] for attempt in run["attempts"])
            if run["phase"] == "Paused" and run["reason"] in PARKED and not live:
                return


async def _report(client: Client, run_id: str, args: argparse.Namespace) -> int:
    run = await client.run(run_id)
    answer = await client.answer(run_id) if run["phase"] == "Succeeded" else None
    code = _CODES.get(run["phase"], 1)
    if run["phase"] != "Succeeded":
        message = f": {printable(run['message'])}" if run["message"] else ""
        say(f"{run['phase'].lower()} ({run['reason']}){message}")
    if run["phase"] == "Paused" and run["reason"] in WAITING_REASONS:
        say(f"answer with: agentrun approve {run_id} ID (or deny)")
    with even_if_nobody_reads():
        if args.output == "json":
            print_json({**run, "answer": answer, "exitCode": code})
        elif answer is not None:
            print_text(answer)
    return code


def _line(event: Event) -> str:
    data = event.data
    return f"{data['seq']:>5}  {data['time'] or '-'}  {data['node']:<16}  {data['kind']:<20}  {data['what']}"


async def _events(client: Client, args: argparse.Namespace) -> int:
    run_id = await _find(client, args.run)
    head = None if args.follow else (await client.run(run_id))["head"]
    if head is not None and head <= args.after:
        return 0
    async for event in client.events(run_id, after=args.after):
        if event.kind == RECORD:
            print_json_line(dict(event.data)) if args.output == "json" else print_text(_line(event).rstrip())
        if event.seq is not None and event.seq == head:
            return 0
    return 0


async def _list(client: Client, args: argparse.Namespace) -> int:
    runs = await client.runs(limit=args.limit)
    if args.output == "json":
        print_json({"runs": runs})
    elif not runs:
        say("there are no runs")
    else:
        length = shortest_unique([run["runID"] for run in runs])
        rows = [["PHASE", "NAME", "ID", "CREATED", "TURNS", "TOKENS", "REASON"]]
        for run in runs:
            figures = [str(run["turns"]), f"{run['tokens']:,}", run["reason"]]
            rows.append([run["phase"], run["name"], run["runID"][:length], run["createdAt"] or "-", *figures])
        print_text(table(rows, right=(4, 5)))
    return 0


async def _show(client: Client, args: argparse.Namespace) -> int:
    run_id = await _find(client, args.run)
    run = await client.run(run_id)
    answer = await client.answer(run_id) if run["phase"] == "Succeeded" else None
    if args.output == "json":
        print_json({**run, "answer": answer})
    else:
        print_text(_text(run, answer))
    return 0


def _text(run: dict[str, Any], answer: str | None) -> str:
    reason = f" ({run['reason']})" if run["reason"] else ""
    rows = [["run", run["runID"]], ["name", run["name"]], ["namespace", run["namespace"]]]
    rows += [
        ["phase", run["phase"] + reason],
        ["message", run["message"]],
        ["created", run["createdAt"] or ""],
    ]
    rows += [["ended", run["endedAt"] or ""]]
    for name in ("tokens", "turns", "retries", "wallSeconds"):
        figures = run["budget"][name]
        rows.append([name, limit(figures["used"], figures["limit"])])
    attempts = [["ATTEMPT", "OUTCOME", "REASON", "STARTED", "PROCESS"]]
    for each in run["attempts"]:
        outcome = each["outcome"] or ("running" if each["live"] else "")
        cells = [str(each["attempt"]), outcome, each["reason"], each["startedAt"] or "", each["process"]]
        attempts.append(cells)
    parts = [table([row for row in rows if row[1]])]
    parts += [table(attempts, right=(0,))] if run["attempts"] else []
    parts += ["ANSWER\n" + answer.rstrip("\n")] if answer is not None else []
    return "\n\n".join(parts)


async def _resume(client: Client, args: argparse.Namespace) -> int:
    if args.take_over:
        raise LocalError("--take-over is for runs on this machine")
    run_id = await _find(client, args.run)
    named = {
        "tokens": args.budget_tokens,
        "wallSeconds": args.budget_wall_seconds,
        "turns": args.budget_turns,
        "retries": args.budget_retries,
    }
    run = await client.run(run_id)
    try:
        await client.resume(run_id, {name: value for name, value in named.items() if value is not None})
    except ApiError as error:
        if error.reason != "RunEnded":
            raise
        return await _report(client, run_id, args)
    return await _watch(client, run_id, args, after=run["head"])


async def _cancel(client: Client, args: argparse.Namespace) -> int:
    run_id = await _find(client, args.run)
    run = await client.cancel(run_id, at_once=args.now)
    if args.output == "json":
        print_json(run)
    elif run["phase"] == "Cancelled":
        print_text(f"run {run_id} is cancelled")
    else:
        say(f"run {run_id} was asked to end: {run['phase']} {run['reason']}".rstrip())
    return 0 if run["phase"] == "Cancelled" else 1 if run["phase"] in ("Succeeded", "Failed") else EXIT_PAUSED


async def _approvals(client: Client, args: argparse.Namespace) -> int:
    calls = await client.approvals(await _find(client, args.run))
    if args.output == "json":
        print_json({"approvals": calls})
    elif not calls:
        say("no call waits for an answer")
    else:
        rows = [["ID", "TOOL", "REASON", "ARGUMENTS"]]
        rows += [[call["id"], call["tool"], call["reason"], call["arguments"] or "-"] for call in calls]
        print_text(table(rows))
    return 0


async def _decide(client: Client, args: argparse.Namespace) -> int:
    run_id = await _find(client, args.run)
    arguments = None
    if (text := getattr(args, "arguments", None)) is not None:
        check_arguments(text, ARGUMENTS_BYTES_MAX)
        arguments = json.loads(text)
    try:
        given = await client.decide(
            run_id, args.id, approve=args.command == "approve", reason=args.reason, arguments=arguments
        )
    except ApiError as error:
        if error.reason != "Answered":
            raise
        say(str(error))
        return 1  # as without a server: the first answer stands
    if args.output == "json":
        print_json(given)
    else:
        again = "" if given["first"] else " already"
        said = "approved" if given["approved"] else "denied"
        print_text(f"{given['tool']} was{again} {said} by {given['by']}")
    return 0


_COMMANDS: dict[str, Answered] = {
    "run": _run,
    "resume": _resume,
    "list": _list,
    "show": _show,
    "events": _events,
    "cancel": _cancel,
    "approvals": _approvals,
    "approve": _decide,
    "deny": _decide,
}
