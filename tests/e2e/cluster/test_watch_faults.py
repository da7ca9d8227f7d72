"""Watches that are cut, expired, refused or silent: what they would have told is found, and they come back.

The operator is a process on this machine with a proxy between it and the API server.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest

from tests.e2e.cluster.kube import Kubectl, KubeError, Object, wait_until
from tests.e2e.cluster.own_operator import ACCOUNT, OwnOperator, give_rights, own_operator
from tests.e2e.cluster.runs import agentrun, wait_phase
from tests.e2e.cluster.store import ClusterStore
from tests.e2e.cluster.watcher import Watcher, one_pod_a_run
from tests.integration.pod.pods import agent

pytestmark = pytest.mark.alone

NEVER = "3600"
INACTIVITY = 12
REQUEST = 5
SLACK = 10
"""What a busy machine may take for what is a second or two."""


def run(name: str, seconds: float = 1) -> Object:
    return agentrun(name, agent({"text": "Here.", "delaySeconds": seconds}))


def started(kube: Kubectl, name: str) -> bool:
    return bool(kube.list("pods", f"agentrun.dev/run={name}"))


def is_under_way(kube: Kubectl, name: str) -> bool:
    """It has a pod, or needs none any more."""
    found = kube.get("agentrun", name)
    return started(kube, name) or (found is not None and found.get("status", {}).get("phase") == "Succeeded")


def check_once(kube: Kubectl, store: ClusterStore, watcher: Watcher, *names: str) -> None:
    """Each of them succeeded, by its first pod."""
    for name in names:
        status = wait_phase(kube, name, "Succeeded")["status"]
        assert (status["attempt"], status["failures"], status["disruptions"]) == (1, 0, 0), status
        assert len(store.attempts(UUID(status["runID"]))) == 1
        assert len(watcher.pods(name)) <= 1


def check_healthy(own: OwnOperator) -> None:
    assert own.ended() is None
    wait_until(lambda: own.ask("/readyz") == (200, "ok\n"), seconds=30, shown=lambda: str(own.ask("/readyz")))
    assert own.ask("/healthz") == (200, "ok\n")
    wait_until(own.is_watching, seconds=15, shown=lambda: str(own.proxy.watched()))


def test_connections_that_die_without_a_word_delay_a_run_by_the_inactivity_bound(
    runs_here: Kubectl, store: ClusterStore, tmp_path: Path
) -> None:
    kube = runs_here
    settings = {"AGENTRUN_SWEEP_SECONDS": NEVER, "AGENTRUN_WATCH_INACTIVITY_SECONDS": str(INACTIVITY)}
    with own_operator(kube, tmp_path, **settings) as own, Watcher(kube, one_pod_a_run) as watcher:
        kube.apply(run("before", seconds=25))
        wait_phase(kube, "before", "Running")
        wait_until(own.is_watching, seconds=15)
        assert own.proxy.freeze() >= 2
        began = time.monotonic()
        kube.apply(run("meanwhile"))
        bound = INACTIVITY + REQUEST + SLACK
        wait_until(lambda: started(kube, "meanwhile"), seconds=bound, every=0.5)
        took = time.monotonic() - began
        assert took > 2, "it was told by a connection that should be dead"
        print(f"picked up after {took:.1f} s of {bound}")
        assert own.ask("/healthz") == (200, "ok\n")
        check_once(kube, store, watcher, "before", "meanwhile")
        kube.apply(run("after"))
        wait_until(lambda: started(kube, "after"), seconds=SLACK)
        check_once(kube, store, watcher, "after")
        check_healthy(own)


def test_watches_that_are_reset_again_and_again_miss_nothing(
    runs_here: Kubectl, store: ClusterStore, tmp_path: Path
) -> None:
    kube = runs_here
    names = [f"run-{number}" for number in range(4)]
    with (
        own_operator(kube, tmp_path, AGENTRUN_SWEEP_SECONDS=NEVER) as own,
        Watcher(kube, one_pod_a_run) as watcher,
    ):
        broken, end = 0, time.monotonic() + 20
        for name in names:
            kube.apply(run(name))
            while time.monotonic() < end - 5 * (len(names) - 1 - names.index(name)):
                broken += own.proxy.reset_watches()
                time.sleep(0.4)
        assert broken > 10
        for name in names:
            wait_until(partial(is_under_way, kube, name), seconds=SLACK)
        check_once(kube, store, watcher, *names)
        check_healthy(own)


def test_watches_that_have_expired_for_half_a_minute_start_no_run_twice(
    runs_here: Kubectl, store: ClusterStore, tmp_path: Path
) -> None:
    kube = runs_here
    names = [f"run-{number}" for number in range(5)]
    with (
        own_operator(kube, tmp_path, AGENTRUN_SWEEP_SECONDS=NEVER) as own,
        Watcher(kube, one_pod_a_run) as watcher,
    ):
        kube.apply(*(run(name, seconds=20) for name in names[:3]))
        wait_phase(kube, names[2], "Running")
        own.proxy.answer_watches_with(410)
        listed, end = own.proxy.asked("GET", "agentruns"), time.monotonic() + 30
        kube.apply(*(run(name, seconds=5) for name in names[3:]))
        for name in names[3:]:
            wait_until(partial(is_under_way, kube, name), seconds=SLACK)
        time.sleep(max(0.0, end - time.monotonic()))
        assert own.proxy.asked("GET", "agentruns") - listed > 10, "it was listed anew each time"
        own.proxy.answer_watches_with(0)
        check_once(kube, store, watcher, *names)
        # The pod, Pending, Running, the end: what is listed again and again is not written again.
        assert own.proxy.asked("POST", "pods") == len(names)
        assert own.proxy.asked("PATCH", "agentruns") <= 4 * len(names)
        check_healthy(own)


def may_list_pods(kube: Kubectl) -> bool:
    """As the API server sees it now: it takes a moment to see a changed Role."""
    try:
        kube("auth", "can-i", "list", "pods", f"--as=system:serviceaccount:{kube.namespace}:{ACCOUNT}")
    except KubeError:
        return False
    return True


def test_pods_that_may_not_be_listed_for_a_while_hold_up_no_run(
    runs_here: Kubectl, store: ClusterStore, tmp_path: Path
) -> None:
    kube = runs_here
    with (
        own_operator(kube, tmp_path, AGENTRUN_SWEEP_SECONDS="5") as own,
        Watcher(kube, one_pod_a_run) as watcher,
    ):
        kube.apply(run("before", seconds=20))
        wait_phase(kube, "before", "Running")
        give_rights(kube, pods=["get", "create", "delete"])
        wait_until(lambda: not may_list_pods(kube), seconds=15)
        own.proxy.reset_watches()
        kube.apply(run("meanwhile"))
        wait_until(
            lambda: "HTTP 403" in own.ask("/readyz")[1], seconds=30, shown=lambda: str(own.ask("/readyz"))
        )
        assert own.ask("/healthz") == (200, "ok\n")
        wait_until(lambda: own.proxy.watched() == ["agentruns"], seconds=5)
        check_once(kube, store, watcher, "before", "meanwhile")
        give_rights(kube)
        check_healthy(own)
        kube.apply(run("after"))
        check_once(kube, store, watcher, "after")


def test_through_a_slow_server_the_last_of_many_edits_counts_at_the_price_of_few_writes(
    runs_here: Kubectl, tmp_path: Path
) -> None:
    kube = runs_here
    with own_operator(kube, tmp_path) as own, Watcher(kube, one_pod_a_run) as watcher:
        own.proxy.slow_down(0.3)
        names = [f"edited-{number}" for number in range(3)]
        kube.apply(*(run(name, seconds=60) for name in names))
        kube("annotate", "agentruns", "--all", "by=somebody-else")
        for suspend in (True, False):
            for name in names:
                kube.patch("agentrun", name, {"spec": {"suspend": suspend}})
        for number in range(10):
            kube("label", "agentruns", "--all", "--overwrite", f"edit={number}")
        for change in ({"suspend": True}, {"suspend": False}, {"shutdown": "Terminate"}):
            kube.patch("agentrun", names[0], {"spec": change})
        # While edits come faster than the server answers, status waits: it is written for what was read.
        wait_phase(kube, names[0], "Cancelled", seconds=45)
        for name in names[1:]:
            wait_phase(kube, name, "Running")
            assert len(watcher.pods(name)) <= 2, "a suspension that is taken back may cost a pod"
        assert own.proxy.asked("PATCH", "agentruns") < 15 * len(names)
        assert own.proxy.asked("POST", "pods") <= 2 * len(names) + 1
        check_healthy(own)
