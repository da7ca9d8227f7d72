"""Which process this is, and whether another one of this machine still lives.

Who calls: whatever allocates an attempt (to say who tries) or asks who holds a run.
What holds: a process is named by more than its number, which the system gives away
again: machine, boot, process namespace, number and start time. Where the system
cannot tell, nothing is claimed.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Process:
    """A process as `run_attempt.process` names it (JSON). "" and 0: not known. `generation`: of
    the levels that held when it was given the attempt."""

    host: str = ""
    boot_id: str = ""
    pid_namespace: str = ""
    pid: int = 0
    start_ticks: int = 0
    command: str = ""
    generation: int = 0

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self), separators=(",", ":"))


_FIELDS = (
    ("host", str),
    ("boot_id", str),
    ("pid_namespace", str),
    ("command", str),
    ("pid", int),
    ("start_ticks", int),
    ("generation", int),
)


@dataclass(frozen=True, kw_only=True)
class Machine:
    """This machine as this process sees it. `start_ticks`: of a process that lives, else None."""

    host: str
    boot_id: str
    pid_namespace: str
    start_ticks: Callable[[int], int | None]


def parse_process(text: str) -> Process:
    """The reverse of `to_json`; what cannot be read is not known."""
    try:
        value = json.loads(text)
    except ValueError:
        return Process()
    if not isinstance(value, dict):
        return Process()
    known = {name: value[name] for name, kind in _FIELDS if isinstance(value.get(name), kind)}
    return Process(**known)


def this_machine() -> Machine:
    """The machine, boot and process namespace that this process lives in."""
    return Machine(
        host=socket.gethostname(),
        boot_id=_read("/proc/sys/kernel/random/boot_id"),
        pid_namespace=_link("/proc/self/ns/pid"),
        start_ticks=start_ticks,
    )


def this_process(command: str) -> Process:
    """`command`: a few words, without arguments, which may hold passwords."""
    machine = this_machine()
    return Process(
        host=machine.host,
        boot_id=machine.boot_id,
        pid_namespace=machine.pid_namespace,
        pid=os.getpid(),
        start_ticks=start_ticks(os.getpid()) or 0,
        command=command,
    )


def start_ticks(pid: int) -> int | None:
    """When the process started, in the kernel's ticks since its boot; None: it does not live."""
    stat = _read(f"/proc/{pid}/stat")
    # The name in brackets may hold anything, brackets and blanks too.
    fields = stat.rpartition(")")[2].split()
    if len(fields) < 20 or fields[0] in ("Z", "X"):
        return None
    return int(fields[19])


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _link(path: str) -> str:
    try:
        return str(Path(path).readlink())
    except OSError:
        return ""
