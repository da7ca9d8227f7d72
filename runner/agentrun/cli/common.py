"""What several commands need: a loop, a run's log, and printing.

Who calls: the commands of this package.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from agentrun.cli.main import say
from agentrun.cli.streams import OutputError, holds_all_characters, put, stdout
from agentrun.local.runs import find_run, no_such_run
from agentrun.local.stores import Place, opened, place_of, reach
from agentrun.log.store import LogStore, RunInfo

T = TypeVar("T")

LEFT_BEHIND_SECONDS_MAX = 1.0
"""How long tasks that were cancelled in the end may take to notice."""


def run_async(main: Coroutine[Any, Any, T]) -> T:
    """As asyncio.run, but waits for no thread: one that looks a name up may hang for minutes."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(main)
    finally:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks, timeout=LEFT_BEHIND_SECONDS_MAX))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


Question = Callable[[LogStore, RunInfo, Place], Awaitable[int]]


def on_run(args: argparse.Namespace, question: Question, *, writes: bool = False) -> int:
    """Finds the run that is named and asks something of it, starting nothing where nothing was kept."""
    with place_of(args.store, create=False) as place:
        if place is None:
            raise no_such_run(args.run)
        return run_async(_ask(place, args.run, question, writes))


async def _ask(place: Place, name: str, question: Question, writes: bool) -> int:
    async with opened(place, writes=writes) as store:
        return await question(store, await reach(lambda: find_run(store, name)), place)


def print_json(value: dict[str, Any]) -> None:
    """One object, indented."""
    put(json.dumps(value, ensure_ascii=not holds_all_characters(), indent=2) + "\n")


def print_json_line(value: dict[str, Any]) -> None:
    """One object, a line."""
    put(json.dumps(value, ensure_ascii=not holds_all_characters(), separators=(",", ":")) + "\n")


@contextmanager
def even_if_nobody_reads() -> Iterator[None]:
    """For what a command prints when its work is done: whether it can be read changes nothing."""
    try:
        yield
    except BrokenPipeError:
        pass
    except OutputError as error:
        say(str(error))


def is_terminal(stream: Any) -> bool:
    """Somebody watches."""
    return bool(stream is not None and stream.isatty())


def print_text(text: str) -> None:
    """An answer with one line break behind it: as it is, but that it cannot steer a terminal."""
    if is_terminal(stdout()):
        text = "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)
    put(text if text.endswith("\n") else text + "\n")
