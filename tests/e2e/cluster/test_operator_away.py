"""The operator is away while runs end, are deleted, suspended, stopped, made, and lose their pods.

Its return is what is tested: what happened meanwhile is told, and what was asked is done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from agentrun.log.store import AttemptOutcome
from agentrun.proto import log_pb2 as pb
from tests.e2e.cluster.kube import Kubectl, Object, wait_until
from tests.e2e.cluster.machinery import operator_scaled
from tests.e2e.cluster.runs import KIND, pods_of, stepping, wait_phase
from tests.e2e.cluster.store import ClusterStore
from tests.e2e.cluster.stubs import Stubs
from tests.e2e.cluster.watcher import Watcher, one_pod_a_run

SHORT, LONG = 2, 15
"""Steps of a run that is to end meanwhile, and of one that is not."""

STEP_SECONDS = 3
GATE = "away"
"""A run that is to end meanwhile waits for this in its first step."""

OUTCOMES = {
    "Succeeded": pb.OUTCOME_SUCCEEDED,
    "Failed": pb.OUTCOME_FAILED,
    "Cancelled": pb.OUTCOME_CANCELLED,
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Meanwhile:
    """One run: what it is, what happens to it while there is no operator, and how it ends."""

    name: str
    steps: int = LONG
    spec: dict[str, Any] = field(default_factory=dict)
    happens: Callable[[Kubectl, str, str], None] = lambda kube, name, pod: None
    phase: str = "Succeeded"
    disruptions: int = 0
    attempts: int = 1
    calls: int | None = LONG
    """None: as many as there was time for."""

    def run(self, stubs: Stubs) -> Object:
        gate, seconds = (GATE, 0) if self.steps < LONG else ("", STEP_SECONDS)
        return stepping(stubs, self.name, steps=self.steps, seconds=seconds, gate=gate, **self.spec)


def pod_ends(phase: str) -> Callable[[Kubectl, str, str], None]:
    """Its runner comes to its end by itself."""
    return lambda kube, name, pod: _wait_pod(kube, pod, phase)


def _wait_pod(kube: Kubectl, pod: str, phase: str) -> None:
    kube.wait_for("pod", pod, lambda found: found["status"]["phase"] == phase)


def deleted(kube: Kubectl, name: str, pod: str) -> None:
    """Nothing holds the object; its pod goes with it."""
    kube.delete(KIND, name, seconds=20)
    kube.wait_gone("pod", pod)


def patched(**spec: Any) -> Callable[[Kubectl, str, str], None]:
    return lambda kube, name, pod: kube.patch(KIND, name, {"spec": spec})


def pod_deleted(kube: Kubectl, name: str, pod: str) -> None:
    kube.delete("pod", pod, seconds=45)


CASES = [
    Meanwhile(name="ends", steps=SHORT, happens=pod_ends("Succeeded"), calls=SHORT),
    Meanwhile(
        name="fails",
        steps=SHORT + 1,
        spec={"budget": {"turns": SHORT, "onExceeded": "Fail"}},
        happens=pod_ends("Failed"),
        phase="Failed",
        calls=SHORT,
    ),
    Meanwhile(name="deleted", happens=deleted, phase="", calls=None),
    Meanwhile(name="parked", spec={"runID": str(uuid4())}, happens=deleted, phase="", calls=None),
    Meanwhile(name="suspended", happens=patched(suspend=True), phase="Paused", attempts=2),
    Meanwhile(name="stopped", happens=patched(shutdown="Stop"), phase="Cancelled", calls=None),
    Meanwhile(name="podless", happens=pod_deleted, disruptions=1, attempts=2),
    Meanwhile(name="steady"),
]


def test_what_happened_while_it_was_away_is_told_and_done_after_its_return(
    runs_here: Kubectl, stubs: Stubs, store: ClusterStore
) -> None:
    kube = runs_here
    kube.apply(*(case.run(stubs) for case in CASES))
    found = {case.name: wait_phase(kube, case.name, "Running") for case in CASES}
    ids = {name: UUID(run["status"]["runID"]) for name, run in found.items()}
    with Watcher(kube, one_pod_a_run):
        with operator_scaled(0):
            stubs.open(GATE)
            for case in CASES:
                case.happens(kube, case.name, found[case.name]["status"]["pod"]["name"])
            kube.apply(stepping(stubs, "new", steps=1))
            assert_nobody_tells(kube, found)
        wait_phase(kube, "new", "Succeeded")
        wait_phase(kube, "suspended", "Paused", "Suspended")
        kube.patch(KIND, "suspended", {"spec": {"suspend": False}})
        ended = {case: wait_end(kube, case) for case in CASES if case.phase}
    for case, run in ended.items():
        assert_as_if_it_had_been_there(case, run, store)
    assert_ends_of_the_deleted(store, ids["deleted"], ids["parked"])
    counts = stubs.counts()
    wanted = {case.name: case.calls for case in CASES if case.calls is not None}
    assert {name: counts[name] for name in wanted} == wanted
    assert counts["new"] == 1
    for case in CASES:
        if case.phase != "Failed":  # the pod of one that failed is kept
            wait_until(lambda name=case.name: not pods_of(kube, name), seconds=30)  # type: ignore[misc]


def assert_nobody_tells(kube: Kubectl, before: dict[str, Object]) -> None:
    """No status has changed phase: the runs did what they did by themselves."""
    for run in kube.list("agentruns"):
        name = run["metadata"]["name"]
        if name == "new":
            assert "status" not in run
        else:
            assert run["status"]["phase"] == before[name]["status"]["phase"]


def wait_end(kube: Kubectl, case: Meanwhile) -> Object:
    phase = "Succeeded" if case.phase == "Paused" else case.phase
    return wait_phase(kube, case.name, phase, seconds=90)


def assert_as_if_it_had_been_there(case: Meanwhile, run: Object, store: ClusterStore) -> None:
    status = run["status"]
    told = (status["attempt"], status["disruptions"], status.get("failures", 0))
    assert told == (case.attempts, case.disruptions, 0), (case.name, status)
    (outcome,) = store.outcomes([UUID(status["runID"])])
    assert outcome == OUTCOMES[status["phase"]], case.name
    assert all(row.outcome is not None for row in store.attempts(UUID(status["runID"])))


def assert_ends_of_the_deleted(store: ClusterStore, deleted: UUID, parked: UUID) -> None:
    """The sweep finds them: one is ended, the other waits for an object with its id."""
    wait_until(lambda: store.outcomes([deleted]) == [pb.OUTCOME_CANCELLED], seconds=90, every=1)
    paused = (AttemptOutcome.PAUSED, AttemptOutcome.DISRUPTED)
    wait_until(lambda: store.attempts(parked)[-1].outcome in paused, seconds=90, every=1)
    assert len(store.attempts(parked)) == 1
    assert store.outcomes([parked]) == [None]
