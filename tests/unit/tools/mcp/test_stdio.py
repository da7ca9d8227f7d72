"""Servers that are processes of ours: they chatter, die, hang and are slow to go."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from agentrun.tools import ToolError
from agentrun.tools.base import ToolServerUnavailable
from agentrun.tools.mcp import McpCommand, McpServer
from agentrun.tools.mcp.stdio import INHERITED, environment
from tests.support.mcp_calls import calling, nothing, run
from tests.support.stub_tools import wait_until

ROOT = Path(__file__).resolve().parents[4]


def server_of(how: str = "", *more: str, env: dict[str, str] | None = None, **settings: Any) -> McpServer:
    command = [sys.executable, "-m", "tests.support.stdio_server", how, *more]
    found = {"PYTHONPATH": str(ROOT), **(env or {})}
    return McpServer(McpCommand(command=command, env=found), **{"start_timeout_seconds": 20.0, **settings})


def test_tools_are_listed_and_called() -> None:
    server = server_of()

    async def main() -> str:
        assert [found.name for found in await server.list_tools(nothing)][:2] == ["echo", "env"]
        return (
            await calling(server, '{"big": 12345678901234567890123, "é": "\\ud83d\\ude42"}', name="echo")
        ).content

    assert json.loads(run(main(), server)) == {"big": 12345678901234567890123, "é": "🙂"}


def test_its_environment_is_minimal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTRUN_DATABASE_URL", "postgres://secret")
    monkeypatch.setenv("AGENTRUN_SECRET_MODEL__KEY", "secret")
    monkeypatch.setenv("LANG", "C.UTF-8")
    server = server_of(env={"OWN": "value"})
    found = json.loads(run(calling(server, name="env"), server).content)
    assert (found["OWN"], found["LANG"]) == ("value", "C.UTF-8")
    assert set(found) <= {*INHERITED, "OWN", "PYTHONPATH"}


def test_what_an_entry_says_of_the_environment_counts() -> None:
    assert environment({"PATH": "/own"}, {"PATH": "/bin", "HOME": "/h", "X": "1"}) == {
        "PATH": "/own",
        "HOME": "/h",
    }
    beside = str(Path(sys.executable).parent)
    assert environment({}, {"PATH": "/bin"}) == {"PATH": f"/bin{os.pathsep}{beside}"}
    assert environment({}, {}) == {"PATH": beside}


def test_lines_that_are_no_messages_are_left_aside_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    server = server_of("noise", secrets=["at work"])

    async def main() -> str:
        await server.list_tools(nothing)
        return (await calling(server, name="noisy")).content

    with caplog.at_level(logging.WARNING):
        assert run(main(), server) == "heard"
    told = [record.getMessage() for record in caplog.records if "no message" in record.getMessage()]
    assert "Server is starting…" in told[0]
    assert any("INFO: ***" in text for text in told)


def test_a_process_that_dies_fails_its_calls_at_once_and_another_one_is_started() -> None:
    server = server_of()

    async def main() -> None:
        hanging = asyncio.ensure_future(calling(server, name="hang", seconds=60.0))
        await calling(server, name="echo")
        began = time.monotonic()
        outcomes = await asyncio.gather(
            hanging, calling(server, name="die", seconds=60.0), return_exceptions=True
        )
        assert time.monotonic() - began < 10.0
        for error in outcomes:
            assert isinstance(error, ToolError)
            assert (error.reason, error.retryable, error.started) == ("ConnectionLost", True, True)
            assert error.message == "it ended with exit code 3: about to die"
        assert (await calling(server, name="echo")).content == "{}"

    run(main(), server)


def test_a_call_after_the_process_has_died_is_sent_to_a_new_one_once(tmp_path: Path) -> None:
    server = server_of()
    file = tmp_path / "count"

    async def main() -> str:
        with pytest.raises(ToolError):
            await calling(server, name="die")
        return (await calling(server, json.dumps({"file": str(file)}), name="count")).content

    assert run(main(), server) == "counted"
    assert file.read_text() == "called\n"


@pytest.mark.parametrize("name", ["hang", "wrong_id", "late"])
def test_a_call_that_is_never_answered_times_out(name: str) -> None:
    server = server_of()

    async def main() -> ToolError:
        await server.list_tools(nothing)
        with pytest.raises(ToolError) as caught:
            await calling(server, name=name, seconds=0.4)
        # The late answer comes with the next call's, and is not taken for it.
        assert (await calling(server, '{"n": 1}', name="echo")).content == '{"n": 1}'
        return caught.value

    error = run(main(), server)
    assert (error.reason, error.started) == ("Timeout", True)
    assert error.message == "timed out after 0.4 s, may have taken effect"


def test_progress_gives_a_call_its_time_anew() -> None:
    server = server_of()

    async def main() -> str:
        await server.list_tools(nothing)
        return (await calling(server, name="progress", seconds=0.7)).content

    assert run(main(), server) == "done"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["/no/such/program"], "/no/such/program cannot be started: No such file or directory"),
        (["/etc/passwd"], "/etc/passwd cannot be started: Permission denied"),
    ],
)
def test_a_program_that_cannot_be_started_is_final(command: list[str], message: str) -> None:
    server = McpServer(McpCommand(command=command))
    with pytest.raises(ToolServerUnavailable) as caught:
        run(server.list_tools(nothing), server)
    assert (caught.value.message, caught.value.retryable) == (message, False)


def test_a_program_that_ends_at_once_says_why() -> None:
    server = server_of("exit", start_timeout_seconds=1.5)
    with pytest.raises(ToolServerUnavailable) as caught:
        run(server.list_tools(nothing), server)
    assert caught.value.message == "it ended with exit code 7: no licence found (waited 1.5 s)"
    assert caught.value.retryable


def test_a_program_that_never_answers_is_given_up_in_time() -> None:
    server = server_of("mute", start_timeout_seconds=0.5)
    began = time.monotonic()
    with pytest.raises(ToolServerUnavailable, match="no answer"):
        run(server.list_tools(nothing), server)
    assert time.monotonic() - began < 4.0


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def test_a_stubborn_process_and_its_children_are_ended_within_a_second(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    server = server_of("stubborn", str(file))

    async def main() -> float:
        await server.list_tools(nothing)
        hanging = asyncio.ensure_future(calling(server, name="hang", seconds=60.0))
        await asyncio.sleep(0)
        began = time.monotonic()
        await server.close()
        took = time.monotonic() - began
        with pytest.raises(ToolError):
            await hanging
        return took

    assert run(main()) < 2.0
    pids = [int(pid) for pid in file.read_text().split()]
    assert wait_until(lambda: not any(map(alive, pids)))


def test_a_call_that_is_cancelled_does_not_wait_for_the_process() -> None:
    server = server_of()

    async def main() -> float:
        await server.list_tools(nothing)
        hanging = asyncio.ensure_future(calling(server, name="hang", seconds=60.0))
        await asyncio.sleep(0.1)
        began = time.monotonic()
        hanging.cancel()
        await asyncio.wait({hanging})
        return time.monotonic() - began

    assert run(main(), server) < 1.0
