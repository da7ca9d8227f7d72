"""What people ask of a run by `kubectl patch` and `kubectl delete`, and deadlines: each by its end."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from agentrun.proto import log_pb2 as pb
from tests.e2e.cluster.kube import Kubectl, KubeError, Object, wait_until
from tests.e2e.cluster.runs import KIND, agentrun, http_tool, is_true, pods_of, wait_phase
from tests.e2e.cluster.store import ClusterStore
from tests.e2e.cluster.stubs import Stubs
from tests.integration.pod.pods import agent, call

FOR_LONG = 300


def batch(stubs: Stubs, name: str, slow_seconds: float) -> dict[str, Any]:
    """A spec: a quick call beside a slow one, a call after both, an answer."""
    tools = [
        http_tool("quick", stubs.tool_url(f"{name}-quick")),
        http_tool("slow", stubs.tool_url(f"{name}-slow", seconds=slow_seconds)),
        http_tool("after", stubs.tool_url(f"{name}-after")),
    ]
    turns = [
        {"toolCalls": [call("quick"), call("slow")]},
        {"toolCalls": [call("after")]},
        {"text": "All are done."},
    ]
    return agent(*turns, tools=tools)


def wait_called(stubs: Stubs, *names: str) -> None:
    """Until these tools are being called."""

    def called() -> bool:
        counts = stubs.counts()
        return all(counts.get(name) for name in names)

    wait_until(called, seconds=60, shown=lambda: str(stubs.counts()))


def wait_no_pod(kube: Kubectl, name: str) -> None:
    wait_until(lambda: not pods_of(kube, name), seconds=30, shown=lambda: str(pods_of(kube, name)))


def ended_as(store: ClusterStore, run: Object) -> int | None:
    """The outcome in the log's final record."""
    (outcome,) = store.outcomes([run_id(run)])
    return outcome


def run_id(run: Object) -> UUID:
    return UUID(run["status"]["runID"])


def test_a_suspended_run_has_no_pod_and_goes_on_where_it_was(runs_here: Kubectl, stubs: Stubs) -> None:
    kube = runs_here
    kube.apply(
        agentrun("later", agent({"text": "Here."}), suspend=True),
        agentrun("run", batch(stubs, "run", slow_seconds=8)),
    )
    wait_called(stubs, "run-quick", "run-slow")
    kube.patch(KIND, "run", {"spec": {"suspend": True}})
    wait_phase(kube, "run", "Pausing", "Suspending", seconds=8)
    run = wait_phase(kube, "run", "Paused", "Suspended")
    assert is_true(run, "Suspended")
    wait_no_pod(kube, "run")
    assert stubs.counts() == {"run-quick": 1, "run-slow": 1}
    later = wait_phase(kube, "later", "Paused", "Suspended")
    assert "attempt" not in later["status"]
    assert not pods_of(kube, "later")
    for name in ("run", "later"):
        kube.patch(KIND, name, {"spec": {"suspend": False}})
    run = wait_phase(kube, "run", "Succeeded")
    assert run["status"]["result"]["preview"] == "All are done."
    assert stubs.counts() == {"run-quick": 1, "run-slow": 1, "run-after": 1}
    status = run["status"]
    assert (status["attempt"], status["disruptions"], status["failures"]) == (2, 0, 0)
    assert not is_true(run, "Suspended")
    wait_phase(kube, "later", "Succeeded")


def test_stop_lets_running_steps_finish_and_terminate_does_not(
    runs_here: Kubectl, stubs: Stubs, store: ClusterStore
) -> None:
    kube = runs_here
    kube.apply(
        agentrun("stop", batch(stubs, "stop", slow_seconds=8)),
        agentrun("terminate", batch(stubs, "terminate", slow_seconds=FOR_LONG)),
    )
    wait_called(stubs, "stop-slow", "terminate-slow")
    kube.patch(KIND, "stop", {"spec": {"shutdown": "Stop"}})
    kube.patch(KIND, "terminate", {"spec": {"shutdown": "Terminate"}})
    stopped = wait_phase(kube, "stop", "Cancelled", "Cancelled")
    terminated = wait_phase(kube, "terminate", "Cancelled", "Cancelled")
    for run, finished in ((stopped, {"call-1-0", "call-1-1"}), (terminated, {"call-1-0"})):
        done = set(store.history(run_id(run)).done)
        assert done & {"call-1-0", "call-1-1", "turn-2"} == finished
        assert ended_as(store, run) == pb.OUTCOME_CANCELLED
        wait_no_pod(kube, run["metadata"]["name"])
    assert not [name for name in stubs.counts() if name.endswith("-after")]
    with pytest.raises(KubeError, match="shutdown"):
        kube.patch(KIND, "terminate", {"spec": {"shutdown": None}})


