"""The AgentRun object: what people write, and the source of the CRD's schema.

`manifest` loads it, the operator and the runner read it. Invariants: exactly one
of agent and program, each tool of kind agent names a sub-agent that exists, and
no two Secret keys share one environment variable. What runs is immutable; only
budget, suspend, shutdown, retryToken and ttlSecondsAfterFinished may change.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from agentrun.spec.agent import AgentSpec, SubAgentSpec
from agentrun.spec.base import (
    INTEGER_MAX,
    PATTERN_RULES,
    UUID_TEXT,
    Bool,
    Entrypoint,
    Int,
    JsonObject,
    LongText,
    ManifestModel,
    Str,
    TextSource,
)
from agentrun.spec.errors import Path, RuleError
from agentrun.spec.metadata import ObjectMeta, PodTemplate
from agentrun.spec.secrets import shared_variables

API_VERSION = "agentrun.dev/v1alpha1"
KIND = "AgentRun"

_Seconds = Annotated[Int, Field(ge=1, le=31_536_000)]


class OnExceeded(StrEnum):
    """What happens when a limit of the budget is reached."""

    PAUSE = "Pause"
    FAIL = "Fail"


class Shutdown(StrEnum):
    """How to end the run before its time."""

    STOP = "Stop"
    TERMINATE = "Terminate"


class PodRetentionPolicy(StrEnum):
    """Which pods are kept after they ended."""

    ON_FAILURE = "OnFailure"
    ALWAYS = "Always"
    NEVER = "Never"


class Budget(ManifestModel):
    """What the run may spend in all, over every attempt and sub-agent."""

    tokens: Annotated[Int, Field(ge=1, le=INTEGER_MAX)] | None = Field(
        default=None, description="Tokens read and written, failed tries included. Default: unlimited."
    )
    wall_seconds: Annotated[Int, Field(ge=1, le=INTEGER_MAX)] | None = Field(
        default=None,
        description="Seconds in which at least one step ran; time parked or waiting for a pod is free. "
        "Default: unlimited.",
    )
    turns: Annotated[Int, Field(ge=1, le=1_000_000)] = Field(
        default=100, description="Turns of models. Default 100."
    )
    retries: Annotated[Int, Field(ge=0, le=1_000_000)] = Field(
        default=10,
        description="Second tries of any kind: of models, tools and crashed processes. Default 10.",
    )
    on_exceeded: OnExceeded = Field(
        default=OnExceeded.PAUSE,
        description="Pause parks the run until the limit is raised, Fail ends it. Default Pause.",
    )


class ProgramSpec(ManifestModel):
    """A graph written in Python, in the runner's image."""

    entrypoint: Entrypoint = Field(description="The function, as package.module:function.")
    input: JsonObject | None = Field(
        default=None, description="What the function is given. Default: nothing."
    )


def _check_uuid_text(value: Any) -> Any:
    # uuid.UUID takes braces, "urn:" and bare digits too; Kubernetes takes none of them.
    if isinstance(value, uuid.UUID):
        return value
    if not isinstance(value, str) or not re.fullmatch(UUID_TEXT, value):
        raise ValueError(PATTERN_RULES[UUID_TEXT])
    return value


RunID = Annotated[
    uuid.UUID,
    BeforeValidator(_check_uuid_text),
    Field(json_schema_extra={"maxLength": 36, "pattern": UUID_TEXT}),
]


