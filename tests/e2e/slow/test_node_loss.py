"""A node is cut off as by a power failure: the run goes on elsewhere, whatever its grace."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
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
from tests.e2e.cluster.runs import agentrun, http_tool, wait_phase
from tests.e2e.cluster.store import ClusterStore
from tests.e2e.cluster.stubs import Stubs
from tests.e2e.cluster.watcher import Watcher
from tests.integration.pod.pods import agent, call

SHARED = Path(os.environ.get("SHARED", Path(__file__).parents[4] / "shared"))
GONE_ON_SECONDS = 90
GRACE_SECONDS = 120


def node(action: str, name: str) -> None:
    """`node kill 1`, of the test cluster."""
    script = SHARED / "cluster" / "node"
    if not script.exists():
        pytest.skip(f"{script} is not there: only the test cluster can lose a node")
    number = name.rpartition("-")[2]
    subprocess.run([str(script), action, number], check=True, timeout=60, close_fds=True)


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
        http_tool("slow", stubs.tool_url("slow", seconds=20), timeoutSeconds=60),
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


def test_a_run_on_a_lost_node_goes_on_elsewhere_and_its_old_runner_does_nothing_more(
    runs_here: Kubectl, stubs: Stubs, store: ClusterStore, lost: str
) -> None:
    kube = runs_here
    kube.apply(run(stubs, lost))
    wait_until(lambda: "slow" in stubs.counts(), seconds=60, shown=lambda: str(stubs.counts()))
    before = wait_phase(kube, "lost", "Running")
    assert before["status"]["pod"]["nodeName"] == lost
    with Watcher(kube) as watcher:
        node("kill", lost)
        began = time.monotonic()
        kube.wait_for(
            "agentrun", "lost", lambda run: run["status"].get("reason") == "NodeUnreachable", seconds=60
        )
        wait_until(
            lambda: len(stubs.calls()["slow"]) == 2,
            seconds=GONE_ON_SECONDS,
            shown=lambda: str(stubs.counts()),
        )
        took = time.monotonic() - began
        assert took < GONE_ON_SECONDS
        print(f"went on elsewhere after {took:.0f} s")
        after = wait_phase(kube, "lost", "Succeeded", seconds=60)
    status = after["status"]
    assert (status["attempt"], status["disruptions"], status.get("failures", 0)) == (2, 1, 0)
    assert status["pod"]["nodeName"] == store_node()
    assert set(watcher.phases("lost")) <= {"Running", "Pausing", "Paused", "Pending", "Succeeded"}
    counts, head = stubs.counts(), store.history(UUID(status["runID"])).head
    assert counts == {"first": 1, "slow": 2, "last": 1}
    node("start", lost)
    wait_until(lambda: is_ready(lost), seconds=90)
    old = str(before["status"]["pod"]["name"])
    kube.wait_gone("pod", old, seconds=120)
    time.sleep(10)
    assert stubs.counts() == counts
    assert store.history(UUID(status["runID"])).head == head
    assert wait_phase(kube, "lost", "Succeeded")["status"] == status
