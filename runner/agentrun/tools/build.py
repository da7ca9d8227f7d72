"""Makes a tool of plain values. Called by the agent layer, once per tool and run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agentrun.tools.base import Effect, OnUnknown, Tool
from agentrun.tools.errors import ToolSetupError
from agentrun.tools.exchange import HttpSession
from agentrun.tools.http import HttpEndpoint, HttpTool
from agentrun.tools.python import PythonTool

if TYPE_CHECKING:
    from agentrun.spec.approval import ApprovalRule

TIMEOUT_SECONDS = 60.0


def build_tool(
    *,
    name: str,
    python: str | None = None,
    http: HttpEndpoint | None = None,
    session: HttpSession | None = None,
    description: str = "",
    parameters: Mapping[str, Any] | None = None,
    effect: Effect = Effect.UNSAFE,
    on_unknown: OnUnknown = OnUnknown.REPORT,
    timeout_seconds: float | None = None,
    approval: ApprovalRule | None = None,
) -> Tool:
    """One tool; exactly one of `python` (an entrypoint) and `http` is given.

    `session` is shared by the HTTP tools of a set. A Python tool without description
    or parameters has them from its docstring and signature. Raises ToolSetupError,
    one line that names the tool.
    """
    settings: dict[str, Any] = {
        "name": name,
        "description": description,
        "parameters": parameters,
        "effect": effect,
        "on_unknown": on_unknown,
        "timeout_seconds": TIMEOUT_SECONDS if timeout_seconds is None else timeout_seconds,
        "approval": approval,
    }
    try:
        if python is not None and http is None:
            return PythonTool.load(python, **settings)
        if http is not None and python is None:
            return HttpTool(endpoint=http, session=session or HttpSession(), **settings)
        raise ToolSetupError("it must be of exactly one kind")
    except ToolSetupError as error:
        raise ToolSetupError(f"tool {name}: {error}") from error
