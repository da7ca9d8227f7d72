"""The runner's image by itself: pods as the operator makes them, with a Postgres beside them."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest

from agentrun.log.postgres import PostgresStore
from agentrun.log.store import AttemptOutcome
from tests.e2e.cluster.kube import Kubectl, Object
from tests.e2e.cluster.objects import RUNNER_IMAGE, postgres_objects, restricted_container, restricted_pod
from tests.e2e.cluster.store import ClusterStore
from tests.e2e.cluster.stubs import Stubs
from tests.integration.pod.pods import Run, Runs, agent, call, tool

T = TypeVar("T")
PASSWORD = "not-to-be-shown"


class ClusterRuns(Runs):
    """Runs in a Postgres of the test's namespace."""

    def __init__(self, kube: Kubectl, folder: Path) -> None:
        dsn = f"postgresql://agentrun:{PASSWORD}@postgres.{kube.namespace}.svc:5432/agentrun"
        super().__init__(dsn, folder)
        self.kube = kube
        self._store = ClusterStore(dsn)

    def ask(self, question: Callable[[PostgresStore], Awaitable[T]]) -> T:
        return self._store.ask(question)

    def start(self, run: Run, name: str, *, user: int = 65532, grace_seconds: int = 20) -> None:
        """A runner pod of a new attempt."""
        told = {
            "AGENTRUN_DATABASE_URL": self.dsn,
            "AGENTRUN_RUN_ID": str(run.run_id),
            "AGENTRUN_ATTEMPT": str(run.allocate()),
            "AGENTRUN_GRACE_SECONDS": str(grace_seconds),
            "AGENTRUN_LOG_FORMAT": "json",
        }
        env: list[Object] = [{"name": key, "value": value} for key, value in told.items()]
        env.append({"name": "AGENTRUN_POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}})
        pod = restricted_pod(
            name,
            [restricted_container("runner", RUNNER_IMAGE, env=env)],
            user=user,
            terminationGracePeriodSeconds=grace_seconds,
        )
        self.kube.create(pod)


@pytest.fixture
def runs(kube: Kubectl, tmp_path: Path) -> ClusterRuns:
    kube.apply(*postgres_objects("postgres", PASSWORD))
    kube("wait", "--for=condition=Ready", "pod/postgres", "--timeout=60s", seconds=70)
    return ClusterRuns(kube, tmp_path)


def ended(kube: Kubectl, name: str, seconds: float = 60) -> Object:
    """How the runner's container ended."""

    def terminated(pod: Object) -> Any:
        return (pod["status"].get("containerStatuses") or [{}])[0].get("state", {}).get("terminated")

    found: Object = terminated(kube.wait_for("pod", name, terminated, seconds=seconds))
    return found


def lines(kube: Kubectl, pod: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in kube.logs(pod).splitlines()]


def wait_for_line(kube: Kubectl, pod: str, seconds: float = 30, **fields: Any) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        started = kube.wait_for("pod", pod, lambda pod: pod["status"]["phase"] != "Pending")
        if any(fields.items() <= line.items() for line in lines(kube, pod)):
            return
        assert started["status"]["phase"] == "Running", kube.logs(pod)
        time.sleep(0.2)
    raise AssertionError(kube.logs(pod))


def test_a_run_ends_well_as_any_user_and_without_a_disk(runs: ClusterRuns, kube: Kubectl) -> None:
    counted = call("word_count", text="a finished step is never lost")
    tools = [tool("word_count", "agentrun.tools.demo:word_count")]
    run = runs.make(agent({"toolCalls": [counted]}, {"text": "Six."}, tools=tools))
    runs.start(run, "first", user=1000680000)
    end = ended(kube, "first")
    assert end["exitCode"] == 0, kube.logs("first")
    assert json.loads(end["message"])["phase"] == "Succeeded"
    assert run.summary()["result"]["preview"] == "Six."
    assert PASSWORD not in kube.logs("first")
    told = lines(kube, "first")
    began = datetime.fromisoformat(end["startedAt"]).timestamp()
    launched = next(line for line in told if line["event"] == "launched")
    # The kubelet's time has whole seconds: this is a bound, and the figure is measured elsewhere.
    assert datetime.fromisoformat(launched["time"]).timestamp() - began < 5


def test_a_deleted_pod_pauses_its_run_and_the_next_one_goes_on(
    runs: ClusterRuns, kube: Kubectl, stubs: Stubs
) -> None:
    slow: dict[str, Any] = {
        "name": "slow",
        "description": "Takes its time.",
        "http": {"url": stubs.tool_url("slow", seconds=4)},
        "parameters": {"type": "object", "properties": {}},
        "effect": "idempotent",
    }
    quick = slow | {"name": "quick", "http": {"url": stubs.tool_url("quick")}}
    stubs.script([("slow", {}), ("quick", {})], "Both are done.")
    model = {"name": "openai:stub", "baseURL": stubs.model_url}
    spec = {
        "prompt": "Go on.",
        "agent": {"model": model, "tools": [slow, quick]},
        "concurrency": 1,
    }
    run = runs.make(spec)
    runs.start(run, "first")
    wait_for_line(kube, "first", event="launched", node="call-1-0")
    kube.delete("pod", "first", "--wait=false")
    kube.wait_gone("pod", "first", seconds=15)
    (attempt,) = run.attempts()
    assert (attempt.outcome, attempt.reason) == (AttemptOutcome.PAUSED, "Terminated")
    assert "call-1-0" in run.history().done
    assert run.summary()["phase"] == "Paused"
    runs.start(run, "second")
    assert ended(kube, "second")["exitCode"] == 0, kube.logs("second")
    assert run.summary()["result"]["preview"] == "Both are done."
    assert stubs.counts() == {"model": 2, "slow": 1, "quick": 1}


@pytest.mark.parametrize("after_ms", [0, 50, 150, 400])
def test_a_signal_right_behind_the_start_ends_it_long_before_its_grace_is_over(
    runs: ClusterRuns, kube: Kubectl, after_ms: int
) -> None:
    run = runs.make(agent({"text": "Yes.", "delaySeconds": 60}))
    runs.start(run, "early", grace_seconds=4)
    kube.wait_for("pod", "early", lambda pod: pod["status"].get("containerStatuses"), seconds=30)
    kube("wait", "--for=jsonpath={.status.containerStatuses[0].state.running}", "pod/early", "--timeout=30s")
    time.sleep(after_ms / 1000)
    began = time.monotonic()
    kube.delete("pod", "early", "--wait=false")
    kube.wait_gone("pod", "early", seconds=15)
    assert time.monotonic() - began < 8
    assert not [id_ for id_ in run.history().done if id_.startswith("turn-")]
