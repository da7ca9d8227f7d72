"""The bodies of requests and answers, as the OpenAPI document tells them.

Who calls: the routes. What holds: the shapes are those of `agentrun … -o json` (docs/cli.md)
where there are such; within /v1 fields are only added.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from agentrun.log.asks import REASON_CHARACTERS_MAX
from agentrun.log.summary import Phase

WHOLE_MAX = 2**53 - 1
"""The greatest number that every reader of JSON holds exactly."""


class Shape(BaseModel):
    """camelCase on the wire."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")


class RunEntry(Shape):
    """A run in a list."""

    run_id: str = Field(alias="runID", description="Its UUID.")
    name: str = Field(description="Name of its manifest or object.")
    namespace: str = Field(description="Namespace of its object; empty for a run of no object.")
    phase: Phase = Field(description="Where it stands.")
    reason: str = Field(description="Why, as one word; may be empty.")
    message: str = Field(description="The same for people; may be empty.")
    attempt: int = Field(description="Number of the newest attempt; 0 before the first.")
    head: int = Field(description="Records of its log, as far as its summary knows.")
    turns: int = Field(description="Turns of models that it has used.")
    tokens: int = Field(description="Tokens that it has used.")
    created_at: str | None = Field(description="RFC 3339, by the database's clock.")
    ended_at: str | None = Field(description="RFC 3339; null while it has not ended.")


class RunList(Shape):
    """Runs, the newest first."""

    runs: list[RunEntry] = Field(description="At most `limit` of them.")
    continue_: str | None = Field(
        alias="continue", description="What to ask for the next page with; null: this is the last one."
    )


class Limit(Shape):
    """One limit of the budget."""

    used: int | float = Field(description="Summed over the log.")
    limit: int | float | None = Field(description="null: none.")


class BudgetView(Shape):
    """What the run has used, and of how much."""

    tokens: Limit
    wall_seconds: Limit
    turns: Limit
    retries: Limit
    on_exceeded: str = Field(description="Pause or Fail.")


class AttemptView(Shape):
    """One process that ran the run."""

    attempt: int = Field(description="1 for the first.")
    outcome: str | None = Field(description="How it ended; null: it has not, or nobody has said so yet.")
    reason: str
    live: bool = Field(description="It has been heard of within the last 30 seconds.")
    started_at: str | None
    ended_at: str | None
    process: str = Field(description="Host and process, or the pod.")


class ResultView(Shape):
    """The beginning of the answer."""

    preview: str = Field(description="At most 1 KiB of it.")
    size_bytes: int
    digest: str = Field(description="sha256 of the whole answer.")


class AnswerView(Shape):
    """The whole answer of a run that has ended well."""

    text: str


class RunView(RunEntry):
    """One run, in constant size: what it did is in its events."""

    budget: BudgetView
    suspend: bool = Field(description="Somebody wants it parked.")
    shutdown: str = Field(description="Empty, Stop or Terminate.")
    attempts: list[AttemptView] = Field(description="The newest 20, oldest first.")
    progress: dict[str, Any] = Field(description="done, inFlight, pending, last.")
    result: ResultView | None = Field(description="null: there is no answer.")


class Limits(Shape):
    """Limits of the budget that are to hold from now on; what is left out stays."""

    tokens: int | None = Field(default=None, ge=1, le=WHOLE_MAX, description="null: no limit.")
    wall_seconds: int | None = Field(default=None, ge=1, le=WHOLE_MAX, description="null: no limit.")
    turns: int = Field(default=0, ge=1, le=1_000_000)
    retries: int = Field(default=0, ge=0, le=1_000_000)


class Resume(Shape):
    """How to go on."""

    budget: Limits | None = Field(default=None, description="Limits to change before.")


class Cancel(Shape):
    """How to end."""

    at_once: bool = Field(default=False, description="True gives up what is in flight.")


class Approval(Shape):
    """A call that waits for a person."""

    id: str = Field(description="What it is answered by.")
    node: str = Field(description="The call's node in the log.")
    reason: str = Field(description="ApprovalRequired, or OutcomeUnknown.")
    tool: str = Field(description="The tool's name.")
    arguments: str | None = Field(description="As the model wrote them; null where they are not to be had.")
    since: str | None = Field(description="RFC 3339.")
    answered: bool = Field(description="Somebody has answered; the run has not used it yet.")


class ApprovalList(Shape):
    """What waits, in the order in which it was asked."""

    approvals: list[Approval]


class Answer(Shape):
    """A person's answer to a call that waits."""

    id: str = Field(min_length=1, max_length=200, description="Of the call that waits.")
    approve: bool = Field(description="False denies it.")
    reason: str = Field(default="", max_length=REASON_CHARACTERS_MAX, description="For the model.")
    arguments: dict[str, Any] | None = Field(
        default=None, description="To call it with, in place of the model's; at most 64 KiB of JSON."
    )


class Given(Shape):
    """The answer that stands."""

    id: str
    tool: str
    approved: bool
    by: str
    reason: str
    first: bool = Field(description="It was given now; false: it stood already.")
