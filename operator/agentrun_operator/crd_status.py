"""The status of an AgentRun, as typed models: a projection, small and of constant size.

The operator builds a `RunStatus` and writes its difference; `crd` makes the
status' schema from it. Invariants: a text that is too long or that JSON cannot
hold is cut or mended here, so that the API server never refuses a status, and
every field is bounded. Nothing is ever read back from status to decide.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer
from pydantic.alias_generators import to_camel

from agentrun.log.summary import WAITING_SHOWN_MAX, Phase

TEXT_BYTES_MAX = 1024
COUNT_MAX = 2**31 - 1
AMOUNT_MAX = 2**63 - 1
CONDITIONS_MAX = 16


class ConditionType(StrEnum):
    """The conditions that a run has; those that do not apply are left out."""

    SUCCEEDED = "Succeeded"
    SUSPENDED = "Suspended"
    POD_SCHEDULED = "PodScheduled"
    DISRUPTED = "Disrupted"
    BUDGET_EXCEEDED = "BudgetExceeded"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"


class ConditionStatus(StrEnum):
    """What a condition says."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


def clip(text: str, size_bytes_max: int = TEXT_BYTES_MAX) -> str:
    """The text in at most so many bytes of UTF-8, an ellipsis where it was cut."""
    data = text.encode(errors="replace").replace(b"\0", b"?")
    if len(data) <= size_bytes_max:
        return data.decode()
    return data[: size_bytes_max - 3].decode(errors="ignore") + "…"


def _clipped(value: Any) -> Any:
    return clip(value) if isinstance(value, str) else value


def _to_rfc3339(value: datetime) -> str:
    """Whole seconds and Z, as Kubernetes writes times."""
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


Text = Annotated[str, BeforeValidator(_clipped), Field(max_length=TEXT_BYTES_MAX)]
Reason = Annotated[str, Field(max_length=256, pattern=r"^([A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?)?$")]
Name = Annotated[str, Field(max_length=253)]
Time = Annotated[datetime, PlainSerializer(_to_rfc3339, when_used="json")]
Count = Annotated[int, Field(ge=0, le=COUNT_MAX)]
Amount = Annotated[int, Field(ge=0, le=AMOUNT_MAX)]


class StatusModel(BaseModel):
    """Base of the models here: camelCase outside, frozen, nothing unknown."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=to_camel, validate_by_name=True, serialize_by_alias=True
    )


class Condition(StatusModel):
    """One aspect of the run, as of any Kubernetes object."""

    type: ConditionType = Field(description="Which aspect.")
    status: ConditionStatus = Field(description="True, False or Unknown.")
    reason: Annotated[Reason, Field(min_length=1)] = Field(description="Why, in one word for programs.")
    message: Text = Field(default="", description="Why, for people; at most 1 KiB.")
    last_transition_time: Time = Field(description="When status last changed.")
    observed_generation: Amount | None = Field(
        default=None, description="The generation of the object that this was said of."
    )


class PodStatus(StatusModel):
    """The run's newest pod."""

    name: Name = Field(description="Name of the pod.")
    uid: Annotated[str, Field(max_length=64)] | None = Field(default=None, description="UID of the pod.")
    node_name: Name | None = Field(default=None, description="The node that it was put on.")


class TokensStatus(StatusModel):
    """Tokens, over all attempts and sub-agents."""

    used: Amount = Field(description="Used, failed tries included.")
    limit: Amount | None = Field(default=None, description="What spec.budget allows. Absent: unlimited.")
    estimated: bool | None = Field(
        default=None, description="True: a part of used is an estimate, for a model did not say."
    )


class AmountStatus(StatusModel):
    """One number of the budget, over all attempts and sub-agents."""

    used: Amount = Field(description="Used.")
    limit: Amount | None = Field(default=None, description="What spec.budget allows. Absent: unlimited.")


class BudgetStatus(StatusModel):
    """What the run has used, from its log."""

    tokens: TokensStatus = Field(description="Tokens read and written.")
    wall_seconds: AmountStatus = Field(description="Seconds in which at least one step ran.")
    turns: AmountStatus = Field(description="Turns of models.")
    retries: AmountStatus = Field(description="Second tries of any kind.")


