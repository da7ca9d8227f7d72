"""What is known of a run at one moment: all that a decision may depend on.

Who calls: `observe` gathers an `Observation`, `plan` decides from it. What holds: all
times that are compared are the store's (or the API server's, where no other is known),
never this machine's; nothing here is read from an object's status, but for what was
told to people there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from agentrun.log.store import AttemptOutcome, AttemptRow, InboxRow, Levels, RunInfo
from agentrun.log.summary import Phase
from agentrun.spec import AgentRun, AgentRunSpec
from agentrun_operator.answers import Said
from agentrun_operator.pods import Node, Pod, Waiting, parse_time
from agentrun_operator.processes import is_pods, parse_process
from agentrun_operator.refusals import Refusal

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
GENERATION_BITS = 20


@dataclass(frozen=True, kw_only=True)
class Key:
    """Names an object, whether it is there or not."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, kw_only=True)
class RunObject:
    """An AgentRun of the API server. `run` is None where it cannot be understood: `problem` says why."""

    key: Key
    uid: str
    run_id: UUID
    generation: int = 1
    resource_version: str = ""
    created_at: datetime = EPOCH
    deleting: bool = False
    run: AgentRun | None
    problem: str = ""
    problem_reason: str = ""
    said: tuple[Said, ...] = ()
    """Answers to calls that wait, in its annotations."""

    given_id: bool = False
    """spec.runID was given: deleting the object parks the run."""

    status: Mapping[str, Any] = field(default_factory=dict)

    @property
    def completed_at(self) -> datetime | None:
        """When the run ended, as status has it."""
        return parse_time(self.status.get("completionTime"))

    @property
    def spec(self) -> AgentRunSpec:
        """Of an object that can be understood."""
        assert self.run is not None
        return self.run.spec

    def levels(self) -> Levels:
        """What the object wants, ordered also behind another object of its name."""
        spec = self.spec
        shutdown = str(spec.shutdown or "")
        if self.deleting and not self.given_id:
            shutdown = shutdown or "Stop"
        return Levels(
            generation=(int(self.created_at.timestamp()) << GENERATION_BITS) + self.generation,
            suspend=spec.suspend or (self.deleting and self.given_id),
            shutdown=shutdown,
            budget=json.dumps(spec.budget.model_dump(mode="json", by_alias=True), sort_keys=True),
        )


@dataclass(frozen=True, kw_only=True)
class Owner:
    """Whose a run is: `run.owner`, apart into its parts."""

    installation: str
    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.installation}/{self.namespace}/{self.name}/{self.uid}"

    @property
    def key(self) -> Key:
        return Key(namespace=self.namespace, name=self.name)


def parse_owner(text: str) -> Owner | None:
    """None for what is no object's."""
    parts = text.split("/")
    if len(parts) != 4 or not all(parts):
        return None
    return Owner(installation=parts[0], namespace=parts[1], name=parts[2], uid=parts[3])


@dataclass(frozen=True, kw_only=True)
class Final:
    """The record that ended the run."""

    phase: Phase
    reason: str
    message: str = ""
    attempt: int = 0


@dataclass(frozen=True, kw_only=True)
class Refused:
    """The newest attempt's pod could not be made. Seconds by this process's clock."""

    attempt: int
    refusal: Refusal
    retry_in: float


@dataclass(frozen=True, kw_only=True)
class Memory:
    """What only this process knows. Losing it costs time, never a wrong step."""

    identity: str = ""
    """Of this process, as the attempts that it allocates name it."""

    refused: Refused | None = None
    made_pod_of: int = 0
    """The newest attempt whose pod this process knows to have been made."""

    asked: tuple[str, float] = ("", 0.0)
    """What a live runner was asked for, and how many seconds ago."""

    spent_token: str = ""
    """A retryToken that the log says has been used."""

    rollout_room: bool = False
    """This run's pod may be taken down for a new image now."""


@dataclass(frozen=True, kw_only=True)
class Observation:
    """See the module's docstring.

    `now`: the store's clock. `pod` is of the newest attempt that is a pod's. `final` is there
    when the run has ended. `corrupt`: why the log cannot be read. `answers`: the inbox. `asks`:
    ids of the calls that wait for one, where that matters; `input_waits`: one of them has it.
    """

    object: RunObject | None = None
    now: datetime
    store_problem: str = ""
    installation: str = "agentrun"
    info: RunInfo | None = None
    attempts: tuple[AttemptRow, ...] = ()
    final: Final | None = None
    corrupt: str = ""
    summary: Mapping[str, Any] = field(default_factory=dict)
    pod: Pod | None = None
    node: Node | None = None
    pod_trouble: Waiting | None = None
    """What the pod's Events say of a start that does not get on."""

    outdated: bool = False
    """The pod was made with another image than a new one would have."""

    answers: tuple[InboxRow, ...] = ()
    asks: tuple[str, ...] = ()
    input_waits: bool = False
    memory: Memory = Memory()

    # --- attempts

    @property
    def pod_attempts(self) -> list[AttemptRow]:
        """Without those by which the operator ended a run."""
        return [row for row in self.attempts if is_pods(row)]

    @property
    def last(self) -> AttemptRow | None:
        """The newest pod's attempt, unless the run was reopened behind it."""
        rows = self.pod_attempts
        newest = self.attempts[-1].attempt if self.attempts else 0
        if not rows or self.info is None or self.info.run.attempt > newest:
            return None
        return rows[-1]

    @property
    def unreadable(self) -> str:
        """Why the log cannot be read, as far as that is known."""
        row = self.attempts[-1] if self.attempts else None
        if self.corrupt or row is None or is_pods(row) or row.outcome is not AttemptOutcome.FAILED:
            return self.corrupt
        return row.reason

    @property
    def started_at(self) -> datetime | None:
        """When the run was first claimed."""
        return next((row.started_at for row in self.attempts if row.claimed and is_pods(row)), None)

    @property
    def failures(self) -> int:
        """Attempts that died by their own fault."""
        return sum(row.outcome is AttemptOutcome.CRASHED for row in self.pod_attempts)

    def retries_used(self) -> int:
        """From the log, and what the next claim will count."""
        counted_to = _int(self.summary.get("attempt"))
        uncounted = [
            row
            for row in self.attempts
            if row.outcome is AttemptOutcome.CRASHED and row.attempt >= max(counted_to, 1)
        ]
        budget = self.summary.get("budget")
        recorded = _int(budget.get("retries")) if isinstance(budget, Mapping) else 0
        return recorded + len(uncounted)

    def seconds_since(self, at: datetime | None) -> float:
        """By the store's clock; 0 for no time."""
        return (self.now - at).total_seconds() if at is not None else 0.0


def generation_at_start(row: AttemptRow) -> int:
    """The generation of the levels that held when the attempt was allocated."""
    return parse_process(row.process).generation


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0
