"""A new runner image moves runs that are under way, a few at a time, and repeats nothing."""

from __future__ import annotations

from uuid import UUID

from tests.e2e.cluster.kube import Kubectl, Object
from tests.e2e.cluster.machinery import operator_setting
from tests.e2e.cluster.objects import RUNNER_IMAGE
from tests.e2e.cluster.runs import agentrun, http_tool, wait_phase
from tests.e2e.cluster.store import ClusterStore
from tests.e2e.cluster.stubs import Stubs
from tests.e2e.cluster.watcher import Watcher, one_pod_a_run, run_of
from tests.integration.pod.pods import agent, call

RUNS = 10
DOWN_MAX = 3
STEPS = 26
STEP_SECONDS = 4

NEW_IMAGE = f"docker.io/library/{RUNNER_IMAGE}"
"""The same image by its whole name: to the operator it is another one, and every node has it."""


def test_ten_live_runs_move_with_three_down_at_most(
    runs_here: Kubectl, stubs: Stubs, store: ClusterStore
) -> None:
    kube = runs_here
    names = [f"run-{number}" for number in range(RUNS)]

    def run(name: str) -> Object:
        tools = [http_tool("step", stubs.tool_url(name, seconds=STEP_SECONDS))]
        turns = [
            *({"toolCalls": [call("step", number=number)]} for number in range(STEPS)),
            {"text": "All are done."},
        ]
        return agentrun(name, agent(*turns, tools=tools), podRetentionPolicy="Always")

    down: list[int] = []
    images: dict[str, str] = {}

    def check(pods: list[Object]) -> None:
        one_pod_a_run(pods)
        for pod in pods:
            images[pod["metadata"]["name"]] = pod["spec"]["containers"][0]["image"]
        up = {run_of(pod) for pod in pods if is_up(pod)}
        ended = {run_of(pod) for pod in pods if runner_state(pod).get("terminated", {}).get("exitCode") == 0}
        down.append(RUNS - len(up | ended))
        assert down[-1] <= DOWN_MAX, f"{down}: {set(names) - up}"

    kube.apply(*map(run, names))
    for name in names:
        wait_phase(kube, name, "Running", seconds=90)
    with (
        Watcher(kube, check) as watcher,
        operator_setting(
            AGENTRUN_RUNNER_IMAGE=NEW_IMAGE,
            AGENTRUN_ROLLOUT_POLICY="Immediate",
            AGENTRUN_ROLLOUT_MAX_UNAVAILABLE=str(DOWN_MAX),
        ),
    ):
        ended = {name: wait_phase(kube, name, "Succeeded", seconds=240) for name in names}
    assert stubs.counts() == dict.fromkeys(names, STEPS)
    for name, run_ in ended.items():
        status = run_["status"]
        assert (status["attempt"], status["disruptions"], status.get("failures", 0)) == (2, 1, 0), (
            name,
            status,
        )
        assert store.history(UUID(status["runID"])).final is not None
        assert sorted(images[pod] for pod in watcher.pods(name)) == sorted([RUNNER_IMAGE, NEW_IMAGE])
    assert max(down) > 1, down  # several at once, or it would take long


def is_up(pod: Object) -> bool:
    """Its runner runs, and nobody has asked it to go."""
    return not pod["metadata"].get("deletionTimestamp") and "running" in runner_state(pod)


def runner_state(pod: Object) -> Object:
    states = {each["name"]: each["state"] for each in pod["status"].get("containerStatuses", [])}
    found: Object = states.get("runner", {})
    return found
