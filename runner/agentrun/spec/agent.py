"""An agent and its sub-agents: instructions, a model, tools, a shape of the answer.

Used by `run`. Invariants: within one agent, tool names are unique and toolChoice
names a tool that is there. Whether a sub-agent exists is the run's to check.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field, model_validator

from agentrun.spec.base import Description, LongText, ManifestModel, ObjectSchema, TextSource, ToolName
from agentrun.spec.context import ContextSpec
from agentrun.spec.errors import Path, RuleError
from agentrun.spec.model import FallbackModel, ModelSpec
from agentrun.spec.tools import ToolSpec

TOOLS_MAX = 128
TOOL_CHOICES = ("auto", "required", "none")
READ_RESULT = "read_result"
"""The built-in tool, which every agent with tools has."""


class AgentSpec(ManifestModel):
    """The agent of a run."""

    instructions: LongText | None = Field(
        default=None,
        description="What the agent is told before the prompt (the system prompt); at most 64 KiB.",
    )
    instructions_from: TextSource | None = Field(
        default=None, description="The ConfigMap that holds the instructions, instead of instructions."
    )
    model: ModelSpec = Field(description="The model that the agent talks to.")
    tools: Annotated[tuple[ToolSpec, ...], Field(max_length=TOOLS_MAX)] = Field(
        default=(), description="Tools that the agent may call; at most 128, with unique names."
    )
    context: ContextSpec = Field(
        default=ContextSpec(), description="How much of the conversation the model is sent."
    )
    output_schema: ObjectSchema | None = Field(
        default=None, description="JSON schema (type object) that the answer must fit. Default: free text."
    )

    @model_validator(mode="after")
    def _parts_fit_together(self) -> AgentSpec:
        found: list[tuple[Path, str]] = []
        if self.instructions is not None and self.instructions_from is not None:
            found.append(((), "must have at most one of instructions and instructionsFrom; it has both"))
        if self.context.compaction is not None and self.model.context_window is None:
            found.append((("model", "contextWindow"), "is needed for context.compaction, and is not set"))
        found.extend(self._repeated_tools())
        found.extend(self._unknown_tool_choices())
        if found:
            raise RuleError(found)
        return self

    def _repeated_tools(self) -> Iterator[tuple[Path, str]]:
        seen: dict[str, int] = {}
        for index, tool in enumerate(self.tools):
            first = seen.setdefault(tool.tool_name, index)
            field = "name" if tool.name else "agent"
            if tool.tool_name == READ_RESULT:
                yield ("tools", index, field), f"'{READ_RESULT}' is the name of a built-in tool; take another"
            if first != index:
                yield ("tools", index, field), f"'{tool.tool_name}' is already the name of tools[{first}]"

    def _unknown_tool_choices(self) -> Iterator[tuple[Path, str]]:
        if any(tool.is_server for tool in self.tools):
            return  # what their tools are called is not known yet
        names = {tool.tool_name for tool in self.tools} | ({READ_RESULT} if self.tools else set())
        for path, model in self.models():
            choice = model.settings.tool_choice
            if choice is not None and choice not in TOOL_CHOICES and choice not in names:
                yield (
                    (*path, "settings", "toolChoice"),
                    f"must be auto, required, none or the name of a tool; no tool is named '{choice}'",
                )

    def models(self) -> Iterator[tuple[Path, FallbackModel]]:
        """The model and its fallbacks, each with its path below this agent."""
        yield ("model",), self.model
        for index, fallback in enumerate(self.model.fallbacks):
            yield ("model", "fallbacks", index), fallback


class SubAgentSpec(AgentSpec):
    """An agent that others call as a tool. Its prompt is what the caller writes."""

    name: ToolName = Field(description="Its name, by which tools name it; unique among spec.agents.")
    description: Description = Field(
        default="", description="What it is good for, for the model that may call it."
    )
