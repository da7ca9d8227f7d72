"""Locks on files between commands of one machine, and bounded waiting.

For `agentrun.local.embedded`. The kernel frees a lock when the last process that
has the file open ends, however it ends: no lock is ever stale.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK_SECONDS_MAX = 120.0
PAUSE_SECONDS_MAX = 0.02


class LockTimeout(Exception):
    """Somebody held the lock the whole time."""


def open_private(path: Path, flags: int = os.O_RDWR) -> int:
    """Opens a file that its folder's owner alone may read, made if it is missing; no links."""
    handle = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    if os.geteuid() == 0:  # root at work in somebody's folder leaves nothing that they cannot open
        owner = path.parent.stat()
        os.fchown(handle, owner.st_uid, owner.st_gid)
    return handle


def locked(handle: int, how: int) -> bool:
    """Takes the lock (`fcntl.LOCK_SH` or `LOCK_EX`) if it is free. A lock held before is given up."""
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def exclusive(path: Path) -> Iterator[int]:
    """Holds the file's lock alone, waiting up to LOCK_SECONDS_MAX; gives the open file."""
    handle = open_private(path)
    try:
        for _ in patience(LOCK_SECONDS_MAX):
            if locked(handle, fcntl.LOCK_EX):
                break
        else:
            raise LockTimeout(str(path))
        yield handle
    finally:
        os.close(handle)


def patience(seconds_max: float) -> Iterator[None]:
    """Tries, with growing pauses between them, for a bounded time; at least one."""
    end = time.monotonic() + seconds_max
    pause = 0.001
    while True:
        yield
        if time.monotonic() > end:
            return
        time.sleep(pause)
        pause = min(pause * 1.5, PAUSE_SECONDS_MAX)
