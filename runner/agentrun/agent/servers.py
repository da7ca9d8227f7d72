"""Tool servers of an agent: their tools, listed once and recorded, then told and called from the record.

Who calls: the loop. What holds: what a model is told of a server's tools is a function
of the log and the manifest alone, whatever the server lists later; an agent never goes
on without tools that it was given, unless the manifest calls their server optional, and
then its model is told so.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from agentrun.agent.ask import AgentModel
from agentrun.graph.types import NodeContext, NodeError, NodeResult, Spawned
from agentrun.log.text import safe_text
from agentrun.models.base import ToolDefinition
from agentrun.proto import transcript_pb2 as pb
from agentrun.spec.agent import TOOL_CHOICES
from agentrun.spec.approval import ApprovalRule
from agentrun.tools import Effect, OnUnknown, Tool, ToolCall, ToolOutput
from agentrun.tools.base import ServerTool, ToolServer, ToolServerUnavailable
from agentrun.tools.names import told_names
from agentrun.tools.offer import effect_of, offer

UNAVAILABLE = "ToolServerUnavailable"
"""Why a run is parked (the server may come back) or has failed (it has refused us)."""

LIST_TRIES_MAX = 3
"""After so many tries to list a server's tools the run parks."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ServerEntry:
    """An entry of a manifest that gives many tools. `effect` None: as the server says."""

    name: str
    server: ToolServer
    optional: bool = False
    allow: Collection[str] = ()
    deny: Collection[str] = ()
    effect: Effect | None = None
    on_unknown: OnUnknown = OnUnknown.REPORT
    timeout_seconds: float = 60.0
    approval: ApprovalRule | None = None
    """Of calls of each of its tools."""


def list_steps(entries: Sequence[ServerEntry]) -> list[Spawned]:
    """One step a server; the agent's first turn waits for all of them."""
    return [Spawned(kind="list_tools", name=_step_name(entry.name)) for entry in entries]


async def list_tools(entry: ServerEntry, node: NodeContext) -> NodeResult:
    """What the server offers, for the record."""
    try:
        listed = await entry.server.list_tools(node.confirm)
    except ToolServerUnavailable as error:
        if not entry.optional:
            raise NodeError(
                UNAVAILABLE,
                f"{entry.name}: {error.message}",
                retryable=error.retryable,
                parks_after=LIST_TRIES_MAX,
            ) from error
        logger.warning("tool server %s: %s: going on without its tools", entry.name, error.message)
        return NodeResult(
            output=pb.ToolList(unavailable=safe_text(error.message)).SerializeToString(),
        )
    found = offer(listed, allow=entry.allow, deny=entry.deny, effect=entry.effect)
    for warning in found.warnings:
        logger.warning("tool server %s: %s", entry.name, warning)
    return NodeResult(output=found.SerializeToString())


@dataclass(frozen=True, kw_only=True)
class Offered:
    """What the servers of one agent have offered. `note`: for its instructions, "" for nothing."""

    tools: Mapping[str, Tool]
    note: str = ""


async def offered(entries: Sequence[ServerEntry], taken: Collection[str], node: NodeContext) -> Offered:
    """From the records of the node's own graph. `taken`: names that the manifest gives to tools."""
    lists = {}
    for entry in entries:
        if node.is_done(_step_name(entry.name)):
            lists[entry.name] = pb.ToolList.FromString(await node.output(_step_name(entry.name)))
    told = told_names({name: [tool.label for tool in found.tools] for name, found in lists.items()}, taken)
    tools: dict[str, Tool] = {}
    for entry in entries:
        for tool in lists.get(entry.name, pb.ToolList()).tools:
            name = told[entry.name, tool.label]
            tools[name] = _ServedTool(entry, tool, name)
    away = [name for name, found in lists.items() if found.unavailable]
    return Offered(tools=tools, note="".join(_notes(away)))


def require_choices(models: Sequence[AgentModel], names: Collection[str]) -> None:
    """NodeError where a model is told to call a tool that no server has offered: its provider would
    refuse every request."""
    for model in models:
        choice = model.settings.get("toolChoice")
        if choice is not None and choice not in TOOL_CHOICES and choice not in names:
            message = f"settings.toolChoice: there is no tool named {choice!r}"
            raise NodeError("ToolNotFound", message, retryable=False)


def _notes(away: Sequence[str]) -> Iterator[str]:
    for name in away:
        yield f"\n\nThe tools of the server {name!r} are not available: it could not be reached."


def _step_name(server: str) -> str:
    return f"list-{server}"


class _ServedTool:
    """One tool of a server, as recorded."""

    def __init__(self, entry: ServerEntry, tool: pb.ListedTool, name: str) -> None:
        self._server = entry.server
        self.definition = ToolDefinition(
            name=name, description=tool.description, parameters=json.loads(tool.parameters_json)
        )
        self.effect = effect_of(tool)
        self.on_unknown = entry.on_unknown
        self.timeout_seconds = entry.timeout_seconds
        self.approval = entry.approval
        self._tool = ServerTool(
            name=tool.name,
            description=tool.description,
            parameters=self.definition.parameters,
            effect=self.effect,
            binding=tool.binding,
        )

    async def call(self, call: ToolCall) -> ToolOutput:
        """Under the name that the server knows."""
        return await self._server.call_tool(self._tool, call, self.timeout_seconds)

    async def close(self) -> None:
        """The server is closed by whoever opened it."""
