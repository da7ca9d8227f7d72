"""Runs that use real MCP servers, killed in the middle of a call, come back and end well."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.mcp.conftest import HttpServer, by_key, lines
from tests.support.agents import agent
from tests.support.commands import ROOT, Commands

BIN = Path(sys.executable).parent
SLOW = 4.0
"""Seconds that the call takes in whose middle the process is killed."""


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def manifest(turns: list[dict[str, Any]], tools: list[dict[str, Any]]) -> dict[str, Any]:
    spec = {
        "prompt": "Go on.",
        "agent": agent(turns, tools),
        "budget": {"retries": 60},
        "terminationGracePeriodSeconds": 5,
    }
    return {
        "apiVersion": "agentrun.dev/v1alpha1",
        "kind": "AgentRun",
        "metadata": {"name": "mcp"},
        "spec": spec,
    }


def counting(way: str, file: Path, http_server: HttpServer) -> dict[str, Any]:
    """The counting server's entry, and the server where it is no process of the run's."""
    if way == "http":
        http_server.start()
        return {"name": "shop", "mcp": {"url": http_server.url}}
    command = [sys.executable, "-m", "tests.support.counting_mcp", str(file)]
    environment = [{"name": "PYTHONPATH", "value": str(ROOT)}]
    return {"name": "shop", "mcp": {"command": command, "env": environment, "startTimeoutSeconds": 60}}


def outcome(agentrun: Commands, run_id: str, node: str) -> dict[str, Any]:
    """What the model was told of a call."""
    (event,) = [event for event in agentrun.events(run_id) if event["node"] == node]
    value: dict[str, Any] = event["output"]["value"]
    return value


@pytest.mark.parametrize("way", ["stdio", "http"])
def test_an_unsafe_call_that_a_kill_cut_off_is_made_once_and_a_safe_one_again(
    agentrun: Commands, run_id: str, counted: Path, http_server: HttpServer, way: str
) -> None:
    turns: list[dict[str, Any]] = [
        {"toolCalls": [call("charge", n=1)]},
        {"toolCalls": [call("charge", n=2, seconds=SLOW), call("look", n=3, seconds=SLOW)]},
        {"toolCalls": [call("charge", n=4), call("look", n=5)]},
        {"text": "the end"},
    ]
    file = agentrun.write(manifest(turns, [counting(way, counted, http_server)]))
    running = agentrun.start("run", file, "--run-id", run_id)
    running.until(lambda: len(lines(counted)) == 3)
    running.kill()
    ended = agentrun("resume", run_id, "--take-over")
    assert (ended.code, ended.out) == (0, "the end\n"), ended.err
    assert set(by_key(counted, "charge").values()) == {1}
    assert [n for *_, n in lines(counted, name="charge")] == ["1", "2", "4"]
    assert by_key(counted, "look")[f"{run_id}:call-2-1"] == 2
    assert outcome(agentrun, run_id, "call-1-0")["outcome"] == "TOOL_OUTCOME_OK"
    assert outcome(agentrun, run_id, "call-2-0")["outcome"] == "TOOL_OUTCOME_UNKNOWN"
    assert outcome(agentrun, run_id, "call-2-1")["content"] == '{\n  "seen": 3\n}'
    listed = [event["node"] for event in agentrun.events(run_id) if event["kind"] == "list_tools"]
    assert listed == ["list-shop"]


def test_a_server_that_is_restarted_between_two_calls_is_not_noticed(
    agentrun: Commands, run_id: str, counted: Path, http_server: HttpServer
) -> None:
    turns: list[dict[str, Any]] = [
        {"toolCalls": [call("charge", n=1)]},
        {"toolCalls": [call("charge", n=n) for n in (2, 3, 4, 5)], "delaySeconds": 4},
        {"text": "the end"},
    ]
    file = agentrun.write(manifest(turns, [counting("http", counted, http_server)]))
    running = agentrun.start("run", file, "--run-id", run_id)
    running.until("finished node=tools-1")
    running.until("finished node=call-1-0")
    http_server.kill()
    http_server.start()
    ended = running.wait()
    assert ended.code == 0, ended.err
    assert sorted(n for *_, n in lines(counted)) == ["1", "2", "3", "4", "5"]
    assert "#1" not in {event["node"][-2:] for event in agentrun.events(run_id)}


def test_a_server_that_goes_down_costs_its_calls_and_the_run_goes_on(
    agentrun: Commands, run_id: str, counted: Path, http_server: HttpServer
) -> None:
    turns: list[dict[str, Any]] = [
        {"toolCalls": [call("charge", n=1)]},
        {"toolCalls": [call("charge", n=2)], "delaySeconds": 1},
        {"text": "the end"},
    ]
    entry = counting("http", counted, http_server)
    entry["mcp"]["startTimeoutSeconds"] = 1
    running = agentrun.start("run", agentrun.write(manifest(turns, [entry])), "--run-id", run_id)
    running.until("finished node=call-1-0")
    http_server.kill()
    ended = running.wait()
    assert ended.code == 0, ended.err
    told = outcome(agentrun, run_id, "call-2-0")
    assert told["outcome"] == "TOOL_OUTCOME_ERROR"
    assert "ConnectError" in told["content"]


def test_a_server_that_is_away_at_the_start_parks_the_run_until_it_is_resumed(
    agentrun: Commands, run_id: str, counted: Path, http_server: HttpServer
) -> None:
    entry = {"name": "shop", "mcp": {"url": http_server.url, "startTimeoutSeconds": 1}}
    turns: list[dict[str, Any]] = [{"toolCalls": [call("charge", n=1)]}, {"text": "the end"}]
    ended = agentrun("run", agentrun.write(manifest(turns, [entry])), "--run-id", run_id)
    assert ended.code == 75
    assert "agentrun: paused (ToolServerUnavailable): shop: ConnectError" in ended.err
    assert agentrun.show(run_id)["phase"] == "Paused"
    http_server.start()
    ended = agentrun("resume", run_id)
    assert (ended.code, ended.out) == (0, "the end\n"), ended.err
    assert len(lines(counted)) == 1


@pytest.mark.parametrize("way", ["stdio", "http"])
def test_a_drain_does_not_wait_for_a_call_that_never_ends(
    agentrun: Commands, run_id: str, counted: Path, http_server: HttpServer, way: str
) -> None:
    turns: list[dict[str, Any]] = [{"toolCalls": [call("charge", n=1, seconds=600.0)]}, {"text": "the end"}]
    file = agentrun.write(manifest(turns, [counting(way, counted, http_server)]))
    running = agentrun.start("run", file, "--run-id", run_id)
    running.until(lambda: len(lines(counted)) == 1)
    running.signal(signal.SIGTERM)
    ended = running.wait()
    assert ended.code == 75
    assert ended.seconds < 9.0  # its grace is 5 s
    ended = agentrun("resume", run_id)
    assert (ended.code, ended.out) == (0, "the end\n"), ended.err
    assert outcome(agentrun, run_id, "call-1-0")["outcome"] == "TOOL_OUTCOME_UNKNOWN"
    assert len(lines(counted)) == 1


def test_the_example_runs(agentrun: Commands) -> None:
    ended = agentrun("run", ROOT / "examples/mcp.yaml")
    assert (ended.code, ended.out) == (0, "The clock server has told us.\n"), ended.err
    assert "convert_time ok" in ended.err


def git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@example.com", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("seed", [1, 2])
def test_servers_of_others_are_used_by_a_run_that_is_killed_again_and_again(
    agentrun: Commands, run_id: str, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    git(folder, "commit", "-q", "--allow-empty", "-m", "the first")
    names = ("ann", "bob", "eve")
    turns: list[dict[str, Any]] = []
    for name in names:
        (folder / name).write_text(name)
        noon = {"source_timezone": "Europe/Lisbon", "time": "12:00", "target_timezone": "Asia/Tokyo"}
        added = call("git_add", repo_path=str(folder), files=[name])
        committed = call("git_commit", repo_path=str(folder), message=f"add {name}")
        turns += [
            {"toolCalls": [added, call("convert_time", **noon)], "delaySeconds": 0.3},
            {"toolCalls": [committed, call("git_status", repo_path=str(folder))], "delaySeconds": 0.3},
        ]
    turns.append({"text": "the end"})
    author = [
        {"name": f"GIT_{who}_{what}", "value": "t@t"}
        for who in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    ]
    tools = [
        {"name": "clock", "mcp": {"command": [str(BIN / "mcp-server-time")], "startTimeoutSeconds": 60}},
        {
            "name": "git",
            "mcp": {
                "command": [str(BIN / "mcp-server-git"), "--repository", str(folder)],
                "env": author,
                "startTimeoutSeconds": 60,
            },
        },
    ]
    file = agentrun.write(manifest(turns, tools))
    for turn in sorted(rng.sample(range(1, 7), 3)):
        running = agentrun.start("run", file, "--run-id", run_id, "--take-over")
        running.until(f"launched node=call-{turn}-0")
        assert running.lives_for(rng.uniform(0.0, 0.2)), "there is a turn of 0.3 s behind each of them"
        running.kill()
    ended = agentrun("run", file, "--run-id", run_id, "--take-over")
    assert (ended.code, ended.out) == (0, "the end\n"), ended.err
    messages = git(folder, "log", "--format=%s").splitlines()
    # Made once; or cut off and left to the model, which a script is not.
    unknown = [
        event["node"]
        for event in agentrun.events(run_id)
        if event["kind"] == "tool_call" and event["output"]["value"]["outcome"] == "TOOL_OUTCOME_UNKNOWN"
    ]
    assert len(set(messages)) == len(messages)
    assert len(messages) >= 1 + len(names) - len(unknown)
    told = [outcome(agentrun, run_id, f"call-{turn}-1") for turn in (1, 3, 5)]
    assert {result["outcome"] for result in told} == {"TOOL_OUTCOME_OK"}
