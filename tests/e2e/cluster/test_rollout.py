"""A new runner image moves runs that are under way, a few at a time, and repeats nothing."""

from __future__ import annotations

from uuid import UUID

from agentrun.proto import log_pb2 as pb
from tests.e2e.cluster.kube import Kubectl, Object
from tests.e2e.cluster.machinery import operator_setting
from tests.e2e.cluster.objects import RUNNER_IMAGE
from tests.e2e.cluster.runs import stepping, wait_phase
from tests.e2e.cluster.store import ClusterStore
from tests.e2e.cluster.stubs import Stubs
from tests.e2e.cluster.watcher import Watcher, one_pod_a_run, run_of, runner_state

RUNS = 10
DOWN_MAX = 3
STEPS, STEP_SECONDS = 24, 4
"""They outlast the rollout: the operator's restart, what it waits then, and four turns of three runs."""

NEW_IMAGE = f"docker.io/library/{RUNNER_IMAGE}"
"""The same image by its whole name: to the operator it is another one, and every node has it."""


class Down:
    """How many of the runs are down, look by look, and which image each pod has."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.images: dict[str, str] = {}

    def check(self, pods: list[Object]) -> None:
        """For a Watcher."""
        one_pod_a_run(pods)
        self.images |= {pod["metadata"]["name"]: pod["spec"]["containers"][0]["image"] for pod in pods}
        up = {run_of(pod) for pod in pods if is_up(pod)}
        ended = {run_of(pod) for pod in pods if runner_state(pod).get("terminated", {}).get("exitCode") == 0}
        self.seen.append(RUNS - len(up | ended))
        assert self.seen[-1] <= DOWN_MAX, f"{self.seen}: up are {up | ended}"


def is_up(pod: Object) -> bool:
    """Its runner runs, and nobody has asked it to go."""
    return not pod["metadata"].get("deletionTimestamp") and "running" in runner_state(pod)


def test_ten_live_runs_move_with_three_down_at_most(
    runs_here: Kubectl, stubs: Stubs, store: ClusterStore
) -> None:
    kube, down = runs_here, Down()
    names = [f"run-{number}" for number in range(RUNS)]
    kube.apply(
        *(
            stepping(stubs, name, steps=STEPS, seconds=STEP_SECONDS, podRetentionPolicy="Always")
            for name in names
        )
    )
    for name in names:
        wait_phase(kube, name, "Running", seconds=90)
    rollout = {
        "AGENTRUN_RUNNER_IMAGE": NEW_IMAGE,
        "AGENTRUN_ROLLOUT_POLICY": "Immediate",
        "AGENTRUN_ROLLOUT_MAX_UNAVAILABLE": str(DOWN_MAX),
    }
    with Watcher(kube, down.check) as watcher, operator_setting(**rollout):
        ended = {name: wait_phase(kube, name, "Succeeded", seconds=240)["status"] for name in names}
    assert stubs.counts() == dict.fromkeys(names, STEPS)
    for name, status in ended.items():
        told = (status["attempt"], status["disruptions"], status.get("failures", 0))
        assert told == (2, 1, 0), (name, status)
        images = sorted(down.images[pod] for pod in watcher.pods(name))
        assert images == sorted([RUNNER_IMAGE, NEW_IMAGE])
    outcomes = store.outcomes(UUID(status["runID"]) for status in ended.values())
    assert outcomes == [pb.OUTCOME_SUCCEEDED] * RUNS
    assert max(down.seen) > 1, down.seen  # several at once, or it would take long
