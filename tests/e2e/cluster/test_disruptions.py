"""A pod that is taken away is a disruption: counted as one, it costs no retry, and the run goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.e2e.cluster.kube import Kubectl, Object, condition, wait_until
from tests.e2e.cluster.machinery import other_node
from tests.e2e.cluster.objects import RUNNER_IMAGE, restricted_container, restricted_pod
from tests.e2e.cluster.runs import agentrun, http_tool, wait_phase
from tests.e2e.cluster.store import ClusterStore
from tests.e2e.cluster.stubs import Stubs
from tests.e2e.cluster.watcher import Watcher, one_pod_a_run
from tests.integration.pod.pods import agent, call

SEAT = "example.com/seat"


def steps(stubs: Stubs, **more: Any) -> Object:
    """A run of three steps, the second of which takes a while, but less than its grace."""
    tools = [
        http_tool("first", stubs.tool_url("first")),
        http_tool("slow", stubs.tool_url("slow", seconds=8)),
        http_tool("last", stubs.tool_url("last")),
    ]
    turns = [
        {"toolCalls": [call("first")]},
        {"toolCalls": [call("slow")]},
        {"toolCalls": [call("last")]},
        {"text": "All are done."},
    ]
    return agentrun("steps", agent(*turns, tools=tools), **more)


def wait_slow(stubs: Stubs, kube: Kubectl) -> str:
    """The pod's name, once the slow step is under way."""
    wait_until(lambda: "slow" in stubs.counts(), seconds=60, shown=lambda: str(stubs.counts()))
    run = wait_phase(kube, "steps", "Running")
    return str(run["status"]["pod"]["name"])


def retries(kube: Kubectl, store: ClusterStore) -> int:
    """All that were drawn so far: a call that was made before its service's address was known draws one."""
    run = kube.get("agentrun", "steps")
    assert run is not None
    return store.history(UUID(run["status"]["runID"])).totals.retries


def assert_gone_on(kube: Kubectl, stubs: Stubs, reason: str) -> None:
    run = wait_phase(kube, "steps", "Succeeded", seconds=90)
    status = run["status"]
    assert stubs.counts() == {"first": 1, "slow": 1, "last": 1}
    assert (status["attempt"], status["disruptions"], status.get("failures", 0)) == (2, 1, 0), status
    assert condition(run, "Disrupted").get("status") != "True"
    told: dict[str, list[str]] = {}
    for each in kube.list("events"):
        if each["involvedObject"]["kind"] == "AgentRun":
            told.setdefault(each["reason"], []).append(each.get("message", ""))
    assert "AttemptFailed" not in told, told
    assert reason in " ".join(told["Pausing"]), told
    # What its runner came to write is the word that counts then: "Terminated".
    (disrupted,) = told["Disrupted"]
    assert disrupted.removeprefix("the pod was taken away: ") in (reason, "Terminated"), told


def evict(kube: Kubectl, pod: str) -> None:
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": kube.namespace},
    }
    path = f"/api/v1/namespaces/{kube.namespace}/pods/{pod}/eviction"
    kube("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))


def delete(kube: Kubectl, pod: str) -> None:
    kube.delete("pod", pod, "--wait=false")


@pytest.mark.parametrize(
    ("take_away", "reason"),
    [(evict, "EvictionByEvictionAPI"), (delete, "PodDeleted")],
    ids=["evicted", "deleted"],
)
def test_a_pod_that_is_taken_away_is_replaced_and_nothing_is_drawn_for_it(
    runs_here: Kubectl,
    stubs: Stubs,
    store: ClusterStore,
    take_away: Callable[[Kubectl, str], None],
    reason: str,
) -> None:
    kube = runs_here
    kube.apply(steps(stubs))
    pod = wait_slow(stubs, kube)
    before = retries(kube, store)
    with Watcher(kube, one_pod_a_run) as watcher:
        take_away(kube, pod)
        pausing = wait_phase(kube, "steps", "Pausing")
        assert condition(pausing, "Disrupted")["status"] == "True"
        assert_gone_on(kube, stubs, reason)
    assert retries(kube, store) == before
    seen = watcher.phases("steps")
    assert set(seen) <= {"Running", "Pausing", "Paused", "Pending", "Succeeded"}, seen


@pytest.fixture
def one_seat() -> Iterator[str]:
    """A node with room for one pod that asks for a seat, and no other node has any."""
    node = other_node()
    for part in ("capacity", "allocatable"):
        _seats(node, [{"op": "add", "path": f"/status/{part}/example.com~1seat", "value": "1"}])
    yield node
    for part in ("capacity", "allocatable"):
        _seats(node, [{"op": "remove", "path": f"/status/{part}/example.com~1seat"}])


def _seats(node: str, change: list[Object]) -> None:
    Kubectl()("patch", "node", node, "--subresource=status", "--type=json", "-p", json.dumps(change))


@pytest.fixture
def important() -> Iterator[str]:
    """A priority above that of runs."""
    name = f"t-important-{uuid4().hex[:6]}"
    made = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": 1000,
    }
    Kubectl().apply(made)
    yield name
    Kubectl().delete("priorityclass", name)


def test_a_more_important_pod_takes_its_place_and_it_goes_on_when_there_is_room(
    runs_here: Kubectl, stubs: Stubs, store: ClusterStore, one_seat: str, important: str
) -> None:
    kube = runs_here
    seat = {"requests": {SEAT: "1"}, "limits": {SEAT: "1"}}
    kube.apply(steps(stubs, podTemplate={"spec": {"containers": [{"name": "runner", "resources": seat}]}}))
    wait_slow(stubs, kube)
    before = retries(kube, store)
    sleeper = restricted_container(
        "sleeper", RUNNER_IMAGE, command=["python", "-c", "import time; time.sleep(600)"], resources=seat
    )
    kube.create(
        restricted_pod("important", [sleeper], priorityClassName=important, terminationGracePeriodSeconds=0)
    )
    waiting = wait_phase(kube, "steps", "Pending", "Unschedulable", seconds=60)
    assert condition(waiting, "PodScheduled")["status"] == "False"
    assert kube("get", "pod", "important", "-o", "jsonpath={.spec.nodeName}") == one_seat
    kube.delete("pod", "important")
    assert_gone_on(kube, stubs, "PreemptionByScheduler")
    assert retries(kube, store) == before
