"""The operator dies, or is away: runs go on meanwhile, and after its return each has the right outcome."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from uuid import UUID, uuid4

import pytest

from agentrun.log.store import AttemptOutcome
from agentrun.proto import log_pb2 as pb
from tests.e2e.cluster.conftest import STORE_SECRET
from tests.e2e.cluster.kube import Kubectl, Object, wait_until
from tests.e2e.cluster.machinery import kill_operator, operator_scaled, wait_operator
from tests.e2e.cluster.runs import agentrun, http_tool, pods_of, wait_phase
from tests.e2e.cluster.store import ClusterStore
from tests.e2e.cluster.stubs import Stubs
from tests.e2e.cluster.watcher import Watcher, one_pod_a_run
from tests.integration.pod.pods import agent, call

RUNS = 10
KILLS = 6


@pytest.fixture(autouse=True)
def _operator_is_back() -> Iterator[None]:
    yield
    wait_operator()


def run(stubs: Stubs, name: str, *, steps: int = 3, seconds: float = 2, **more: Any) -> Object:
    """Calls its tool, which has its own name, again and again."""
    tools = [http_tool("step", stubs.tool_url(name, seconds=seconds))]
    turns = [
        *({"toolCalls": [call("step", number=number)]} for number in range(steps)),
        {"text": "All are done."},
    ]
    return agentrun(name, agent(*turns, tools=tools), **more)


def outcome(store: ClusterStore, run_id: str) -> int | None:
    final = store.history(UUID(run_id)).final
    return final.final.outcome if final is not None else None


def test_killed_at_any_moment_it_goes_on_from_there(
    runs_here: Kubectl, stubs: Stubs, store: ClusterStore
) -> None:
    kube = runs_here
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")
    random_ = random.Random(seed)
    names = [f"run-{number}" for number in range(RUNS)]
    with Watcher(kube, one_pod_a_run):
        for part in range(KILLS):
            started = names[part::KILLS]
            kube.apply(*(run(stubs, name) for name in started))
            time.sleep(random_.uniform(0, 3))
            kill_operator()
            time.sleep(random_.uniform(0, 3))
        wait_operator()
        ended = {name: wait_phase(kube, name, "Succeeded", seconds=120) for name in names}
    assert stubs.counts() == dict.fromkeys(names, 3)
    for name, run_ in ended.items():
        status = run_["status"]
        assert status["result"]["preview"] == "All are done."
        assert status.get("failures", 0) == 0, name
        assert status["disruptions"] == 0, name
        attempts = store.attempts(UUID(status["runID"]))
        # A number may be skipped: allocated, and its operator killed before it made the pod.
        assert len([each for each in attempts if each.claimed]) == 1, attempts
        assert all(each.outcome is not None for each in attempts)
    wait_until(lambda: not kube.list("pods", "agentrun.dev/run"), seconds=30)


def test_what_happened_while_it_was_away_is_told_and_done_after_its_return(
    runs_here: Kubectl, stubs: Stubs, store: ClusterStore
) -> None:
    kube = runs_here
    kube.apply(
        run(stubs, "ends", steps=2),
        run(stubs, "fails", steps=2, budget={"turns": 2, "onExceeded": "Fail"}),
        run(stubs, "deleted", seconds=8, steps=30),
        run(stubs, "parked", runID=str(uuid4()), seconds=8, steps=30),
        run(stubs, "suspended", seconds=12, steps=5),
        run(stubs, "stopped", seconds=12, steps=5),
        run(stubs, "podless", seconds=6, steps=5),
        run(stubs, "steady", seconds=12, steps=5),
    )
    names = ["ends", "fails", "deleted", "parked", "suspended", "stopped", "podless", "steady"]
    found = {name: wait_phase(kube, name, "Running") for name in names}
    ids = {name: str(each["status"]["runID"]) for name, each in found.items()}
    pods = {name: str(each["status"]["pod"]["name"]) for name, each in found.items()}
    with Watcher(kube, one_pod_a_run):
        with operator_scaled(0):
            kube.delete("agentrun", "deleted", "parked", seconds=20)  # nothing holds them
            kube.patch("agentrun", "suspended", {"spec": {"suspend": True}})
            kube.patch("agentrun", "stopped", {"spec": {"shutdown": "Stop"}})
            kube.delete("pod", pods["podless"], seconds=45)
            kube.apply(run(stubs, "new", steps=1))
            kube(
                "wait",
                "--for=jsonpath={.status.phase}=Succeeded",
                f"pod/{pods['ends']}",
                "--timeout=60s",
                seconds=70,
            )
            kube(
                "wait",
                "--for=jsonpath={.status.phase}=Failed",
                f"pod/{pods['fails']}",
                "--timeout=60s",
                seconds=70,
            )
            kube.wait_gone("pod", pods["deleted"], seconds=60)
            assert "status" not in (kube.get("agentrun", "new") or {})
        wait_phase(kube, "ends", "Succeeded", seconds=30)
        wait_phase(kube, "fails", "Failed", seconds=30)
        wait_phase(kube, "new", "Succeeded")
        wait_phase(kube, "stopped", "Cancelled")
        wait_phase(kube, "suspended", "Paused", "Suspended")
        podless = wait_phase(kube, "podless", "Succeeded", seconds=90)
        steady = wait_phase(kube, "steady", "Succeeded", seconds=90)
        kube.patch("agentrun", "suspended", {"spec": {"suspend": False}})
        suspended = wait_phase(kube, "suspended", "Succeeded", seconds=90)
    assert (podless["status"]["disruptions"], podless["status"].get("failures", 0)) == (1, 0)
    assert (steady["status"]["attempt"], steady["status"]["disruptions"]) == (1, 0)
    assert (suspended["status"]["disruptions"], suspended["status"].get("failures", 0)) == (0, 0)
    wait_until(
        lambda: outcome(store, ids["deleted"]) == pb.OUTCOME_CANCELLED,
        seconds=90,
        shown=lambda: ids["deleted"],
    )
    (parked,) = store.attempts(UUID(ids["parked"]))
    assert parked.outcome in (AttemptOutcome.PAUSED, AttemptOutcome.DISRUPTED)
    assert outcome(store, ids["parked"]) is None
    assert outcome(store, ids["stopped"]) == pb.OUTCOME_CANCELLED
    counts = stubs.counts()
    assert {name: counts[name] for name in ("ends", "fails", "suspended", "podless", "steady", "new")} == {
        "ends": 2,
        "fails": 2,
        "suspended": 5,
        "podless": 5,
        "steady": 5,
        "new": 1,
    }
    for name in ("deleted", "parked", "suspended", "stopped", "podless", "ends", "new"):
        assert not pods_of(kube, name), name


@pytest.mark.parametrize("replicas", [1, 0], ids=["with an operator", "without one"])
def test_a_namespace_with_live_runs_goes_without_a_hang(
    runs_here: Kubectl, stubs: Stubs, store: ClusterStore, replicas: int
) -> None:
    kube = runs_here
    gone = kube.within(f"{kube.namespace}-gone")
    secret = kube.get("secret", STORE_SECRET)
    assert secret is not None
    kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": gone.namespace}})
    gone.apply(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": STORE_SECRET}, "data": secret["data"]}
    )
    names = [f"run-{number}" for number in range(3)]
    gone.apply(*(run(stubs, name, seconds=3, steps=30) for name in names))
    ids = [str(wait_phase(gone, name, "Running")["status"]["runID"]) for name in names]
    with ExitStack() as stack:
        if replicas == 0:
            stack.enter_context(operator_scaled(0))
        gone.delete("namespace", gone.namespace, "--timeout=70s", seconds=80)
        assert kube.get("namespace", gone.namespace) is None
    wait_until(
        lambda: all(outcome(store, each) == pb.OUTCOME_CANCELLED for each in ids),
        seconds=120,
        shown=lambda: str([outcome(store, each) for each in ids]),
        every=2,
    )