def test_a_raised_budget_counts_while_a_run_runs_and_when_it_is_parked(
    runs_here: Kubectl, stubs: Stubs
) -> None:
    kube = runs_here
    kube.apply(
        agentrun("running", batch(stubs, "running", slow_seconds=10), budget={"turns": 1}),
        agentrun("parked", batch(stubs, "parked", slow_seconds=0), budget={"turns": 1}),
    )
    wait_called(stubs, "running-slow")
    kube.patch(KIND, "running", {"spec": {"budget": {"turns": 10}}})
    parked = wait_phase(kube, "parked", "Paused", "BudgetExceeded")
    assert is_true(parked, "BudgetExceeded")
    assert "turns" in parked["status"]["message"]
    wait_no_pod(kube, "parked")
    kube.patch(KIND, "parked", {"spec": {"budget": {"turns": 2}}})
    kube.wait_for(KIND, "parked", lambda run: run["status"].get("attempt") == 2)
    wait_phase(kube, "parked", "Paused", "BudgetExceeded")
    kube.patch(KIND, "parked", {"spec": {"budget": {"turns": 3}}})
    for name, attempt in (("running", 1), ("parked", 3)):
        status = wait_phase(kube, name, "Succeeded")["status"]
        assert (status["attempt"], status["failures"], status["disruptions"]) == (attempt, 0, 0)
        assert status["budget"]["turns"]["used"] == 3
        assert status["budget"]["retries"]["used"] == 0
    assert set(stubs.counts().values()) == {1}


def test_a_retry_token_lets_a_failed_run_go_on_from_the_step_that_failed(
    runs_here: Kubectl, stubs: Stubs, store: ClusterStore
) -> None:
    kube = runs_here
    stubs.script([("quick", {})], 400)
    model = {"name": "openai:stub", "baseURL": stubs.model_url}
    quick = http_tool("quick", stubs.tool_url("quick"))
    kube.apply(agentrun("run", {"prompt": "Go on.", "agent": {"model": model, "tools": [quick]}}))
    failed = wait_phase(kube, "run", "Failed")
    assert is_true(failed, "Stalled")
    assert stubs.counts() == {"quick": 1, "model": 2}
    stubs.script("Well, then.")
    kube.patch(KIND, "run", {"spec": {"retryToken": "first"}})
    run = kube.wait_for(KIND, "run", lambda run: run["status"]["phase"] == "Succeeded")
    assert run["status"]["result"]["preview"] == "Well, then."
    assert run["status"]["observedRetryToken"] == "first"
    assert run["status"]["runID"] == failed["status"]["runID"]
    assert stubs.counts() == {"quick": 1, "model": 3}
    assert ended_as(store, run) == pb.OUTCOME_SUCCEEDED


def test_deadlines_and_the_time_to_live_count(runs_here: Kubectl, stubs: Stubs, store: ClusterStore) -> None:
    kube = runs_here
    kube.apply(
        agentrun(
            "late",
            batch(stubs, "late", slow_seconds=FOR_LONG),
            completionDeadlineSeconds=5,
            terminationGracePeriodSeconds=4,
        ),
        agentrun("brief", agent({"text": "Here."}), ttlSecondsAfterFinished=5),
    )
    brief = wait_phase(kube, "brief", "Succeeded")
    late = wait_phase(kube, "late", "Failed", "DeadlineExceeded", seconds=60)
    assert is_true(late, "Stalled")
    assert "5 s" in late["status"]["message"]
    wait_no_pod_that_runs(kube, "late")
    kube.wait_gone(KIND, "brief", seconds=40)
    kube.patch(KIND, "late", {"spec": {"ttlSecondsAfterFinished": 0}})
    kube.wait_gone(KIND, "late", seconds=40)
    assert ended_as(store, brief) == pb.OUTCOME_SUCCEEDED
    assert ended_as(store, late) == pb.OUTCOME_FAILED
    wait_no_pod(kube, "late")


def wait_no_pod_that_runs(kube: Kubectl, name: str) -> None:
    def none() -> bool:
        pods = kube.list("pods", f"agentrun.dev/run={name}")
        return all(pod["status"]["phase"] not in ("Pending", "Running") for pod in pods)

    wait_until(none, seconds=60)


def test_a_deleted_run_is_cancelled_and_leaves_nothing(
    runs_here: Kubectl, stubs: Stubs, store: ClusterStore
) -> None:
    kube = runs_here
    kube.apply(
        agentrun("running", batch(stubs, "running", slow_seconds=FOR_LONG), terminationGracePeriodSeconds=5),
        agentrun("parked", agent({"text": "Here."}), suspend=True),
    )
    wait_called(stubs, "running-slow")
    runs = [wait_phase(kube, "running", "Running"), wait_phase(kube, "parked", "Paused")]
    for run in runs:
        kube.delete(KIND, run["metadata"]["name"], seconds=20)
    for run in runs:
        wait_until(lambda run=run: ended_as(store, run), seconds=60, every=1)  # type: ignore[misc]
        assert ended_as(store, run) == pb.OUTCOME_CANCELLED
        wait_no_pod(kube, run["metadata"]["name"])
        assert all(row.outcome is not None for row in store.attempts(run_id(run)))
    assert stubs.counts() == {"running-quick": 1, "running-slow": 1}
