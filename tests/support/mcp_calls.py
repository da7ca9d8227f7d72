"""Calls of MCP servers, outside of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import mcp.client.session  # noqa: F401  (half a second, which is no time of a test's)

from agentrun.tools import Effect, ToolCall, ToolOutput
from agentrun.tools.base import ServerTool
from agentrun.tools.mcp import McpEndpoint, McpServer
from tests.support.stub_mcp import StubMcp


async def nothing() -> None:
    return None


def call(arguments: str = "{}", *, before_send: Callable[[], Awaitable[None]] = nothing) -> ToolCall:
    return ToolCall(
        arguments=arguments,
        idempotency_key="run:call-1",
        run_id="run",
        node_id="call-1",
        before_send=before_send,
    )


def server_of(stub: StubMcp, **more: Any) -> McpServer:
    headers = more.pop("headers", {})
    return McpServer(McpEndpoint(url=stub.url, headers=headers), **{"start_timeout_seconds": 5.0, **more})


async def calling(
    server: McpServer, arguments: str = "{}", *, name: str = "pay", seconds: float = 10.0, **more: Any
) -> ToolOutput:
    found = ServerTool(name=name, effect=Effect.UNSAFE)
    return await server.call_tool(found, call(arguments, **more), seconds)


def run(main: Awaitable[Any], *servers: McpServer) -> Any:
    """In a loop of its own; the servers are closed at its end."""

    async def whole() -> Any:
        try:
            return await main
        finally:
            await asyncio.gather(*(server.close() for server in servers))

    return asyncio.run(whole())


async def until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Waits for what another thread or task brings about."""
    for _ in range(int(seconds / 0.01)):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it has not come about")
