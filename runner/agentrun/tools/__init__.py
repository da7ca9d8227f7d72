"""Tools: what an agent can call.

The agent loop sees the seam in `agentrun.tools.base` only; `build_tool` makes a tool
of plain values, which the agent layer takes from a manifest. Importing this package
is cheap: httpx2 and pydantic are imported by the tools that need them.
"""

from __future__ import annotations

from agentrun.tools.arguments import parse_arguments
from agentrun.tools.base import Effect, OnUnknown, Tool, ToolCall, ToolError, ToolOutput
from agentrun.tools.build import build_tool
from agentrun.tools.context import ToolContext
from agentrun.tools.errors import ArgumentsError, ResultError, ToolSetupError
from agentrun.tools.exchange import HttpSession
from agentrun.tools.http import HttpEndpoint, HttpTool
from agentrun.tools.python import PythonTool
from agentrun.tools.results import RESULT_BYTES_MAX, cut_text, render_result

__all__ = [
    "RESULT_BYTES_MAX",
    "ArgumentsError",
    "Effect",
    "HttpEndpoint",
    "HttpSession",
    "HttpTool",
    "OnUnknown",
    "PythonTool",
    "ResultError",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolError",
    "ToolOutput",
    "ToolSetupError",
    "build_tool",
    "cut_text",
    "parse_arguments",
    "render_result",
]
