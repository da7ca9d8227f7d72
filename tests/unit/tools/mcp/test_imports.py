"""A run without MCP servers pays nothing for them, and one with them when it first connects."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from agentrun.tools import ToolSetupError
from agentrun.tools.mcp import McpCommand, McpEndpoint, McpServer

HEAVY = ("mcp", "mcp_types", "anyio", "httpx2", "pydantic", "opentelemetry", "importlib.metadata")


@pytest.mark.parametrize(
    "statement",
    [
        "import agentrun.tools.mcp",
        "from agentrun.tools.mcp import *; McpServer(McpCommand(command=['x']))",
        "from agentrun.tools.mcp import *; McpServer(McpEndpoint(url='http://a/mcp', headers={'a': 'b'}))",
    ],
)
def test_the_sdk_is_imported_with_the_first_connection(statement: str) -> None:
    code = f"import json, sys\n{statement}\nprint(json.dumps([m for m in {HEAVY!r} if m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_without_the_sdk_an_entry_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentrun.tools.mcp.server.find_spec", lambda name: None)
    with pytest.raises(ToolSetupError, match=r"pip install 'agentrun\[mcp\]'"):
        McpServer(McpCommand(command=["x"]))


def test_a_header_that_cannot_be_sent_is_found_before_the_run_begins() -> None:
    with pytest.raises(ToolSetupError, match="header authorization"):
        McpServer(McpEndpoint(url="http://a/mcp", headers={"authorization": "Bearer ünicode"}))


def test_secrets_are_not_in_what_is_shown_of_an_entry() -> None:
    shown = repr(McpEndpoint(url="http://a", headers={"a": "s3cret"})) + repr(
        McpCommand(command=["x"], env={"A": "s3cret"})
    )
    assert "s3cret" not in shown
