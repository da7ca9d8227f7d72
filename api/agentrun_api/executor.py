"""`RunExecutor`: what carries runs out, behind one small interface.

Who calls: the routes. What holds, whichever it is (tests/contract/executor_contract.py):
- the log is the record: events, budget and answer are read from Postgres and are the same under
  each executor;
- `start` with the same key and the same manifest gives the same run, however often and by however
  many at once; with another manifest it is refused;
- `signal` says what is wanted, as levels. It returns when that is durable, not when it has happened;
- `wait` tells how a run stands once it has ended, or is parked and nothing but a signal moves it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from agentrun.log.store import RunInfo, RunRow
from agentrun.log.summary import Phase

if TYPE_CHECKING:
    from agentrun.spec import AgentRun


@dataclass(frozen=True, kw_only=True)
class Started:
    """`created` is False where the run was there already."""

    run_id: UUID
    created: bool


@dataclass(frozen=True, kw_only=True)
class Signal:
    """What is wanted of a run from now on; what is None or empty stays as it is.

    `shutdown`: Stop or Terminate; there is no way back. `budget`: limits by the manifest's names.
    """

    suspend: bool | None = None
    shutdown: str = ""
    budget: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Stand:
    """How a run stands."""

    phase: Phase
    reason: str = ""
    message: str = ""


class StartRefused(Exception):
    """The run cannot be started as it is asked for. One line. `reason` as of a Problem."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class RunExecutor(Protocol):
    """See the module's docstring."""

    async def start(self, manifest: AgentRun, *, key: str = "") -> Started:
        """Begins the run of a manifest whose fields are all valid. `key`: the caller's own name
        for this start, unique to the caller. Raises StartRefused, LogError."""

    async def signal(self, run: RunRow, signal: Signal) -> None:
        """Raises StartRefused for what cannot be, LogError."""

    async def wait(self, run_id: UUID) -> Stand:
        """Raises LogError; KeyError for a run that is not there."""

    def namespace(self, manifest: AgentRun) -> str:
        """The namespace that the run of this manifest is in; "" where there are none."""

    def owner_prefix(self, namespace: str) -> str:
        """How the owners of the runs of a namespace begin; "": of all of them."""

    def stand(self, info: RunInfo) -> Stand:
        """How the run stands by what was just read of it, at no cost: for lists."""

    async def look(self, info: RunInfo) -> Stand:
        """The same, as well as can be known."""

    async def run(self) -> None:
        """Carries runs out until it is cancelled; then pauses what runs here, within its grace."""
