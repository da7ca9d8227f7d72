"""Tools that do what their arguments say, and note down each time that they take effect."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from agentrun.tools import ToolError, ToolOutput
from agentrun.tools.context import ToolContext

EFFECTS: dict[str, list[Effect]] = {}
"""By run id, in order."""


@dataclass(frozen=True)
class Effect:
    """A tool was reached."""

    tool: str
    node_id: str
    key: str


async def _act(tool: str, context: ToolContext, item: Any, how: str, seconds: float) -> Any:
    effects = EFFECTS.setdefault(context.run_id, [])
    if how == "unreachable":
        raise ToolError("ConnectionError", "nobody listens", retryable=True, started=False)
    effects.append(Effect(tool, context.node_id, context.idempotency_key))
    await asyncio.sleep(1e6 if how == "hang" else seconds)
    if how == "busy" and sum(effect.key == context.idempotency_key for effect in effects) < 3:
        raise ToolError("Unavailable", "busy", retryable=True, retry_after_seconds=0.2)
    if how == "raise":
        raise RuntimeError("broken: \ud800 \x00")
    if how == "error":
        return ToolOutput(content="\n", is_error=True)
    if how == "long":
        return f"{item}\n" * 20_000
    return "" if how == "empty" else {"item": item}


async def look(context: ToolContext, item: Any = None, how: str = "ok", seconds: float = 0.0) -> Any:
    """Looks something up."""
    return await _act("look", context, item, how, seconds)


async def put(context: ToolContext, item: Any = None, how: str = "ok", seconds: float = 0.0) -> Any:
    """Puts something where it belongs."""
    return await _act("put", context, item, how, seconds)


async def send(context: ToolContext, item: Any = None, how: str = "ok", seconds: float = 0.0) -> Any:
    """Sends something away."""
    return await _act("send", context, item, how, seconds)


async def ask_send(context: ToolContext, item: Any = None, how: str = "ok", seconds: float = 0.0) -> Any:
    """Sends something away, and asks whether to do it again."""
    return await _act("ask_send", context, item, how, seconds)


async def resend(context: ToolContext, item: Any = None, how: str = "ok", seconds: float = 0.0) -> Any:
    """Sends something away, more than once if need be."""
    return await _act("resend", context, item, how, seconds)
