"""A node says no more: a run goes on elsewhere, whatever its grace, and its old runner does nothing."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from uuid import UUID

import pytest

from tests.e2e.cluster.kube import Kubectl, Object, condition, wait_until
from tests.e2e.cluster.machinery import (
    other_node,
    preferring,
    put_operator_on,
    store_node,
    wait_alone,
    wait_operator,
)
from tests.e2e.cluster.processes import kubelet_of, lives, log_of, node, processes_of, send
from tests.e2e.cluster.runs import agentrun, http_tool, wait_phase
from tests.e2e.cluster.store import ClusterStore
from tests.e2e.cluster.stubs import Stubs
from tests.e2e.cluster.watcher import Watcher
from tests.integration.pod.pods import agent, call

GONE_ON_SECONDS = 90
GRACE_SECONDS = 120
SLOW_SECONDS = 20


def is_ready(name: str) -> bool:
    found = Kubectl().get("node", name)
    return found is not None and condition(found, "Ready").get("status") == "True"


@pytest.fixture
def lost(runs_here: Kubectl) -> Iterator[str]:
    """The node that is lost; all that the test itself needs is on the other one."""
    wait_alone(runs_here)
    name = other_node()
    put_operator_on(store_node())
    yield name
    node("start", name)
    wait_until(lambda: is_ready(name), seconds=90)
    wait_operator()


@pytest.fixture
def stubs(kube: Kubectl, lost: str) -> Stubs:
    made = Stubs(kube)
    made.start(store_node())
    return made


def run(stubs: Stubs, name: str) -> Object:
    tools = [
        http_tool("first", stubs.tool_url("first")),
        http_tool("slow", stubs.tool_url("slow", seconds=SLOW_SECONDS), timeoutSeconds=600),
        http_tool("last", stubs.tool_url("last")),
    ]
    turns = [
        {"toolCalls": [call("first")]},
        {"toolCalls": [call("slow")]},
        {"toolCalls": [call("last")]},
        {"text": "All are done."},
    ]
    return agentrun(
        "lost",
        agent(*turns, tools=tools),
        terminationGracePeriodSeconds=GRACE_SECONDS,
        podTemplate=preferring(name),
    )


def start(kube: Kubectl, stubs: Stubs, lost: str) -> Object:
    """The status of a run in the middle of its slow step, on the node that is to be lost."""
    kube.apply(run(stubs, lost))
    wait_until(lambda: "slow" in stubs.counts(), seconds=60, shown=lambda: str(stubs.counts()))
    status: Object = wait_phase(kube, "lost", "Running")["status"]
    assert status["pod"]["nodeName"] == lost
    return status


def wait_gone_on(kube: Kubectl, stubs: Stubs) -> Object:
    """The status of the run when it has ended well on the other node, in time."""
    began = time.monotonic()
    with Watcher(kube) as watcher:
        kube.wait_for(
            "agentrun", "lost", lambda run: run["status"].get("reason") == "NodeUnreachable", seconds=60
        )
        wait_until(
            lambda: len(stubs.calls()["slow"]) == 2,
            seconds=GONE_ON_SECONDS - (time.monotonic() - began),
            shown=lambda: str(stubs.counts()),
        )
        print(f"went on elsewhere after {time.monotonic() - began:.0f} s")
        status: Object = wait_phase(kube, "lost", "Succeeded", seconds=60)["status"]
    assert (status["attempt"], status["disruptions"], status.get("failures", 0)) == (2, 1, 0)
    assert status["pod"]["nodeName"] == store_node()
    assert set(watcher.phases("lost")) <= {"Running", "Pausing", "Paused", "Pending", "Succeeded"}
    assert stubs.counts() == {"first": 1, "slow": 2, "last": 1}
    return status


def test_a_run_on_a_lost_node_goes_on_elsewhere_and_stays_as_it_ended_when_the_node_is_back(
    runs_here: Kubectl, stubs: Stubs, store: ClusterStore, lost: str
) -> None:
    kube = runs_here
    old = start(kube, stubs, lost)
    node("kill", lost)
    status = wait_gone_on(kube, stubs)
    head = store.history(UUID(status["runID"])).head
    node("start", lost)
    wait_until(lambda: is_ready(lost), seconds=90)
    kube.wait_gone("pod", old["pod"]["name"], seconds=60)
    assert_unchanged(kube, stubs, store, status, head)


def test_a_runner_whose_node_was_paused_wakes_up_and_does_nothing(
    runs_here: Kubectl, stubs: Stubs, store: ClusterStore, lost: str
) -> None:
    kube = runs_here
    old = start(kube, stubs, lost)
    kubelet, runner = kubelet_of(lost), processes_of(old["pod"]["uid"])
    assert runner
    send(signal.SIGSTOP, [kubelet, *runner])
    try:
        status = wait_gone_on(kube, stubs)
        head = store.history(UUID(status["runID"])).head
        # The runner wakes first: nobody is there to tell it that it is to go.
        send(signal.SIGCONT, runner)
        wait_until(lambda: not any(map(lives, runner)), seconds=20)
        told = log_of(lost, old["pod"]["uid"])
    finally:
        send(signal.SIGCONT, [kubelet, *runner])
    assert "ended reason=Fenced" in told[-1], told
    assert told[-1].endswith("exit_code=76"), told
    launched = [line for line in told if " launched " in line]
    assert "node=call-2-0" in launched[-1], "it has launched something after its slow call"
    assert_unchanged(kube, stubs, store, status, head)
    wait_until(lambda: is_ready(lost), seconds=90)
    kube.wait_gone("pod", old["pod"]["name"], seconds=60)
    assert_unchanged(kube, stubs, store, status, head)


def assert_unchanged(kube: Kubectl, stubs: Stubs, store: ClusterStore, status: Object, head: int) -> None:
    """No call more, no row more, nothing else told."""
    assert stubs.counts() == {"first": 1, "slow": 2, "last": 1}
    assert store.history(UUID(status["runID"])).head == head
    assert wait_phase(kube, "lost", "Succeeded")["status"] == status
