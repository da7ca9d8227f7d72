"""What the operator is told, all of it by its environment.

Who calls: `cli`. What holds: whatever is missing or bad is named by its variable, all of
it at once, and no message holds a value that may be secret. docs/kubernetes/operator.md
lists the variables.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from agentrun.log.environment import Reader, SettingsError, one_of, parse_url, switch
from agentrun_operator.podspec import PodSettings

T = TypeVar("T")

RESERVED = frozenset({"local", "server"})
"""Names that no installation can have: the first parts of the owners of the command's runs, and of
those that an API carries out itself."""


class RolloutPolicy(StrEnum):
    """What a new runner image means for pods that run."""

    ON_NEXT_START = "OnNextStart"
    IMMEDIATE = "Immediate"


@dataclass(frozen=True, kw_only=True)
class Times:
    """How long things may take, in seconds."""

    sweep: float = 60.0
    progress: float = 5.0
    """Between two writes of a run's progress."""

    quota_retry: float = 15.0
    """Between two tries to make a pod that did not fit a quota."""

    never_started: float = 15.0
    """How long an allocated attempt may be without its pod before it counts as never started."""

    failure_backoff: float = 10.0
    """Before the next attempt behind a first failure; doubles with each up to `backoff_max`."""

    fenced_backoff: float = 5.0
    backoff_max: float = 300.0
    node_tolerated: float = 30.0
    """How long a pod tolerates an unreachable node (its tolerations say the same)."""

    lost_node: float = 15.0
    """From the eviction of a pod on a lost node to its replacement, whatever the grace."""

    overdue: float = 60.0
    """How long a pod may outlive its grace before it counts as lost."""

    terminate: float = 10.0
    """What a live runner gets to obey `shutdown: Terminate` before its pod is deleted."""

    leave: float = 30.0
    """What a runner gets to exit once its attempt is over, before its pod is deleted."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """See `read`."""

    installation: str = "agentrun"
    database_url: str = field(repr=False)
    listen_url: str = field(default="", repr=False)
    prepared_statements: bool = True
    namespaces: tuple[str, ...] = ()
    pods: PodSettings
    rollout: RolloutPolicy = RolloutPolicy.ON_NEXT_START
    rollout_unavailable_max: int = 1
    workers: int = 16
    http_port: int = 8080
    request_timeout: float = 10.0
    watch_timeout: float = 300.0
    watch_inactivity: float = 70.0
    watch_silent: float = 180.0
    writes_per_second: float = 20.0
    """Of progress, over all runs."""

    log_level: str = "info"
    log_json: bool = False
    times: Times = Times()

    @property
    def owner_prefix(self) -> str:
        """How the owner of every run of this installation begins."""
        return f"{self.installation}/"


def read(environ: Mapping[str, str] = os.environ) -> Settings:
    """The settings. Raises SettingsError."""
    reader = Reader(environ)
    one = reader.one
    url = one("AGENTRUN_DATABASE_URL", parse_url, None)
    image = one("AGENTRUN_RUNNER_IMAGE", str, None)
    pods = PodSettings(
        image=image or "none",
        image_pull_policy=one(
            "AGENTRUN_RUNNER_IMAGE_PULL_POLICY", one_of("Always", "IfNotPresent", "Never"), "IfNotPresent"
        ),
        image_pull_secrets=one("AGENTRUN_RUNNER_IMAGE_PULL_SECRETS", _names, ()),
        store_secret_name=one("AGENTRUN_RUNNER_SECRET_NAME", _name, PodSettings.store_secret_name),
        store_secret_key=one("AGENTRUN_RUNNER_SECRET_KEY", str, PodSettings.store_secret_key),
        env=one("AGENTRUN_RUNNER_ENV", _texts, {}),
        **({"resources": found} if (found := one("AGENTRUN_RUNNER_RESOURCES", _resources, {})) else {}),
    )
    settings = Settings(
        installation=one("AGENTRUN_INSTALLATION", _installation, Settings.installation),
        database_url=url or "",
        listen_url=one("AGENTRUN_DATABASE_LISTEN_URL", parse_url, ""),
        prepared_statements=one("AGENTRUN_DATABASE_PREPARED_STATEMENTS", switch, True),
        namespaces=one("AGENTRUN_NAMESPACES", _names, ()),
        pods=pods,
        rollout=RolloutPolicy(
            one("AGENTRUN_ROLLOUT_POLICY", one_of(*RolloutPolicy), RolloutPolicy.ON_NEXT_START)
        ),
        rollout_unavailable_max=one("AGENTRUN_ROLLOUT_MAX_UNAVAILABLE", _whole(1, 10_000), 1),
        workers=one("AGENTRUN_WORKERS", _whole(1, 256), Settings.workers),
        http_port=one("AGENTRUN_HTTP_PORT", _whole(0, 65535), Settings.http_port),
        request_timeout=one("AGENTRUN_REQUEST_TIMEOUT_SECONDS", _seconds, Settings.request_timeout),
        watch_timeout=one("AGENTRUN_WATCH_TIMEOUT_SECONDS", _seconds, Settings.watch_timeout),
        watch_inactivity=one("AGENTRUN_WATCH_INACTIVITY_SECONDS", _seconds, Settings.watch_inactivity),
        watch_silent=one("AGENTRUN_WATCH_SILENT_SECONDS", _seconds, Settings.watch_silent),
        log_level=one("AGENTRUN_LOG_LEVEL", one_of("debug", "info", "warning", "error"), "info"),
        log_json=one("AGENTRUN_LOG_FORMAT", one_of("text", "json"), "text") == "json",
        times=Times(
            sweep=one("AGENTRUN_SWEEP_SECONDS", _seconds, Times.sweep),
            lost_node=one("AGENTRUN_LOST_NODE_SECONDS", _seconds, Times.lost_node),
        ),
    )
    if reader.problems:
        raise SettingsError(reader.problems)
    return settings


def _name(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", text):
        raise ValueError(f"must be lower-case letters, digits, '-' and '.', not {text[:60]!r}")
    return text


def _installation(text: str) -> str:
    if text in RESERVED:
        raise ValueError(f"must not be {text!r}: runs of no object have that owner")
    return _name(text)


def _names(text: str) -> tuple[str, ...]:
    return tuple(_name(part.strip()) for part in text.split(",") if part.strip())


def _whole(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", text) or not least <= int(text) <= most:
            raise ValueError(f"must be a whole number from {least} to {most}, not {text[:60]!r}")
        return int(text)

    return parse


def _seconds(text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", text) or not 0 < float(text) <= 86400:
        raise ValueError(f"must be seconds, over 0 and at most 86400, not {text[:60]!r}")
    return float(text)


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ValueError("must be a JSON object")
    return value


def _texts(text: str) -> dict[str, str]:
    value = _object(text)
    if not all(isinstance(item, str) for item in value.values()):
        raise ValueError("must be a JSON object whose values are texts")
    return value


def _resources(text: str) -> dict[str, dict[str, str]]:
    value = _object(text)
    if not all(key in ("requests", "limits") and isinstance(item, dict) for key, item in value.items()):
        raise ValueError("must be a JSON object with requests and limits")
    return {kind: {name: str(amount) for name, amount in item.items()} for kind, item in value.items()}
