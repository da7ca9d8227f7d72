"""A call waits for a person: no pod, a status that says so, and an annotation that answers."""

from __future__ import annotations

from typing import Any

from tests.e2e.cluster.kube import Kubectl, Object, wait_until
from tests.e2e.cluster.runs import KIND, agentrun, http_tool, pods_of, wait_phase
from tests.e2e.cluster.stubs import Stubs
from tests.e2e.cluster.writes import events_written
from tests.integration.pod.pods import agent, call

RULE = {"policy": "When", "when": [{"argument": "amount", "operator": "Gt", "values": ["100"]}]}


def paying(stubs: Stubs, *amounts: int) -> Object:
    """Pays one amount a turn."""
    tool = {
        **http_tool("pay", stubs.tool_url("pay"), effect="unsafe", requireApproval=RULE),
        "parameters": {"type": "object", "properties": {"amount": {"type": "integer"}}},
    }
    turns = [*({"toolCalls": [call("pay", amount=amount)]} for amount in amounts), {"text": "That is paid."}]
    return agentrun("pays", agent(*turns, tools=[tool]))


def waiting(kube: Kubectl, other_than: str = "") -> dict[str, Any]:
    """The one call that waits."""
    run = kube.wait_for(
        KIND,
        "pays",
        lambda run: any(
            each["id"] != other_than for each in run.get("status", {}).get("waiting", {}).get("calls", [])
        ),
        seconds=60,
    )
    assert run["status"]["waiting"]["count"] == 1
    found: dict[str, Any] = run["status"]["waiting"]["calls"][0]
    return found


def test_calls_over_a_limit_wait_for_an_annotation_and_are_made_or_not(
    runs_here: Kubectl, stubs: Stubs
) -> None:
    kube = runs_here
    kube.apply(paying(stubs, 50, 500, 5000))
    first = waiting(kube)
    assert (first["tool"], first["reason"]) == ("pay", "ApprovalRequired") and "500" in first["arguments"]
    wait_phase(kube, "pays", "Paused", "ApprovalRequired")
    wait_until(lambda: not pods_of(kube, "pays"), seconds=30)
    assert stubs.counts() == {"pay": 1}
    kube("annotate", KIND, "pays", f"agentrun.dev/approve={first['id']}")
    second = waiting(kube, first["id"])
    assert "5000" in second["arguments"]
    kube("annotate", KIND, "pays", f"agentrun.dev/deny={second['id']}=far too much")
    ended = wait_phase(kube, "pays", "Succeeded")
    assert stubs.counts() == {"pay": 2}
    assert not ended["status"].get("waiting", {}).get("count")
    assert (ended["status"]["disruptions"], ended["status"].get("failures", 0)) == (0, 0)
    told = {reason for reason, _ in events_written(kube, "pays")}
    assert {"ApprovalRequired", "Approved", "Denied", "Succeeded"} <= told
    # The operator writes no annotation, and takes none away.
    mine = {name for name in ended["metadata"]["annotations"] if name.startswith("agentrun.dev/")}
    assert mine == {"agentrun.dev/approve", "agentrun.dev/deny"}
