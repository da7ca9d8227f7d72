"""Two operators at once: they cost reads, and do no harm."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any
from uuid import UUID

from agentrun.log.store import AttemptOutcome
from tests.e2e.cluster.kube import Kubectl, Object
from tests.e2e.cluster.machinery import operator_scaled
from tests.e2e.cluster.runs import pods_of, stepping, wait_phase
from tests.e2e.cluster.store import ClusterStore
from tests.e2e.cluster.stubs import Stubs
from tests.e2e.cluster.watcher import Watcher, one_pod_a_run

SECONDS = 30


def test_two_at_once_make_no_second_pod_and_lose_no_update(
    runs_here: Kubectl, stubs: Stubs, store: ClusterStore
) -> None:
    kube = runs_here
    plain = [f"plain-{number}" for number in range(4)]
    others = ["suspended", "deleted", "raised"]

    def run(name: str, **more: Any) -> Object:
        return stepping(stubs, name, steps=3, seconds=3, **more)

    with operator_scaled(2), Watcher(kube, one_pod_a_run) as watcher:
        end = time.monotonic() + SECONDS
        kube.apply(*map(run, [*plain, "suspended", "deleted"]), run("raised", budget={"turns": 2}))
        for name in ("suspended", "deleted"):
            wait_phase(kube, name, "Running")
        kube.patch("agentrun", "suspended", {"spec": {"suspend": True}})
        kube.delete(
            "pod", kube.list("pods", "agentrun.dev/run=deleted")[0]["metadata"]["name"], "--wait=false"
        )
        wait_phase(kube, "suspended", "Paused", "Suspended")
        # The last of what is asked counts, whoever of the two saw what first.
        for suspend in (False, True, False):
            kube.patch("agentrun", "suspended", {"spec": {"suspend": suspend}})
        wait_phase(kube, "raised", "Paused", "BudgetExceeded")
        kube.patch("agentrun", "raised", {"spec": {"budget": {"turns": 50}}})
        found = {name: wait_phase(kube, name, "Succeeded", seconds=90) for name in [*plain, *others]}
        time.sleep(max(0.0, end - time.monotonic()))
    assert stubs.counts() == dict.fromkeys([*plain, *others], 3)
    told = Counter(
        (each["involvedObject"]["name"], each["reason"])
        for each in kube.list("events")
        if each["involvedObject"]["kind"] == "AgentRun"
        for _ in range(each.get("count") or 1)
    )
    for name, run_ in found.items():
        status = run_["status"]
        assert status["observedGeneration"] == run_["metadata"]["generation"], name
        assert status.get("failures", 0) == 0
        assert told[name, "Succeeded"] == 1, told
        # Each pod is told of once, and each is an attempt of its own.
        attempts = store.attempts(UUID(status["runID"]))
        assert told[name, "PodCreated"] <= len(watcher.pods(name)) <= len(attempts), (told, attempts)
        assert attempts[-1].outcome is AttemptOutcome.SUCCEEDED
        assert not pods_of(kube, name)
    for name in plain:
        assert found[name]["status"]["attempt"] == 1
    assert found["deleted"]["status"]["disruptions"] == 1
    # A pod that goes for a suspension that is taken back meanwhile may count as one.
    assert found["suspended"]["status"]["disruptions"] <= 1
