"""A watch that is dead for good: sweeps find what it misses, and liveness asks for a restart.

The operator is a process on this machine with a proxy between it and the API server.
"""

from __future__ import annotations

import signal
from pathlib import Path
from uuid import UUID

import pytest

from tests.e2e.cluster.kube import Kubectl, wait_until
from tests.e2e.cluster.own_operator import own_operator
from tests.e2e.cluster.runs import agentrun, wait_phase
from tests.e2e.cluster.store import ClusterStore
from tests.integration.pod.pods import agent

pytestmark = pytest.mark.alone

SWEEP = 6
SILENT = 15
SLACK = 10


def test_a_watch_that_brings_bookmarks_and_no_news_is_found_dead_while_sweeps_do_its_work(
    runs_here: Kubectl, store: ClusterStore, tmp_path: Path
) -> None:
    kube = runs_here
    settings = {"AGENTRUN_SWEEP_SECONDS": str(SWEEP), "AGENTRUN_WATCH_SILENT_SECONDS": str(SILENT)}
    with own_operator(kube, tmp_path, **settings) as own:
        own.proxy.deafen("agentruns")
        kube.apply(agentrun("hello", agent({"text": "Here."})))
        wait_until(
            lambda: kube.list("pods", "agentrun.dev/run=hello"),
            seconds=SWEEP + SLACK,
            shown=own.log.read_text,
        )
        status = wait_phase(kube, "hello", "Succeeded", seconds=3 * SWEEP + SLACK)["status"]
        assert own.ask("/healthz") == (200, "ok\n")
        wait_until(
            lambda: own.ask("/healthz")[0] == 503,
            seconds=SILENT + 3 * SWEEP + SLACK,
            shown=lambda: str(own.ask("/healthz")),
        )
        text = own.ask("/healthz")[1]
        assert "the watch of agentruns has told nothing" in text and "pods" not in text
        own.stop()
        assert own.ended() == 0
        own.proxy.deafen()
        own.start()
        assert own.ask("/healthz") == (200, "ok\n")
        kube.apply(agentrun("next", agent({"text": "Here."})))
        wait_phase(kube, "next", "Succeeded")
        assert len(store.attempts(UUID(status["runID"]))) == 1


def test_a_watch_that_the_server_ends_with_an_error_ends_the_process_and_the_next_one_goes_on(
    runs_here: Kubectl, store: ClusterStore, tmp_path: Path
) -> None:
    kube = runs_here
    with own_operator(kube, tmp_path) as own:
        kube.apply(agentrun("hello", agent({"text": "Here.", "delaySeconds": 15})))
        wait_phase(kube, "hello", "Running")
        own.proxy.answer_watches_with(500)
        wait_until(lambda: own.ended() is not None, seconds=30, shown=own.log.read_text)
        assert own.ended() == 1
        (said,) = [line for line in own.log.read_text().splitlines() if "a watch has ended" in line]
        assert "'code': 500" in said
        own.proxy.answer_watches_with(0)
        own.start()
        status = wait_phase(kube, "hello", "Succeeded")["status"]
        assert (status["attempt"], status["failures"], status["disruptions"]) == (1, 0, 0)
        own.stop(signal.SIGTERM)
        assert own.ended() == 0
        assert len(store.attempts(UUID(status["runID"]))) == 1
