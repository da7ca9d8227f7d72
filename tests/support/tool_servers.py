"""A tool server in memory that does as it is told, for runs in simulated time.

    servers = {"": [entry("files", [ServerTool(name="read")])]}
    bench = ServerBench(manifest(turns, []), servers)

Each process of a bench has servers of its own, which share what they remember.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from agentrun.agent.loop import Agent
from agentrun.agent.servers import ServerEntry
from agentrun.graph.types import NodeKind, Spawned
from agentrun.tools import ToolCall, ToolOutput
from agentrun.tools.base import ServerTool, ToolServerUnavailable
from tests.support.agents import AgentBench


@dataclass
class FakeServer:
    """`away`: how many listings fail first (retryable, unless `final`). `output`: of each call."""

    tools: Sequence[ServerTool] = ()
    away: int = 0
    final: bool = False
    seconds: float = 0.1
    output: ToolOutput = field(default_factory=lambda: ToolOutput(content="done"))
    listings: int = 0
    called: list[tuple[str, str, str]] = field(default_factory=list)

    async def list_tools(self, before_send: Callable[[], Awaitable[None]]) -> Sequence[ServerTool]:
        await before_send()
        self.listings += 1
        await asyncio.sleep(self.seconds)
        if self.listings <= self.away:
            raise ToolServerUnavailable("connection refused", retryable=not self.final)
        return self.tools

    async def call_tool(self, tool: ServerTool, call: ToolCall, timeout_seconds: float) -> ToolOutput:
        await call.before_send()
        self.called.append((tool.name, call.arguments, call.idempotency_key))
        await asyncio.sleep(self.seconds)
        return self.output

    async def close(self) -> None:
        return None


class ServerBench(AgentBench):
    """One run of a manifest whose agents have tool servers: by the agent's name, "" the run's own."""

    def __init__(
        self, manifest: Mapping[str, Any], servers: Mapping[str, Sequence[ServerEntry]], **more: Any
    ) -> None:
        super().__init__(manifest, **more)
        self.servers = servers

    def plan(self) -> tuple[Mapping[str, NodeKind], Spawned]:
        @functools.wraps(Agent)
        def with_servers(**given: Any) -> Agent:
            return Agent(**{**given, "servers": self.servers.get(given["name"], ())})

        with mock.patch("agentrun.agent.program.Agent", with_servers):
            return super().plan()


def entry(name: str, tools: Sequence[ServerTool] = (), **more: Any) -> ServerEntry:
    """`more`: of the server, and of the entry."""
    of_server = {key: more.pop(key) for key in ("away", "final", "seconds", "output") if key in more}
    return ServerEntry(name=name, server=FakeServer(tools=tools, **of_server), **more)
