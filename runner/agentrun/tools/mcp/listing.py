"""Reads a page of `tools/list` as it came. Pure; called by `server`.

Invariant: a tool of odd form costs itself and no other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agentrun.log.masks import Masks
from agentrun.tools.base import Effect, ServerTool


def tools_of(page: Mapping[str, Any], masks: Masks) -> Iterator[ServerTool]:
    """The page's tools; what has no name is nothing that could be called."""
    listed = page.get("tools")
    for tool in listed if isinstance(listed, list) else ():
        if not isinstance(tool, Mapping) or not isinstance(tool.get("name"), str):
            continue
        yield ServerTool(
            name=tool["name"],
            description=masks.text(_description(tool)),
            parameters=tool.get("inputSchema"),
            effect=effect_of(tool.get("annotations")),
        )


def cursor_of(page: Mapping[str, Any]) -> str | None:
    """Where the list goes on."""
    cursor = page.get("nextCursor")
    return cursor if isinstance(cursor, str) and cursor else None


def effect_of(annotations: Any) -> Effect:
    """What a tool's own hints say; unsafe where they say nothing, or contradict each other."""
    hints = annotations if isinstance(annotations, Mapping) else {}
    if hints.get("readOnlyHint") is True:
        return Effect.UNSAFE if hints.get("destructiveHint") is True else Effect.READ_ONLY
    return Effect.IDEMPOTENT if hints.get("idempotentHint") is True else Effect.UNSAFE


def _description(tool: Mapping[str, Any]) -> str:
    for text in (tool.get("description"), tool.get("title")):
        if isinstance(text, str) and text.strip():
            return text
    return ""
