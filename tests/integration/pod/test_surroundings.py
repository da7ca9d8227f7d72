"""What is around a runner in its pod: process number 1, a shell before it, a proxy beside it."""

from __future__ import annotations

import socket
import sys
import time

import pytest

from agentrun.log.store import AttemptOutcome
from tests.integration.pod.pods import RUNNER, Run, Runs, agent, call, may_be_container, settle, tool
from tests.support.proxy import Proxy
from tests.support.stub_model import StubModel
from tests.unit.pod.test_images import entry_point

TOOLS = [tool("nap"), tool("add", "agentrun.tools.demo:add")]
IMAGE = [sys.executable if word.endswith("/python") else word for word in entry_point("runner")]
"""The image's entry point, with this environment's Python."""

contained = pytest.mark.skipif(
    not may_be_container(), reason="the system lets nobody make process numbers (e2e does the same)"
)


def long_nap(runs: Runs, seconds: float = 30) -> Run:
    """One step that is recorded, and a batch that takes long."""
    turns = [
        {"toolCalls": [call("add", a=1, b=2)]},
        {"toolCalls": [call("nap", seconds=seconds)]},
        {"text": "3"},
    ]
    return runs.make(agent(*turns, tools=TOOLS))


@contained
@pytest.mark.parametrize("after_ms", [0, 50, 150, 400])
def test_as_process_1_it_hears_a_signal_from_its_first_moment_on(runs: Runs, after_ms: int) -> None:
    run = long_nap(runs)
    pod = run.pod(command=IMAGE, AGENTRUN_GRACE_SECONDS="3")
    time.sleep(after_ms / 1000)  # when the signal comes is what is tried here
    pod.terminate()
    sent = time.monotonic()
    assert pod.ended(4) == 75
    assert time.monotonic() - sent < 2.95
    run.history()  # nothing is half there


@contained
def test_as_process_1_it_records_what_is_in_flight(runs: Runs) -> None:
    run = long_nap(runs, seconds=1.0)
    pod = run.pod(command=IMAGE, AGENTRUN_GRACE_SECONDS="10")
    pod.wait_for("launched", node="call-2-0")
    pod.terminate()
    assert pod.ended(5) == 75
    assert "call-2-0" in run.history().done
    assert [(row.outcome, row.reason) for row in run.attempts()] == [(AttemptOutcome.PAUSED, "Terminated")]


@contained
@pytest.mark.parametrize("script", ["exec {}", "set -e; export A=b; exec {}"])
def test_a_shell_that_gives_its_place_to_the_runner_is_no_harm(runs: Runs, script: str) -> None:
    run = long_nap(runs)
    command = ["sh", "-c", script.format(" ".join(RUNNER))]
    pod = run.pod(command=command, AGENTRUN_GRACE_SECONDS="3")
    pod.wait_for("launched", node="call-2-0")
    pod.terminate()
    assert pod.ended(4) == 75
    assert [(row.outcome, row.reason) for row in run.attempts()] == [(AttemptOutcome.PAUSED, "Terminated")]


@contained
def test_a_shell_that_stays_keeps_signals_away_and_loses_nothing_that_was_recorded(runs: Runs) -> None:
    run = long_nap(runs, seconds=1.5)
    pod = run.pod(command=["sh", "-c", " ".join(RUNNER) + "; exit $?"])
    pod.wait_for("launched", node="call-2-0")
    pod.terminate()  # to the shell, which has no handler and is process 1: dropped
    time.sleep(0.3)
    assert not pod.events("stopping")
    pod.kill()  # as the kubelet does at the end of the grace
    assert "call-1-0" in run.history().done and "call-2-0" not in run.history().done
    assert [row.outcome for row in run.attempts()] == [None]  # the operator sees a pod that was deleted
    assert run.pod().ended() == 0
    assert (run.calls("add"), run.calls("nap")) == (1, 2)


def test_a_proxy_that_comes_up_late_delays_a_run_and_fails_nothing(runs: Runs) -> None:
    with socket.socket() as taken, Proxy(runs.dsn) as proxy:
        taken.bind(("127.0.0.1", 0))  # bound and not listened at: connections are refused
        port = taken.getsockname()[1]
        model = {"name": "openai:stub", "baseURL": f"http://127.0.0.1:{port}/v1"}
        run = runs.make({"prompt": "Go on.", "agent": {"model": model}})
        proxy.refuse()
        pod = run.pod(AGENTRUN_DATABASE_URL=proxy.dsn)
        pod.wait_for("waiting_for_store")
        proxy.heal()
        pod.wait_for("failed", node="turn-1")
        taken.close()
        with StubModel(["Done."], port=port) as stub:
            assert pod.ended() == 0
            assert stub.count == 1
    assert [row.outcome for row in run.attempts()] == [AttemptOutcome.SUCCEEDED]


def test_a_proxy_that_goes_with_the_signal_costs_what_was_in_flight_alone(runs: Runs) -> None:
    run = long_nap(runs, seconds=5.0)
    with Proxy(runs.dsn) as proxy:
        pod = run.pod(AGENTRUN_DATABASE_URL=proxy.dsn, AGENTRUN_GRACE_SECONDS="4")
        pod.wait_for("launched", node="call-2-0")
        settle(lambda: "turn-2" in run.history().done)
        pod.terminate()
        proxy.refuse()
        sent = time.monotonic()
        assert pod.ended(5) == 75
        assert time.monotonic() - sent < 3.95
    before = set(run.history().done)
    assert {"turn-1", "call-1-0", "turn-2"} <= before and "call-2-0" not in before
    assert run.pod().ended() == 0
    assert before <= set(run.history().done)
    assert (run.calls("add"), run.calls("nap")) == (1, 2)
