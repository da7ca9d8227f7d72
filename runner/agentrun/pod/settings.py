"""What a runner pod is told, all of it by its environment.

Who calls: `main`, first of all. What holds: whatever is missing or bad is named by its
variable, all of them at once, and no message holds a value that may be secret.
docs/kubernetes/runner.md lists the variables.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote, urlsplit
from uuid import UUID

from agentrun.log.environment import Reader, SettingsError, one_of, parse_url, switch

GRACE_SECONDS = 30.0
GRACE_SECONDS_MAX = 86400.0
TERMINATION_LOG = "/dev/termination-log"
LEVELS = ("debug", "info", "warning", "error")

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class LogSettings:
    """How lines are written. Never bad: what is not understood gives the default."""

    json: bool = False
    level: str = "info"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """See `read`. `grace_seconds`: from SIGTERM to SIGKILL."""

    database_url: str = field(repr=False)
    run_id: UUID
    attempt: int
    grace_seconds: float = GRACE_SECONDS
    pod_name: str = ""
    node_name: str = ""
    config_dir: Path | None = None
    listen_url: str = field(default="", repr=False)
    prepared_statements: bool = True

    @property
    def process(self) -> str:
        """Who this is, for people."""
        return f"pod {self.pod_name}" + (f" on {self.node_name}" if self.node_name else "")

    @property
    def passwords(self) -> list[str]:
        """What must not be shown."""
        found = []
        for url in (self.database_url, self.listen_url):
            if password := urlsplit(url).password:
                found += [password, unquote(password)]
        return found


def log_settings(environ: Mapping[str, str] = os.environ) -> LogSettings:
    """Read apart, and first: what is wrong with the rest is told in this form."""
    level = environ.get("AGENTRUN_LOG_LEVEL", "").lower()
    return LogSettings(
        json=environ.get("AGENTRUN_LOG_FORMAT", "").lower() == "json",
        level=level if level in LEVELS else "info",
    )


def termination_log(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the kubelet finds the last words."""
    return Path(environ.get("AGENTRUN_TERMINATION_LOG") or TERMINATION_LOG)


def read(environ: Mapping[str, str] = os.environ) -> Settings:
    """The settings. Raises SettingsError."""
    reader = Reader(environ)
    one = reader.one
    url = one("AGENTRUN_DATABASE_URL", parse_url, None)
    run_id = one("AGENTRUN_RUN_ID", _run_id, None)
    attempt = one("AGENTRUN_ATTEMPT", _attempt, None)
    grace_seconds = one("AGENTRUN_GRACE_SECONDS", _grace, GRACE_SECONDS)
    listen_url = one("AGENTRUN_DATABASE_LISTEN_URL", parse_url, "")
    prepared = one("AGENTRUN_DATABASE_PREPARED_STATEMENTS", switch, True)
    config_dir = environ.get("AGENTRUN_CONFIG_DIR", "")
    one("AGENTRUN_BLOBS", _blobs, "")
    one("AGENTRUN_LOG_FORMAT", one_of("text", "json"), "")
    one("AGENTRUN_LOG_LEVEL", one_of(*LEVELS), "")
    if reader.problems or url is None or run_id is None or attempt is None or grace_seconds is None:
        raise SettingsError(reader.problems)
    return Settings(
        database_url=url,
        run_id=run_id,
        attempt=attempt,
        grace_seconds=grace_seconds,
        pod_name=environ.get("AGENTRUN_POD_NAME") or socket.gethostname(),
        node_name=environ.get("AGENTRUN_NODE_NAME", ""),
        config_dir=Path(config_dir) if config_dir else None,
        listen_url=listen_url or "",
        prepared_statements=prepared is not False,
    )


def _run_id(text: str) -> UUID:
    if not re.fullmatch(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", text):
        raise ValueError(f"must be a UUID, not {text[:60]!r}")
    return UUID(text)


def _attempt(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,8}", text):
        raise ValueError(f"must be a whole number from 1, not {text[:60]!r}")
    return int(text)


def _grace(text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text) or not 0 < float(text) <= GRACE_SECONDS_MAX:
        raise ValueError(f"must be seconds, over 0 and at most {GRACE_SECONDS_MAX:.0f}, not {text[:60]!r}")
    return float(text)


def _blobs(text: str) -> str:
    scheme = text.partition(":")[0] if ":" in text else "folder"
    if scheme in ("folder", "file"):
        raise ValueError("names a folder, and a pod's files go with the pod; leave it unset for the database")
    raise ValueError(f"names a store of the kind {scheme[:20]!r}, which this version has not; leave it unset")
