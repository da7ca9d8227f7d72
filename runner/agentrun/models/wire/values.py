"""Reading JSON that may be of any shape, without ever raising.

For the dialects: a server that is almost compatible sends null, a number or a
list where an object belongs.
"""

from __future__ import annotations

from typing import Any

from agentrun.log.text import safe_text

NO_ANSWER = "(no answer)"
"""Stands for an assistant turn with neither text nor calls: providers refuse an empty one."""
NO_OUTPUT = "(no output)"
"""Stands for an empty result of a tool."""
EMPTY = "(empty)"
"""Stands for an empty message of the user."""
GO_ON = "(go on)"
"""Stands behind a turn that another model has paused."""


def as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def as_text(value: Any) -> str:
    return safe_text(value) if isinstance(value, str) else ""


def filled(text: str, placeholder: str) -> str:
    """`text` made safe, or `placeholder` when there is nothing in it to see."""
    return safe_text(text) if text.strip() else placeholder