class ProgressStatus(StatusModel):
    """How far the run is; steps are nodes of its graph."""

    done: Count = Field(description="Steps that are recorded.")
    in_flight: Count = Field(description="Steps that run now.")
    pending: Count = Field(description="Steps that are known and wait.")
    last: Annotated[Text, Field(description="Id of the step that was recorded last.")] = ""


class ResultStatus(StatusModel):
    """The answer; all of it is in the log."""

    preview: Text = Field(description="Its beginning, at most 1 KiB.")
    size_bytes: Amount = Field(description="Its whole size, in bytes.")
    digest: Annotated[str, Field(max_length=80)] | None = Field(
        default=None, description="SHA-256 of all of it, as sha256:<hex>."
    )


class WaitingCall(StatusModel):
    """A call that waits for a person."""

    id: Text = Field(description="What an answer names it by, in an annotation or at the command line.")
    tool: Text = Field(description="The tool that is to be called.")
    reason: Reason = Field(description="ApprovalRequired, or OutcomeUnknown: is it to be made again?")
    arguments: Text = Field(
        description="Its arguments on one line: shortened, what looks like a secret left out."
    )


class WaitingStatus(StatusModel):
    """The calls that wait for a person."""

    count: Count = Field(description="How many there are.")
    calls: Annotated[tuple[WaitingCall, ...], Field(max_length=WAITING_SHOWN_MAX)] = Field(
        default=(), description="The first of them, at most 10. `agentrun approvals` lists all."
    )


class RunStatus(StatusModel):
    """What became of the run so far, written by the operator alone."""

    observed_generation: Amount | None = Field(
        default=None, description="The generation of the object that this status is about."
    )
    run_id: Annotated[str, Field(max_length=36)] | None = Field(
        default=None, alias="runID", description="UUID of the run; its log bears it."
    )
    phase: Phase | None = Field(
        default=None,
        description="Where the run stands: Pending, Running, Pausing, Paused, Succeeded, Failed or "
        "Cancelled. The last three never change, but for a Failed run that a new retryToken continues.",
    )
    reason: Reason | None = Field(default=None, description="Why it stands there, in one word for programs.")
    message: Text | None = Field(default=None, description="Why, for people; at most 1 KiB.")
    start_time: Time | None = Field(default=None, description="When the run was first claimed by a runner.")
    completion_time: Time | None = Field(default=None, description="When the run ended.")
    attempt: Count | None = Field(
        default=None, description="Number of the newest attempt; each pod is one, the first is 1."
    )
    disruptions: Count | None = Field(
        default=None, description="Attempts that were taken away: drained, evicted, lost with their node."
    )
    failures: Count | None = Field(
        default=None, description="Attempts that died by their own fault; each drew one of the retries."
    )
    observed_retry_token: Annotated[str, Field(max_length=256)] | None = Field(
        default=None, description="The spec.retryToken that was last acted upon."
    )
    pod: PodStatus | None = Field(default=None, description="The run's newest pod.")
    budget: BudgetStatus | None = Field(
        default=None, description="What the run has used, and what it may use."
    )
    progress: ProgressStatus | None = Field(default=None, description="How far it is.")
    waiting: WaitingStatus | None = Field(
        default=None,
        description="Calls that wait for a person. The annotations agentrun.dev/approve: ID and "
        "agentrun.dev/deny: ID=REASON answer them.",
    )
    result: ResultStatus | None = Field(default=None, description="The answer, once there is one.")
    conditions: Annotated[
        tuple[Condition, ...],
        Field(
            max_length=CONDITIONS_MAX,
            json_schema_extra={
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            },
        ),
    ] = Field(
        default=(),
        description="Succeeded, Suspended, PodScheduled, Disrupted, BudgetExceeded, Reconciling and Stalled.",
    )

    def to_dict(self) -> dict[str, Any]:
        """As it stands in the object: plain JSON values, absent fields left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def status_patch(current: dict[str, Any], wanted: RunStatus) -> dict[str, Any]:
    """The merge patch that makes `current` (an object's status) into `wanted`; {} when it is that already."""
    return _difference(current, wanted.to_dict())


def _difference(current: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    patch: dict[str, Any] = {key: None for key in current if key not in wanted}
    for key, value in wanted.items():
        before = current.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            if inner := _difference(before, value):
                patch[key] = inner
        elif value != before:
            patch[key] = value
    return patch
