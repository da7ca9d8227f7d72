"""How a runner pod ends: its exit code, and the last words that the kubelet keeps.

Who calls: `main`. What holds: the log decides how a run stands; what is said here is
for people, and for an operator that finds no word of this attempt in the log.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from agentrun.proto import log_pb2 as pb
from agentrun.signals import EXIT_PAUSED

EXIT_SUCCEEDED = 0
EXIT_FAILED = 1
EXIT_CANNOT_START = 2
EXIT_FAULT = 70
"""A fault of agentrun itself; to the operator any other crash."""

EXIT_FENCED = 76
MESSAGE_BYTES_MAX = 1024

_CODES = {pb.OUTCOME_SUCCEEDED: EXIT_SUCCEEDED, pb.OUTCOME_UNSPECIFIED: EXIT_PAUSED}


@dataclass(frozen=True, kw_only=True)
class Ending:
    """`phase` is the run's, as far as this process knows it. `reason` is CamelCase."""

    code: int
    phase: str = ""
    reason: str
    message: str = ""

    @property
    def note(self) -> str:
        """For the attempt's `reason` in the store: the reason, and what there is to say about it."""
        return f"{self.reason}: {self.message}" if self.message else self.reason


class CannotStart(Exception):
    """The run cannot start as it is written or as its pod is made: exit code 2."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.ending = Ending(code=EXIT_CANNOT_START, reason=reason, message=cut(message))


def code_of(outcome: pb.Outcome) -> int:
    """The exit code for how a run ended, or paused (UNSPECIFIED)."""
    return _CODES.get(outcome, EXIT_FAILED)


def cut(text: str, bytes_max: int = MESSAGE_BYTES_MAX) -> str:
    """At most so many bytes of UTF-8, and no NUL, which the store does not take."""
    data = text.replace("\0", "").encode("utf-8", "replace")
    if len(data) <= bytes_max:
        return data.decode()
    return data[: bytes_max - 3].decode("utf-8", "ignore") + "…"


def write_last_words(ending: Ending, file: Path) -> None:
    """Where there is such a file and it may be written; it is never made."""
    words = {
        "exitCode": ending.code,
        "phase": ending.phase,
        "reason": ending.reason,
        "message": ending.message,
    }
    try:
        handle = os.open(file, os.O_WRONLY | os.O_TRUNC)
    except OSError:
        return
    try:
        os.write(handle, json.dumps(words, ensure_ascii=False).encode())
    except OSError:
        pass
    finally:
        os.close(handle)
