"""The three standard streams of the command, whatever it was started with.

Who calls: `main` takes them over once a process; the commands write what was asked for
with `put`. What holds: that alone reaches stdout. What a tool, or a library, or a child
of theirs prints goes to stderr, so that `-o json` is JSON and an answer is an answer.
"""

from __future__ import annotations

import codecs
import os
import sys
from contextlib import suppress
from typing import TextIO

STDIN, STDOUT, STDERR = 0, 1, 2


class OutputError(Exception):
    """What was asked for could not be written; the message says why."""


class _Stdout:
    """`kept`: the real one, where this process has taken its streams over."""

    kept: TextIO | None = None


def take_over() -> None:
    """Once a process, before anything is written. A stream that was closed becomes nothing; no
    text is refused for the sake of an encoding; file descriptor 1 leads to stderr from now on."""
    closed = [number for number in (STDIN, STDOUT, STDERR) if not _is_open(number)]
    for number in closed:  # or the next file, or socket, that is opened becomes a standard stream
        nowhere = os.open(os.devnull, os.O_RDWR)
        if nowhere != number:
            os.dup2(nowhere, number)
            os.close(nowhere)
    if sys.stderr is None:
        sys.stderr = _opened(STDERR)
    if sys.stdout is None:
        sys.stdout = _opened(STDOUT)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    kept = os.dup(STDOUT)
    _Stdout.kept = os.fdopen(kept, "w", encoding=sys.stdout.encoding, errors="backslashreplace")
    os.dup2(STDERR, STDOUT)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(line_buffering=True)  # among the progress, and not behind it


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _opened(descriptor: int) -> TextIO:
    return os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace", closefd=False)


def stdout() -> TextIO:
    """Where what was asked for goes."""
    return _Stdout.kept or sys.stdout


def put(text: str) -> None:
    """Writes what was asked for, at once. Raises BrokenPipeError where nobody reads it any more,
    else OutputError where it cannot be written."""
    stream = stdout()
    try:
        stream.write(text)
        stream.flush()
    except OSError as error:
        _give_up(stream)
        if isinstance(error, BrokenPipeError):
            raise
        raise OutputError(f"the output cannot be written: {error.strerror}") from error


def holds_all_characters() -> bool:
    """Whether stdout's encoding has all of them."""
    try:
        return codecs.lookup(stdout().encoding or "ascii").name.startswith("utf")
    except LookupError:
        return False


def _give_up(stream: TextIO) -> None:
    """What is left in its buffer goes nowhere: flushing it again would fail again."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
        stream.flush()


def flush() -> None:
    """What tools have printed, before the process ends."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            if stream is not None:  # where nobody took them over
                stream.flush()
