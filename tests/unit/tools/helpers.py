"""Calls for the tests of tools."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from agentrun.tools import HttpEndpoint, HttpSession, Tool, ToolCall, ToolError, ToolOutput, build_tool

NUMBERS = (
    '{"id": 9007199254740993, "n": 1, "f": 1.0, "e": 1e400, "neg": -0.0, '
    '"big": 123456789012345678901234567890, "amount": 19.90}'
)
"""Numbers of which something is lost on the way through a double, or a careless parser."""


SAMPLES = "tests.unit.tools.sample_functions"


async def nothing() -> None:
    return None


def a_call(
    arguments: str = "{}", *, key: str = "run-1/3", before_send: Callable[[], Awaitable[None]] = nothing
) -> ToolCall:
    return ToolCall(
        arguments=arguments, idempotency_key=key, run_id="run-1", node_id="3", before_send=before_send
    )


def run(tool: Tool, arguments: str = "{}", **more: Any) -> ToolOutput:
    """One call in a loop of its own, and the tool closed behind it."""

    async def once() -> ToolOutput:
        try:
            return await tool.call(a_call(arguments, **more))
        finally:
            await tool.close()

    return asyncio.run(once())


def python_tool(function: str, **more: Any) -> Tool:
    """The tool of one of the sample functions."""
    return build_tool(name=function, python=f"{SAMPLES}:{function}", **more)


def endpoint_tool(url: str, *, session: HttpSession | None = None, **more: Any) -> Tool:
    """The tool of an endpoint; `more` are settings of either."""
    settings = {
        key: more.pop(key)
        for key in ("effect", "timeout_seconds", "parameters", "description")
        if key in more
    }
    return build_tool(name="remote", http=HttpEndpoint(url=url, **more), session=session, **settings)


def failing(tool: Tool, arguments: str = "{}", **more: Any) -> ToolError:
    """What a call raises that must raise."""
    with pytest.raises(ToolError) as error:
        run(tool, arguments, **more)
    return error.value