class AgentRunSpec(ManifestModel):
    """What to run, what it may spend, and how its pods look."""

    run_id: RunID | None = Field(
        default=None,
        alias="runID",
        description="UUID of the run. Default: a new one (in a cluster the object's uid). Given, it lets a "
        "re-created object go on from the run's log.",
    )
    prompt: LongText | None = Field(
        default=None, description="What the agent is asked; 1 byte to 64 KiB, not blank."
    )
    prompt_from: TextSource | None = Field(
        default=None, description="The ConfigMap that holds the prompt, instead of prompt."
    )
    agent: AgentSpec | None = Field(
        default=None, description="The agent that answers. Exactly one of agent and program."
    )
    agents: Annotated[tuple[SubAgentSpec, ...], Field(max_length=64)] = Field(
        default=(), description="Sub-agents, which tools of kind agent name; at most 64, with unique names."
    )
    program: ProgramSpec | None = Field(default=None, description="A graph in Python instead of an agent.")
    budget: Budget = Field(
        default=Budget(), description="What the run may spend. May be changed at any time."
    )
    concurrency: Annotated[Int, Field(ge=1, le=256)] = Field(
        default=16, description="Steps that may run at once. Default 16."
    )
    suspend: Bool = Field(
        default=False,
        description="True parks the run, false lets it go on. May be changed at any time. Default false.",
    )
    shutdown: Shutdown | None = Field(
        default=None,
        description="Stop lets running steps finish and ends the run, Terminate ends it at once. There is "
        "no way back. Default: neither.",
    )
    retry_token: Annotated[Str, Field(max_length=256)] | None = Field(
        default=None, description="A new value lets a failed run go on from where it failed."
    )
    start_deadline_seconds: _Seconds | None = Field(
        default=None, description="Seconds until the run must first have started. Default: no limit."
    )
    completion_deadline_seconds: _Seconds | None = Field(
        default=None, description="Seconds from its start until the run must have ended. Default: no limit."
    )
    termination_grace_period_seconds: Annotated[Int, Field(ge=1, le=86400)] = Field(
        default=30, description="Seconds that running steps get to finish when a pod must go. Default 30."
    )
    ttl_seconds_after_finished: Annotated[Int, Field(ge=0, le=31_536_000)] | None = Field(
        default=None, description="Seconds after its end until the object is deleted. Default: it is kept."
    )
    pod_retention_policy: PodRetentionPolicy = Field(
        default=PodRetentionPolicy.ON_FAILURE,
        description="Which ended pods are kept to look at: OnFailure, Always or Never. Default OnFailure.",
    )
    pod_template: PodTemplate | None = Field(default=None, description="What to add to the run's pods.")

    @model_validator(mode="after")
    def _parts_fit_together(self) -> AgentRunSpec:
        found = [
            *self._what_runs(),
            *self._repeated_agents(),
            *self._unknown_agents(),
            *shared_variables(self),
        ]
        if found:
            raise RuleError(found)
        return self

    def _what_runs(self) -> Iterator[tuple[Path, str]]:
        prompts = [self.prompt is not None, self.prompt_from is not None]
        if (self.agent is None) == (self.program is None):
            has = "it has none" if self.agent is None else "it has both"
            yield (), f"must have exactly one of agent and program; {has}"
        elif self.agent is not None and not any(prompts):
            yield (), "an agent needs exactly one of prompt and promptFrom; it has none"
        if all(prompts):
            yield (), "must have at most one of prompt and promptFrom; it has both"
        if self.program is not None and self.agents:
            yield ("agents",), "are for an agent's tools, and this run is a program; remove them"

    def _repeated_agents(self) -> Iterator[tuple[Path, str]]:
        seen: dict[str, int] = {}
        for index, agent in enumerate(self.agents):
            first = seen.setdefault(agent.name, index)
            if first != index:
                yield ("agents", index, "name"), f"'{agent.name}' is already the name of agents[{first}]"

    def _unknown_agents(self) -> Iterator[tuple[Path, str]]:
        names = [agent.name for agent in self.agents]
        for path, agent in self.all_agents():
            for index, tool in enumerate(agent.tools):
                if tool.agent is not None and tool.agent not in names:
                    known = f"known are: {', '.join(names)}" if names else "spec.agents has none"
                    yield (*path, "tools", index, "agent"), f"no sub-agent is named '{tool.agent}'; {known}"

    def all_agents(self) -> Iterator[tuple[Path, AgentSpec]]:
        """The agent, if there is one, and the sub-agents, each with its path below the spec."""
        if self.agent is not None:
            yield ("agent",), self.agent
        for index, agent in enumerate(self.agents):
            yield ("agents", index), agent


class AgentRun(ManifestModel):
    """One run of an agent, as an object. A `status`, as in an exported manifest, is ignored."""

    api_version: Literal["agentrun.dev/v1alpha1"] = Field(description="agentrun.dev/v1alpha1.")
    kind: Literal["AgentRun"] = Field(description="AgentRun.")
    metadata: ObjectMeta = Field(
        description="Name, namespace, labels and annotations, as of any Kubernetes object."
    )
    spec: AgentRunSpec = Field(description="What to run.")

    @model_validator(mode="before")
    @classmethod
    def _status_is_ignored(cls, data: Any) -> Any:
        if isinstance(data, dict):
            return {key: value for key, value in data.items() if key != "status"}
        return data
