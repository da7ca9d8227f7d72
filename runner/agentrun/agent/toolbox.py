"""One tool call: what is done with it, by its tool's effect and what became of it.

Who calls: the loop's `tool_call` step. What holds: a call gives exactly one result;
an unsafe call is made only behind a durable intent, and never again unless its
tool's policy says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentrun.agent.approval import call_again, consent, unknown
from agentrun.graph.types import NodeContext, NodeError
from agentrun.log.text import safe_text
from agentrun.models.base import ToolDefinition
from agentrun.proto import log_pb2
from agentrun.proto import transcript_pb2 as pb
from agentrun.tools import Effect, OnUnknown, Tool, ToolCall, ToolError

TRIES_MAX = 3
"""After so many tries of one call the model is told of its failure."""

OK, ERROR, TIMED_OUT = pb.TOOL_OUTCOME_OK, pb.TOOL_OUTCOME_ERROR, pb.TOOL_OUTCOME_TIMED_OUT
UNKNOWN, NOT_RUN = pb.TOOL_OUTCOME_UNKNOWN, pb.TOOL_OUTCOME_NOT_RUN

CUT_OFF = "Not run: the message was cut off by the output limit. Send the call again, or a smaller one."
OUTCOME_UNKNOWN = (
    "The outcome is unknown: the call was started and its result never came. It may have taken "
    "effect. Find out before you repeat it."
)


def result(name: str, outcome: pb.ToolOutcome, content: str) -> pb.ToolResult:
    """A result in the record's form; what a tool's own code said may hold anything."""
    return pb.ToolResult(name=name, content=safe_text(content), outcome=outcome)


def unknown_tool(name: str, known: list[str]) -> pb.ToolResult:
    """The model has asked for a tool that it does not have."""
    valid = ", ".join(known) if known else "there are none"
    return result(name, NOT_RUN, f"Not run: there is no tool named {name!r}. Tools: {valid}.")


@dataclass(frozen=True)
class Told:
    """A call's result, and what is kept beside it."""

    result: pb.ToolResult
    attachments: Sequence[log_pb2.Payload] = ()


class Toolbox:
    """The tools of one agent."""

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self._tools = tools

    @property
    def definitions(self) -> list[ToolDefinition]:
        """In the order of the manifest, always: providers' caches depend on it."""
        return [tool.definition for tool in self._tools.values()]

    @property
    def tools(self) -> Mapping[str, Tool]:
        """By the name that the model is told."""
        return self._tools

    def has(self, name: str) -> bool:
        """There is such a tool."""
        return name in self._tools

    async def call(self, node: NodeContext, part: pb.ToolCallPart) -> Told:
        """Makes the call. Raises NodeError for a try that another should follow."""
        tool = self._tools[part.name]
        given = await consent(node, part, tool.approval)
        if given.denied:
            return Told(given.denial())
        if tool.effect is Effect.UNSAFE and node.interrupted:
            # What is asked about, and told of, is the call as it was made: perhaps with other arguments.
            return Told(given.tell(await self._interrupted(node, tool, given.part)))
        told = await self._make(node, tool, given.part)
        given.tell(told.result)
        return told

    async def _make(self, node: NodeContext, tool: Tool, part: pb.ToolCallPart) -> Told:
        if tool.effect is Effect.UNSAFE:
            await node.intend()
        call = ToolCall(
            arguments=part.arguments,
            idempotency_key=f"{node.run_id}:{node.node_id}",
            run_id=str(node.run_id),
            node_id=node.node_id,
            before_send=node.confirm,
        )
        try:
            output = await tool.call(call)
        except ToolError as error:
            return Told(self._failed(tool, node, error))
        told = result(part.name, ERROR if output.is_error else OK, output.content)
        return Told(told, output.attachments)

    async def _interrupted(self, node: NodeContext, tool: Tool, part: pb.ToolCallPart) -> pb.ToolResult:
        """A process began the call and died: whether it took effect, nobody here can say."""
        again = tool.on_unknown is OnUnknown.RETRY
        if tool.on_unknown is OnUnknown.ASK:
            again, said = await call_again(node, part)
            if not again:
                return unknown(OUTCOME_UNKNOWN, part, said)
        if again:
            raise NodeError("OutcomeUnknown", OUTCOME_UNKNOWN, retryable=True, retry_after_seconds=0.0)
        return result(part.name, UNKNOWN, OUTCOME_UNKNOWN)

    def _failed(self, tool: Tool, node: NodeContext, error: ToolError) -> pb.ToolResult:
        repeatable = tool.effect is not Effect.UNSAFE or tool.on_unknown is OnUnknown.RETRY
        if error.retryable and (repeatable or not error.started) and node.try_number < TRIES_MAX:
            raise NodeError(
                error.reason,
                error.message,
                retryable=True,
                retry_after_seconds=error.retry_after_seconds,
            )
        name = tool.definition.name
        if error.reason == "Timeout":
            return result(name, TIMED_OUT, f"Error: {error.message}.")
        if error.retryable and error.started and tool.effect is Effect.UNSAFE:
            return result(name, UNKNOWN, f"{error.message}. {OUTCOME_UNKNOWN}")
        return result(name, ERROR, f"Error: {error.message}")
