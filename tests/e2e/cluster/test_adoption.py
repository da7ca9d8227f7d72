"""Objects that are deleted and made again: with a runID they go on with its log, without one they begin."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from tests.e2e.cluster.kube import Kubectl, condition, wait_until
from tests.e2e.cluster.runs import KIND, agentrun, http_tool, is_true, pods_of, wait_phase
from tests.e2e.cluster.stubs import Stubs
from tests.e2e.cluster.writes import events_written
from tests.integration.pod.pods import agent, call


def counting(stubs: Stubs, name: str, **query: Any) -> dict[str, Any]:
    """A spec with one call of a tool of this name, and another one behind it."""
    tools = [
        http_tool("first", stubs.tool_url(f"{name}-first")),
        http_tool("second", stubs.tool_url(name, **query)),
    ]
    return agent(
        {"toolCalls": [call("first")]}, {"toolCalls": [call("second")]}, {"text": "Done."}, tools=tools
    )


def test_a_run_of_the_same_id_is_adopted_when_its_definition_is_the_same(
    runs_here: Kubectl, stubs: Stubs
) -> None:
    kube = runs_here
    same = agentrun("same", counting(stubs, "same"), runID=str(uuid4()))
    live = agentrun("live", counting(stubs, "live", seconds=6), runID=str(uuid4()))
    new = agentrun("new", counting(stubs, "new"))
    kube.apply(same, live, new)

    # One that runs is parked by its object's end, and goes on with the next object.
    wait_until(lambda: stubs.counts().get("live"), seconds=60)
    kube.delete(KIND, "live", seconds=20)
    before = {name: wait_phase(kube, name, "Succeeded")["status"] for name in ("same", "new")}
    for name in before:
        kube.delete(KIND, name, seconds=20)
    wait_until(lambda: not pods_of(kube, "live"), seconds=60)

    # Another prompt is another run; another name too.
    other = {**same["spec"], "prompt": "Something else."}
    kube.apply(agentrun("same", other), agentrun("other", same["spec"]))
    for name, reason in (("same", "DefinitionDiffers"), ("other", "RunIDTaken")):
        run = wait_phase(kube, name, "Pending", reason)
        assert is_true(run, "Stalled")
        assert condition(run, "Stalled")["reason"] == reason
        assert same["spec"]["runID"] in run["status"]["message"]
        assert not pods_of(kube, name)
    wait_until(lambda: reasons(kube, "same")[-1] == "DefinitionDiffers", seconds=20)
    told = len(reasons(kube, "same"))
    kube.delete(KIND, "same", seconds=20)

    kube.apply(same, live, new)
    after = wait_phase(kube, "same", "Succeeded", seconds=20)["status"]
    for field in ("runID", "result", "budget", "startTime", "completionTime", "attempt", "progress"):
        assert after[field] == before["same"][field], field
    assert not pods_of(kube, "same")
    wait_until(lambda: len(reasons(kube, "same")) > told, seconds=20)
    assert reasons(kube, "same")[told:] == ["Succeeded"]

    again = wait_phase(kube, "new", "Succeeded")["status"]
    assert again["runID"] != before["new"]["runID"]
    went_on = wait_phase(kube, "live", "Succeeded")["status"]
    assert (went_on["runID"], went_on["attempt"]) == (live["spec"]["runID"], 2)
    assert went_on["failures"] == 0
    assert stubs.counts() == {
        "same-first": 1,
        "same": 1,
        "live-first": 1,
        "live": 1,
        "new-first": 2,
        "new": 2,
    }


def reasons(kube: Kubectl, name: str) -> list[str]:
    """Of the Events of all objects of that name, in order."""
    return [reason for reason, _ in events_written(kube, name)]
