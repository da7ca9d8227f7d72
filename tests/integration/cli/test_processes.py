"""Runs in processes of their own: signals, crashes, take-overs, and who is told what."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from agentrun.local.embedded import EmbeddedPostgres
from tests.integration.cli.conftest import (
    ANSWER,
    Agentrun,
    Running,
    execute,
    lookups,
    manifest,
    wait_until,
)

Start = Callable[..., Running]

LONG = 300
"""Seconds that nobody waits for."""


@pytest.fixture
def run_id() -> str:
    return str(uuid4())


@pytest.fixture
def slow(tmp_path: Path) -> str:
    """A run that would not end by itself in time; its grace is a second."""
    return manifest(tmp_path, [lookups(0, LONG), ANSWER], terminationGracePeriodSeconds=1)


def started(start: Start, file: str, run_id: str, *argv: str) -> Running:
    """The run, where one of its look-ups is done and one is not."""
    running = start("run", file, "--run-id", run_id, *argv)
    running.until("finished node=call-1-0")
    return running


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_pauses_and_a_resume_does_nothing_twice(
    start: Start, agentrun: Agentrun, run_id: str, tmp_path: Path, number: signal.Signals
) -> None:
    file = manifest(tmp_path, [lookups(0, 0.5), ANSWER])
    running = started(start, file, run_id)
    running.process.send_signal(number)
    said = running.end()
    assert said.code == 75
    assert "stopping reason=Terminated" in said.err
    assert "finished node=call-1-1" in said.err  # it had the grace to finish
    assert f"agentrun: go on with: agentrun resume {run_id}\n" in said.err
    assert agentrun("show", run_id, "-o", "json").json["reason"] == "Terminated"
    said = agentrun("resume", run_id)
    assert (said.code, said.out) == (0, "the answer\n")
    assert "launched node=call" not in said.err
    view = agentrun("show", run_id, "-o", "json").json
    assert [attempt["outcome"] for attempt in view["attempts"]] == ["Paused", "Succeeded"]
    assert view["budget"]["retries"]["used"] == 0


def test_what_does_not_finish_within_the_grace_is_given_up(
    start: Start, agentrun: Agentrun, run_id: str, slow: str
) -> None:
    running = started(start, slow, run_id)
    running.process.terminate()
    assert running.end().code == 75
    view = agentrun("show", run_id, "-o", "json").json
    assert "call-1-1" not in [step["node"] for step in view["steps"]]
    assert view["attempts"][0]["outcome"] == "Paused"


def test_a_second_signal_ends_at_once(start: Start, agentrun: Agentrun, run_id: str, tmp_path: Path) -> None:
    file = manifest(tmp_path, [lookups(0, LONG), ANSWER], terminationGracePeriodSeconds=LONG)
    running = started(start, file, run_id)
    running.process.terminate()
    running.until("stopping")
    running.process.terminate()
    assert running.end().code == 75
    assert agentrun("show", run_id, "-o", "json").json["attempts"][0]["outcome"] == "Paused"


def test_a_killed_process_shows_as_interrupted_and_its_run_goes_on(
    start: Start, agentrun: Agentrun, run_id: str, tmp_path: Path
) -> None:
    running = started(start, manifest(tmp_path, [lookups(0, 1.5), ANSWER]), run_id)
    running.process.kill()
    # Its parent has not even noticed.
    wait_until(lambda: phase(agentrun, run_id) != "Running")
    assert phase(agentrun, run_id) == "Paused"
    running.end()
    view = agentrun("show", run_id, "-o", "json").json
    assert view["reason"] == "Interrupted"
    assert (view["attempts"][0]["outcome"], view["attempts"][0]["live"]) == (None, False)
    said = agentrun("resume", run_id)
    assert (said.code, said.out) == (0, "the answer\n")
    assert "launched node=call-1-0" not in said.err
    assert "launched node=call-1-1" in said.err
    view = agentrun("show", run_id, "-o", "json").json
    assert [attempt["outcome"] for attempt in view["attempts"]] == ["Crashed", "Succeeded"]
    assert view["budget"]["retries"]["used"] == 1


def phase(agentrun: Agentrun, run_id: str) -> str:
    runs = agentrun("list", "-o", "json").json["runs"]
    found: str = next(run["phase"] for run in runs if run["runID"] == run_id)
    return found


def test_a_live_run_is_refused_and_taken_over_when_asked(
    start: Start, agentrun: Agentrun, run_id: str, tmp_path: Path
) -> None:
    file = manifest(tmp_path, [lookups(0, 2), ANSWER])
    running = started(start, file, run_id)
    assert phase(agentrun, run_id) == "Running"
    for argv in (["run", file, "--run-id", run_id], ["resume", run_id[:13]]):
        said = agentrun(*argv)
        assert said.code == 2 and said.err.count("\n") == 1
        assert f"attempt 1, process {running.process.pid} on " in said.err
        assert "--take-over" in said.err
    said = agentrun("resume", run_id, "--take-over")
    assert (said.code, said.out) == (0, "the answer\n")
    loser = running.end()
    assert (loser.code, loser.out) == (76, "")
    assert "agentrun: another process has taken the run over" in loser.err
    view = agentrun("show", run_id, "-o", "json").json
    assert [attempt["outcome"] for attempt in view["attempts"]] == ["Disrupted", "Succeeded"]
    assert view["budget"]["retries"]["used"] == 0


@pytest.mark.parametrize("now", [False, True])
def test_a_live_run_is_cancelled_by_its_own_process(
    start: Start, agentrun: Agentrun, run_id: str, tmp_path: Path, now: bool
) -> None:
    running = started(start, manifest(tmp_path, [lookups(0, LONG if now else 1), ANSWER]), run_id)
    said = agentrun("cancel", run_id, "--reason", "too dear: stop", *(["--now"] if now else []))
    assert (said.code, said.out) == (0, f"run {run_id} is cancelled\n")
    assert f"asked attempt 1, process {running.process.pid}" in said.err
    ended = running.end()
    assert ended.code == 1
    assert "agentrun: cancelled (Cancelled)" in ended.err
    view = agentrun("show", run_id, "-o", "json").json
    assert (view["phase"], view["attempts"][0]["outcome"]) == ("Cancelled", "Cancelled")
    assert (view["message"], view["levels"]["shutdown"]) == (
        "too dear: stop",
        "Terminate" if now else "Stop",
    )
    assert ("call-1-1" in [step["node"] for step in view["steps"]]) == (not now)


def test_a_cancel_waits_no_longer_than_it_is_told(
    start: Start, agentrun: Agentrun, run_id: str, slow: str
) -> None:
    started(start, slow, run_id)
    said = agentrun("cancel", run_id, "--wait-seconds", "1", "-o", "json")
    assert said.code == 75
    assert (said.json["phase"], said.json["reason"], said.json["exitCode"]) == ("Running", "Cancelling", 75)
    assert agentrun("show", run_id, "-o", "json").json["levels"]["shutdown"] == "Stop"


def test_the_run_of_a_dead_process_is_cancelled_by_the_command(
    start: Start, agentrun: Agentrun, run_id: str, slow: str
) -> None:
    running = started(start, slow, run_id)
    running.process.kill()
    running.end()
    said = agentrun("cancel", run_id, "--reason", "not needed", "-o", "json")
    assert (said.code, said.json["phase"], said.json["message"]) == (0, "Cancelled", "not needed")
    view = agentrun("show", run_id, "-o", "json").json
    assert [attempt["outcome"] for attempt in view["attempts"]] == ["Crashed", "Cancelled"]
    assert phase(agentrun, run_id) == "Cancelled"
    again = agentrun("cancel", run_id)
    assert (again.code, again.out) == (0, f"run {run_id} was cancelled already\n")
    assert agentrun("resume", run_id).code == 1


def test_events_are_followed_to_the_end_of_the_run(start: Start, run_id: str, tmp_path: Path) -> None:
    file = manifest(tmp_path, [lookups(0, 1), ANSWER])
    running = started(start, file, run_id)
    following = start("events", run_id, "--follow", "-o", "json")
    assert running.end().code == 0
    said = following.end()
    assert said.code == 0
    events = [json.loads(line) for line in said.out.splitlines()]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert events[-1]["final"] == {"outcome": "Succeeded", "reason": "Completed", "message": ""}
    late = start("events", run_id, "--follow", "--after", str(len(events)), "-o", "json").end()
    assert (late.code, late.out) == (0, "")


def test_following_a_run_that_is_paused_waits_until_it_is_interrupted(
    start: Start, agentrun: Agentrun, run_id: str, tmp_path: Path
) -> None:
    file = manifest(tmp_path, [lookups(0), ANSWER], budget={"turns": 1})
    assert agentrun("run", file, "--run-id", run_id).code == 75
    following = start("events", run_id, "--follow")
    assert following.process.stdout
    while "tools-1" not in following.process.stdout.readline():
        pass
    following.process.send_signal(signal.SIGINT)
    said = following.end()
    assert (said.code, said.err) == (130, "")


def test_a_run_goes_on_over_a_restart_of_its_server(
    start: Start, run_id: str, tmp_path: Path, postgres: EmbeddedPostgres
) -> None:
    running = started(start, manifest(tmp_path, [lookups(0, 0.5), ANSWER]), run_id)
    postgres.restart_immediate()
    said = running.end()
    assert (said.code, said.out) == (0, "the answer\n")


def test_a_reader_that_goes_away_harms_nothing(start: Start, run_id: str, dsn: str, slow: str) -> None:
    file = manifest(Path(slow).parent, [lookups(0, 0.5), ANSWER])
    running = started(start, file, run_id)
    assert running.process.stderr and running.process.stdout
    running.process.stderr.close()
    running.process.stdout.close()
    running.process.stderr = running.process.stdout = None
    assert running.process.wait(timeout=60) == 0
    assert execute(dsn, "SELECT ended FROM run WHERE run_id = $1::text::uuid", run_id)


def test_an_early_signal_ends_before_anything_is_made(start: Start, tmp_path: Path) -> None:
    pipe = tmp_path / "manifest"
    os.mkfifo(pipe)
    running = start("run", str(pipe))
    with pipe.open("w"):  # it waits for the manifest now
        running.process.terminate()
        said = running.end()
    assert (said.code, said.out) == (75, "")
    assert said.err == "agentrun: stopped before the run began\n"
