"""The protocol's own servers, one over streamable HTTP and one over pipes, used by a run that is killed.

They are programs of node, which `make node-servers` brings; where they are not on PATH this is skipped.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.mcp.test_kills import call, manifest, outcome
from tests.support.commands import Commands
from tests.support.stub_tools import closed_port, wait_until

EVERYTHING, FILES = (shutil.which(f"mcp-server-{name}") for name in ("everything", "filesystem"))

pytestmark = pytest.mark.skipif(
    EVERYTHING is None or FILES is None,
    reason="mcp-server-everything and mcp-server-filesystem are not on PATH",
)


class Everything:
    """The server of everything, over streamable HTTP."""

    def __init__(self, log: Path) -> None:
        self.port = closed_port()
        self._log = log
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [str(EVERYTHING), "streamableHttp"],
                env={**os.environ, "PORT": str(self.port)},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        assert wait_until(self._listens, seconds=60)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    @property
    def requests(self) -> int:
        """That it has got."""
        return self._log.read_text().count("Received MCP POST request")


@pytest.fixture
def everything(tmp_path: Path) -> Iterator[Everything]:
    server = Everything(tmp_path / "everything.log")
    yield server
    server.process.kill()
    server.process.wait()


@pytest.mark.parametrize("effect", ["unsafe", "as the server says"])
def test_a_run_that_is_killed_within_a_call_ends_well_and_repeats_no_unsafe_call(
    agentrun: Commands, run_id: str, everything: Everything, tmp_path: Path, effect: str
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "a").write_text("hello")

    def move(old: str, new: str) -> dict[str, Any]:
        return call("move_file", source=str(folder / old), destination=str(folder / new))

    turns: list[dict[str, Any]] = [
        {"toolCalls": [move("a", "b"), call("echo", message="hi"), call("get-tiny-image")]},
        {"toolCalls": [call("trigger-long-running-operation", duration=4, steps=4), move("b", "c")]},
        {"toolCalls": [move("c", "d"), call("read_text_file", path=str(folder / "d"))], "delaySeconds": 0.1},
        {"text": "the end"},
    ]
    every: dict[str, Any] = {"name": "every", "mcp": {"url": f"http://127.0.0.1:{everything.port}/mcp"}}
    files = {"name": "files", "mcp": {"command": [str(FILES), str(folder)], "startTimeoutSeconds": 60}}
    what = manifest(turns, [every | ({"effect": effect} if effect == "unsafe" else {}), files])
    running = agentrun.start("run", agentrun.write(what), "--run-id", run_id)
    running.until(lambda: "finished node=call-2-1" in running.err and everything.requests >= 5)
    running.kill()
    before = everything.requests
    ended = agentrun("resume", run_id, "--take-over")
    assert (ended.code, ended.out) == (0, "the end\n"), ended.err
    assert [path.name for path in folder.iterdir()] == ["d"], "each file was moved once"
    assert outcome(agentrun, run_id, "call-1-1")["content"] == "Echo: hi"
    assert "[image: image/png" in outcome(agentrun, run_id, "call-1-2")["content"]
    cut_off = outcome(agentrun, run_id, "call-2-0")
    if effect == "unsafe":
        assert cut_off["outcome"] == "TOOL_OUTCOME_UNKNOWN" and everything.requests == before
    else:
        assert cut_off["content"].startswith("Long running operation completed")
        assert everything.requests > before
    assert {outcome(agentrun, run_id, f"call-{k}")["outcome"] for k in ("1-0", "2-1", "3-0")} == {
        "TOOL_OUTCOME_OK"
    }
