"""SIGTERM at any moment: what is in flight is recorded if it finishes in time, nothing new
is launched, the process ends with 75 well before SIGKILL, and another one goes on."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from agentrun.log.replay import FORMAT
from agentrun.log.store import AttemptOutcome
from agentrun.proto import log_pb2 as pb
from tests.integration.pod.pods import ROOT, Runs, agent, call, tool

NAP_THEN_ADD = [{"toolCalls": [call("nap", seconds=1.5), call("add", a=1, b=2)]}, {"text": "Done."}]
TOOLS = [tool("nap"), tool("add", "agentrun.tools.demo:add")]


def test_a_tool_in_flight_is_recorded_and_what_waits_is_not_started(runs: Runs) -> None:
    run = runs.make(agent(*NAP_THEN_ADD, tools=TOOLS, concurrency=1))
    pod = run.pod()
    pod.wait_for("launched", node="call-1-0")
    pod.terminate()
    assert pod.ended(5) == 75
    assert pod.words()["reason"] == "Terminated"
    assert "call-1-0" in run.history().done and "call-1-1" not in run.history().done
    assert run.summary()["phase"] == "Paused"
    assert [row.outcome for row in run.attempts()] == [AttemptOutcome.PAUSED]
    second = run.pod()
    assert second.ended() == 0
    assert (run.calls("nap"), run.calls("add")) == (1, 1)


def test_a_signal_that_comes_before_python_is_there_is_kept_by_the_images_entry_point() -> None:
    # As the image does it: signals are blocked before Python is there, so that process 1 loses none.
    script = (
        "kill -TERM $$; exec env --block-signal=TERM --block-signal=INT --block-signal=HUP {} -m agentrun.pod"
    )
    blocked = ["env", "--block-signal=TERM", "sh", "-c", script.format(sys.executable)]
    started = time.monotonic()
    done = subprocess.run(
        blocked, env={"PATH": os.environ["PATH"]}, capture_output=True, timeout=20, cwd=ROOT, check=False
    )
    assert done.returncode == 75, done
    assert time.monotonic() - started < 3


@pytest.mark.parametrize("after_ms", [0, 50, 100, 150, 200, 300, 400, 600])
def test_a_signal_while_it_starts_ends_it_promptly(runs: Runs, after_ms: int) -> None:
    run = runs.make(agent({"toolCalls": [call("nap", seconds=5)]}, {"text": "Done."}, tools=TOOLS))
    pod = run.pod(AGENTRUN_GRACE_SECONDS="3")
    time.sleep(after_ms / 1000)
    pod.terminate()
    sent = time.monotonic()
    code = pod.ended(4)
    assert time.monotonic() - sent < 2.9
    # Before Python is up the signal's default action ends it, here where it is not process 1.
    assert code == 75 or (after_ms < 100 and code == -15)
    assert "call-1-0" not in run.history().done


def test_a_short_grace_leaves_room_to_say_how_it_ended(runs: Runs) -> None:
    run = runs.make(agent({"toolCalls": [call("nap", seconds=30)]}, {"text": "Done."}, tools=TOOLS))
    pod = run.pod(AGENTRUN_GRACE_SECONDS="3")
    pod.wait_for("launched", node="call-1-0")
    pod.terminate()
    sent = time.monotonic()
    assert pod.ended(4) == 75
    assert 2.0 < time.monotonic() - sent < 2.95
    assert [(row.outcome, row.reason) for row in run.attempts()] == [(AttemptOutcome.PAUSED, "Terminated")]
    assert "call-1-0" not in run.history().done


def test_a_second_signal_ends_it_at_once(runs: Runs) -> None:
    run = runs.make(agent({"toolCalls": [call("nap", seconds=30)]}, {"text": "Done."}, tools=TOOLS))
    pod = run.pod(AGENTRUN_GRACE_SECONDS="30")
    pod.wait_for("launched", node="call-1-0")
    pod.terminate()
    pod.wait_for("stopping")
    pod.terminate()
    assert pod.ended(2) == 75
    assert [row.outcome for row in run.attempts()] == [AttemptOutcome.PAUSED]


def test_a_wait_before_a_retry_does_not_hold_it_up(runs: Runs) -> None:
    error = {"error": {"status": 429, "message": "slow down", "retryAfterSeconds": 60}}
    run = runs.make(agent(error, {"text": "Done."}))
    pod = run.pod()
    pod.wait_for("failed", node="turn-1")
    pod.terminate()
    assert pod.ended(2) == 75
    assert run.history().tries == {"turn-1": 1}


def test_a_thread_that_a_tool_holds_does_not_hold_it_up(runs: Runs) -> None:
    run = runs.make(
        agent({"toolCalls": [call("block", seconds=120)]}, {"text": "Done."}, tools=[tool("block")])
    )
    pod = run.pod(AGENTRUN_GRACE_SECONDS="3")
    pod.wait_for("launched", node="call-1-0")
    pod.terminate()
    sent = time.monotonic()
    assert pod.ended(4) == 75
    assert time.monotonic() - sent < 2.95
    assert "call-1-0" not in run.history().done


@pytest.mark.parametrize("twice", [False, True])
def test_a_loop_that_a_tool_holds_ends_in_time_and_says_that_it_is_paused(runs: Runs, twice: bool) -> None:
    run = runs.make(
        agent({"toolCalls": [call("hold", seconds=120)]}, {"text": "Done."}, tools=[tool("hold")])
    )
    pod = run.pod(AGENTRUN_GRACE_SECONDS="30" if twice else "3")
    pod.wait_for("launched", node="call-1-0")
    pod.terminate()
    if twice:
        time.sleep(0.2)
        pod.terminate()
    sent = time.monotonic()
    assert pod.ended(8) == 75
    assert time.monotonic() - sent < (7 if twice else 2.95)
    assert [(row.outcome, row.reason) for row in run.attempts()] == [(AttemptOutcome.PAUSED, "Terminated")]


def filler(first: int, count: int) -> list[tuple[int, pb.NodeRecord]]:
    """That many messages more in a log."""
    return [
        (seq, pb.NodeRecord(format=FORMAT, id=f"filler-{seq}", kind="append_user_message", epoch=1))
        for seq in range(first, first + count)
    ]


def test_reading_a_long_log_does_not_hold_it_up(runs: Runs) -> None:
    run = runs.make(agent({"toolCalls": [call("nap", seconds=30)]}, {"text": "Done."}, tools=TOOLS))
    first = run.pod()
    first.wait_for("launched", node="call-1-0")
    first.kill()
    run.append(filler(run.history().head + 1, 5000))
    for delay in (0.0, 0.3, 0.4, 0.5, 0.6):
        pod = run.pod(AGENTRUN_GRACE_SECONDS="3")
        pod.wait_for("starting")
        time.sleep(delay)
        pod.terminate()
        sent = time.monotonic()
        assert pod.ended(4) == 75
        assert time.monotonic() - sent < (2.95 if pod.events("launched") else 1.0)
    run.history()  # nothing is half there
