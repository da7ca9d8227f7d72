"""The errors of running on this machine.

Raised by `agentrun.local`, shown by the command: each message is one line that
says what to do.
"""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentrun.local.locks import LockTimeout


class LocalError(Exception):
    """Base of all errors of `agentrun.local`: nothing was begun, or nothing goes on (exit code 2)."""


class EmbeddedPostgresError(LocalError):
    """The embedded Postgres cannot be had. The message is one line for a person."""


class BadStore(LocalError):
    """What was given as the store's address is none."""


class NoSuchRun(LocalError):
    """No run has that id, or more than one does."""


class NotOurs(LocalError):
    """The run is steered by something else: an object in a cluster, another definition."""


class HeldElsewhere(LocalError):
    """A live process runs the run."""


@contextmanager
def one_line(base: Path) -> Iterator[None]:
    """Turns what the system refuses into the one line that a person can act on."""
    elsewhere = "set AGENTRUN_DATA_DIR to a folder of your own"
    try:
        yield
    except LockTimeout as exc:
        raise EmbeddedPostgresError(
            f"another command is starting or stopping the embedded Postgres and does not end (it holds {exc})"
        ) from exc
    except subprocess.SubprocessError as exc:
        raise EmbeddedPostgresError(f"the embedded Postgres under {base}: {exc}") from exc
    except OSError as exc:
        where = exc.filename or base
        reasons = {
            errno.ENOSPC: f"no space is left for the embedded Postgres under {base}",
            errno.EDQUOT: f"no space is left for the embedded Postgres under {base}",
            errno.EROFS: f"{where} cannot be written, its disk is read-only; {elsewhere}",
            errno.EACCES: f"{where} cannot be written or entered, permission is denied; {elsewhere}",
            errno.EPERM: f"{where} may not be changed; {elsewhere}",
        }
        said = reasons.get(exc.errno or 0, f"the embedded Postgres under {base}: {exc}")
        raise EmbeddedPostgresError(said) from exc
