"""`kubectl apply -f examples/hello.yaml`: the run ends well, and its object tells all of it."""

from __future__ import annotations

import time
from hashlib import sha256
from pathlib import Path
from uuid import UUID

from tests.e2e.cluster.kube import Kubectl, condition, wait_until
from tests.e2e.cluster.store import ClusterStore
from tests.e2e.cluster.writes import events_written, writes

HELLO = Path(__file__).parents[3] / "examples" / "hello.yaml"
ANSWER = "There are six words in it."
API_WRITES_MAX = 8


def test_hello_ends_well_and_status_tells_what_it_said_and_spent(
    runs_here: Kubectl, store: ClusterStore
) -> None:
    kube = runs_here
    kube("apply", "-f", str(HELLO))
    run = kube.wait_for("agentrun", "hello", lambda run: run.get("status", {}).get("phase") == "Succeeded")
    status = run["status"]
    assert status["result"] == {
        "preview": ANSWER,
        "sizeBytes": len(ANSWER),
        "digest": "sha256:" + sha256(ANSWER.encode()).hexdigest(),
    }
    assert status["budget"]["tokens"]["used"] == 62 + 18 + 96 + 9
    assert status["budget"]["turns"] == {"used": 2, "limit": 100}
    assert status["observedGeneration"] == run["metadata"]["generation"]
    assert status["runID"] == run["metadata"]["uid"]
    assert condition(run, "Succeeded")["status"] == "True"
    assert condition(run, "Reconciling")["status"] == "False"
    assert condition(run, "Stalled")["status"] == "False"
    assert not run["metadata"].get("finalizers")
    history = store.history(UUID(status["runID"]))
    assert history.final is not None
    assert history.totals.tokens == status["budget"]["tokens"]["used"]


def test_kubectl_get_says_at_a_glance_where_a_run_stands(runs_here: Kubectl) -> None:
    kube = runs_here
    kube("apply", "-f", str(HELLO))
    kube.wait_for("agentrun", "hello", lambda run: run.get("status", {}).get("phase") == "Succeeded")
    head, line = kube("get", "arun").splitlines()
    assert head.split() == ["NAME", "PHASE", "REASON", "TURNS", "TOKENS", "BUDGET", "ATTEMPT", "AGE"]
    assert line.split()[:5] == ["hello", "Succeeded", "Completed", "2", "185"]
    assert "hello" in kube("get", "agents")


def test_a_run_costs_few_writes_and_its_events_tell_its_story(runs_here: Kubectl) -> None:
    kube = runs_here
    wait_until(lambda: other_tests(kube) == [], seconds=90, shown=lambda: str(other_tests(kube)))
    before = writes(kube)
    kube("apply", "-f", str(HELLO))
    kube.wait_for("agentrun", "hello", lambda run: run.get("status", {}).get("phase") == "Succeeded")
    time.sleep(10)  # what is late shows too: an ended pod's removal, a last look
    told = events_written(kube, "hello")
    made = writes(kube) - before
    made["POST agentruns"] -= 1  # ours
    made["DELETE pods"] -= made["DELETE pods"] // 2  # the kubelet's own
    assert [reason for reason, _ in told] == ["PodCreated", "Succeeded"], told
    assert sum((+made).values()) + len(told) <= API_WRITES_MAX, (+made, told)


def other_tests(kube: Kubectl) -> list[str]:
    """Namespaces of tests that are being removed: their ends would be counted too."""
    found = [each["metadata"]["name"] for each in Kubectl().list("namespaces", "agentrun.dev/test")]
    return [name for name in found if name != kube.namespace]
