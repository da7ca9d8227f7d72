"""`kubectl drain` of the node that a run's pod is on: the run goes on elsewhere, and repeats nothing."""

from __future__ import annotations

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
from tests.e2e.cluster.runs import agentrun, http_tool, wait_phase
from tests.e2e.cluster.store import ClusterStore
from tests.e2e.cluster.stubs import Stubs
from tests.e2e.cluster.watcher import Watcher, one_pod_a_run
from tests.integration.pod.pods import agent, call

GRACE_SECONDS = 8


@pytest.fixture
def node(runs_here: Kubectl) -> Iterator[str]:
    """The node that goes; all that the test itself needs is on the other one."""
    wait_alone(runs_here)
    node = other_node()
    yield node
    Kubectl()("uncordon", node)
    wait_operator()


@pytest.fixture
def stubs(kube: Kubectl, node: str) -> Stubs:
    made = Stubs(kube)
    made.start(store_node())
    return made


def batch(stubs: Stubs, node: str) -> Object:
    """A run of a batch: a call that is quick, one that takes part of the grace, one that takes longer."""
    tools = [
        http_tool("quick", stubs.tool_url("quick")),
        http_tool("slow", stubs.tool_url("slow", seconds=4)),
        http_tool("endless", stubs.tool_url("endless", seconds=2 * GRACE_SECONDS)),
        http_tool("after", stubs.tool_url("after")),
    ]
    turns = [
        {"toolCalls": [call("quick"), call("slow"), call("endless")]},
        {"toolCalls": [call("after")]},
        {"text": "All are done."},
    ]
    return agentrun(
        "batch",
        agent(*turns, tools=tools),
        terminationGracePeriodSeconds=GRACE_SECONDS,
        podTemplate=preferring(node),
    )


def drain(node: str) -> str:
    """Without --force: a runner pod has an owner that makes another one."""
    return Kubectl()(
        "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=60s", seconds=70
    )


@pytest.mark.parametrize("operator", ["elsewhere", "on the node"])
def test_a_drained_node_moves_a_slow_batch_and_repeats_nothing_that_was_done(
    runs_here: Kubectl, stubs: Stubs, store: ClusterStore, node: str, operator: str
) -> None:
    kube = runs_here
    put_operator_on(node if operator == "on the node" else store_node())
    kube.apply(batch(stubs, node))
    wait_until(lambda: len(stubs.counts()) == 3, seconds=60, shown=lambda: str(stubs.counts()))
    run = wait_phase(kube, "batch", "Running")
    assert run["status"]["pod"]["nodeName"] == node
    with Watcher(kube, one_pod_a_run) as watcher:
        drain(node)
        run = wait_phase(kube, "batch", "Succeeded", seconds=120)
    assert stubs.counts() == {"quick": 1, "slow": 1, "endless": 2, "after": 1}
    keys = {each["key"] for each in stubs.calls()["endless"]}
    assert len(keys) == 1, keys
    status = run["status"]
    assert status["result"]["preview"] == "All are done."
    assert (status["attempt"], status["disruptions"], status.get("failures", 0)) == (2, 1, 0)
    assert status["pod"]["nodeName"] == store_node()
    assert condition(run, "Disrupted").get("status") != "True"
    seen = watcher.phases("batch")
    assert set(seen) <= {"Running", "Pausing", "Paused", "Pending", "Succeeded"}, seen
    if operator == "elsewhere":
        assert {"Pausing", "Paused"} & set(seen), seen
        told = [
            event["reason"] for event in kube.list("events") if event["involvedObject"]["kind"] == "AgentRun"
        ]
        assert "Disrupted" in told, told
        assert "AttemptFailed" not in told, told
    assert store.history(UUID(status["runID"])).final is not None
