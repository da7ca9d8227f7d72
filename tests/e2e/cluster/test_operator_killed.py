"""The operator is killed again and again while runs start, work and end: each comes to its right end."""

from __future__ import annotations

import random
import time
from uuid import UUID

from agentrun.log.store import AttemptOutcome
from agentrun.proto import log_pb2 as pb
from tests.e2e.cluster.kube import Kubectl, Object, wait_until
from tests.e2e.cluster.machinery import kill_operator, wait_operator
from tests.e2e.cluster.runs import stepping, wait_phase
from tests.e2e.cluster.store import ClusterStore
from tests.e2e.cluster.stubs import Stubs
from tests.e2e.cluster.watcher import Watcher, one_pod_a_run

RUNS = 30
KILLS = 10
STEPS = 3


def test_killed_at_any_moment_it_goes_on_from_there(
    runs_here: Kubectl, stubs: Stubs, store: ClusterStore
) -> None:
    kube = runs_here
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")
    random_ = random.Random(seed)
    names = [f"run-{number}" for number in range(RUNS)]
    wait_operator()
    with Watcher(kube, one_pod_a_run):
        for part in range(KILLS):
            kube.apply(*(stepping(stubs, name, steps=STEPS, seconds=1) for name in names[part::KILLS]))
            # The moment is what is drawn: it may fall before, into or behind what the operator does,
            # and now and then before the one that was killed last is replaced.
            time.sleep(random_.uniform(0, 5))
            kill_operator()
        wait_operator()
        ended = [wait_phase(kube, name, "Succeeded", seconds=120) for name in names]
    assert stubs.counts() == dict.fromkeys(names, STEPS)
    assert_undisturbed(ended, store)
    wait_until(lambda: not kube.list("pods", "agentrun.dev/run"), seconds=30)
    kube("delete", "agentruns", "--all", "--timeout=30s", seconds=40)


def assert_undisturbed(runs: list[Object], store: ClusterStore) -> None:
    """Each was run by one process, as if there had always been an operator."""
    ids = [UUID(run["status"]["runID"]) for run in runs]
    assert store.outcomes(ids) == [pb.OUTCOME_SUCCEEDED] * len(ids)
    attempts = store.all_attempts(ids)
    for run, run_id in zip(runs, ids, strict=True):
        status = run["status"]
        assert status["result"]["preview"] == "All are done."
        assert (status.get("failures", 0), status["disruptions"]) == (0, 0), (status, attempts[run_id])
        # A number may be skipped: allocated, and its operator killed before it made the pod.
        claimed = [row.outcome for row in attempts[run_id] if row.claimed]
        assert claimed == [AttemptOutcome.SUCCEEDED], attempts[run_id]
        assert all(row.outcome is not None for row in attempts[run_id]), attempts[run_id]
