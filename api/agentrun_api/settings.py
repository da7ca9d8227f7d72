"""What the server is told, by its environment; the command's options come first.

Who calls: `cli`. What holds: whatever is missing or bad is named by its variable, all of it at
once, and no message holds a value that may be secret. docs/api.md lists the variables.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from agentrun.log.environment import Reader, SettingsError, one_of, parse_url, switch


class Auth(StrEnum):
    """Who knows tokens, and so where runs are carried out."""

    TOKEN = "token"
    """One token, of this machine: this process carries runs out."""
    CLUSTER = "cluster"
    """Those of a cluster, which carries runs out."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """`token_file`: where the local token is kept; made where it is not there. `installation` and
    `namespace` are for `Auth.CLUSTER`: the operator's, and that of manifests that name none."""

    auth: Auth = Auth.TOKEN
    host: str = "127.0.0.1"
    port: int = 8090
    installation: str = "agentrun"
    namespace: str = "default"
    listen_url: str = field(default="", repr=False)
    prepared_statements: bool = True
    token_file: Path | None = None
    requests_per_second: float = 50.0
    requests_burst: int = 200
    log_level: str = "info"
    log_json: bool = False


def read(environ: Mapping[str, str]) -> Settings:
    """Raises SettingsError."""
    reader = Reader(environ)
    auth = Auth(reader.one("AGENTRUN_API_AUTH", one_of(*Auth), Settings.auth))
    host = _loopback if auth is Auth.TOKEN else _address
    settings = Settings(
        auth=auth,
        host=reader.one("AGENTRUN_API_HOST", host, Settings.host),
        installation=reader.one("AGENTRUN_INSTALLATION", str, Settings.installation),
        namespace=reader.one("AGENTRUN_API_NAMESPACE", str, Settings.namespace),
        listen_url=reader.one("AGENTRUN_DATABASE_LISTEN_URL", parse_url, ""),
        prepared_statements=reader.one("AGENTRUN_DATABASE_PREPARED_STATEMENTS", switch, True),
        port=reader.one("AGENTRUN_API_PORT", _port, Settings.port),
        token_file=reader.one("AGENTRUN_API_TOKEN_FILE", Path, "") or None,
        requests_per_second=reader.one(
            "AGENTRUN_API_REQUESTS_PER_SECOND", _positive, Settings.requests_per_second
        ),
        requests_burst=reader.one("AGENTRUN_API_REQUESTS_BURST", _count, Settings.requests_burst),
        log_level=reader.one(
            "AGENTRUN_LOG_LEVEL", one_of("debug", "info", "warning", "error"), Settings.log_level
        ),
        log_json=reader.one("AGENTRUN_LOG_FORMAT", one_of("text", "json"), "text") == "json",
    )
    if reader.problems:
        raise SettingsError(reader.problems)
    return settings


def _loopback(text: str) -> str:
    """A token of one machine is for that machine."""
    try:
        good = text == "localhost" or ipaddress.ip_address(text).is_loopback
    except ValueError:
        good = False
    if not good:
        raise ValueError(f"must be a loopback address such as 127.0.0.1, not {text[:60]!r}")
    return text


def _address(text: str) -> str:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        raise ValueError(f"must be an IP address to listen at, not {text[:60]!r}") from None
    return text


def _port(text: str) -> int:
    if not text.isdigit() or not 0 <= int(text) <= 65535:
        raise ValueError(f"must be a port from 0 to 65535, not {text[:60]!r}")
    return int(text)


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise ValueError(f"must be a number above 0, not {text[:60]!r}")
    return value


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise ValueError(f"must be a whole number of at least 1, not {text[:60]!r}")
    return int(text)
