"""A pod of attempt 1 that hung before its claim and wakes when attempt 2 has the run: it does nothing."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import pytest

from tests.e2e.cluster.conftest import STORE_SECRET
from tests.e2e.cluster.kube import Kubectl, Object, wait_until
from tests.e2e.cluster.objects import RUNNER_IMAGE, restricted_container, restricted_pod
from tests.e2e.cluster.runs import KIND, agentrun, http_tool, wait_phase
from tests.e2e.cluster.store import ClusterStore
from tests.e2e.cluster.stubs import Stubs
from tests.integration.pod.pods import agent, call

EXIT_FENCED = 76
CLAIM = "SET epoch = CASE WHEN claimer"
"""The statement by which a runner claims its run."""

GATE = Path(__file__).with_name("gate_server.py")
CHILD = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-m", "agentrun.pod"])
open("/dev/shm/child", "w").write(str(child.pid))
sys.exit(child.wait())
"""
"""A process that can be stopped by a signal: one with the number 1 cannot."""


class Gate:
    """A way to the store that holds back what comes until it is opened."""

    def __init__(self, kube: Kubectl, dsn: str, hold: str) -> None:
        self._kube = kube
        self._dsn = urlsplit(dsn)
        config: Object = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "gate"}}
        service: Object = {"kind": "Service", "apiVersion": "v1", "metadata": {"name": "gate"}}
        container = restricted_container(
            "gate",
            RUNNER_IMAGE,
            command=["python", "/gate/gate_server.py"],
            args=[str(self._dsn.hostname), str(self._dsn.port or 5432), hold],
            volumeMounts=[{"name": "gate", "mountPath": "/gate"}],
            # A look at its port would be held too.
            readinessProbe={
                "exec": {"command": ["test", "-e", "/dev/shm/serves"]},
                "periodSeconds": 1,
                "timeoutSeconds": 10,
            },
        )
        volumes = [{"name": "gate", "configMap": {"name": "gate"}}]
        kube.apply(
            config | {"data": {GATE.name: GATE.read_text()}},
            service | {"spec": {"selector": {"app": "gate"}, "ports": [{"port": 5432}]}},
            restricted_pod(
                "gate",
                [container],
                labels={"app": "gate"},
                volumes=volumes,
                terminationGracePeriodSeconds=0,
            ),
        )
        kube("wait", "--for=condition=Ready", "pod/gate", "--timeout=60s", seconds=70)

    @property
    def dsn(self) -> str:
        user = self._dsn.netloc.rpartition("@")[0]
        return self._dsn._replace(netloc=f"{user}@gate.{self._kube.namespace}.svc:5432").geturl()

    def wait_held(self) -> None:
        wait_until(lambda: "held" in self._kube.logs("gate"), seconds=60)

    def open(self) -> None:
        self._kube("exec", "gate", "--", "touch", "/dev/shm/open")


def stale_pod(name: str, run_id: UUID, dsn: str, **container: Any) -> Object:
    """A runner of attempt 1."""
    told = {
        "AGENTRUN_DATABASE_URL": dsn,
        "AGENTRUN_RUN_ID": str(run_id),
        "AGENTRUN_ATTEMPT": "1",
        "AGENTRUN_LOG_FORMAT": "json",
    }
    env = [{"name": key, "value": value} for key, value in told.items()]
    return restricted_pod(name, [restricted_container("runner", RUNNER_IMAGE, env=env, **container)])


@pytest.mark.parametrize(
    ("hold", "stopped"),
    [("", False), (CLAIM, False), ("", True)],
    ids=["its-store-was-away", "its-claim-was-under-way", "its-process-was-stopped"],
)
def test_a_pod_that_wakes_too_late_calls_nothing(
    runs_here: Kubectl, stubs: Stubs, store: ClusterStore, hold: str, stopped: bool
) -> None:
    kube = runs_here
    secret = kube.get("secret", STORE_SECRET)
    assert secret is not None
    gate = Gate(kube, b64decode(secret["data"]["url"]).decode(), hold)
    quick = http_tool("quick", stubs.tool_url("quick"))
    slow = http_tool("slow", stubs.tool_url("slow", seconds=15))
    spec = agent(
        {"toolCalls": [call("quick")]},
        {"toolCalls": [call("slow")]},
        {"text": "Done."},
        tools=[quick, slow],
        # Nothing of ours runs before the test says so.
        podTemplate={"spec": {"schedulingGates": [{"name": "tests.agentrun.dev/not-yet"}]}},
    )
    kube.apply(agentrun("run", spec))
    first = wait_phase(kube, "run", "Pending", "SchedulingGated")["status"]
    assert first["attempt"] == 1
    run_id = UUID(first["runID"])
    child = {"command": ["python", "-c", CHILD]} if stopped else {}
    kube.create(stale_pod("stale", run_id, gate.dsn, **child))
    gate.wait_held()
    if stopped:
        signal(kube, "STOP")

    kube.delete("pod", first["pod"]["name"])
    second = kube.wait_for(
        KIND, "run", lambda run: run["status"]["attempt"] == 2 and run["status"].get("pod")
    )
    kube.patch("pod", second["status"]["pod"]["name"], {"spec": {"schedulingGates": None}})
    wait_until(lambda: stubs.counts().get("slow"), seconds=60)
    gate.open()
    if stopped:
        signal(kube, "CONT")

    end = kube.wait_for("pod", "stale", ended, seconds=60)
    assert ended(end)["exitCode"] == EXIT_FENCED, kube.logs("stale")
    events = {json.loads(line)["event"] for line in kube.logs("stale").splitlines()}
    assert "launched" not in events
    status = wait_phase(kube, "run", "Succeeded")["status"]
    assert (status["attempt"], status["failures"]) == (2, 0)
    assert stubs.counts() == {"quick": 1, "slow": 1}
    attempts = [(row.attempt, row.claimed) for row in store.attempts(run_id)]
    assert attempts == [(1, False), (2, True)]
    history = store.history(run_id)
    assert history.final is not None
    assert history.final.attempt == 2


def ended(pod: Object) -> Any:
    """How its container ended, if it has."""
    return (pod["status"].get("containerStatuses") or [{}])[0].get("state", {}).get("terminated")


def signal(kube: Kubectl, name: str) -> None:
    """To the process beneath the pod's first."""
    kube("exec", "stale", "--", "sh", "-c", f"kill -{name} $(cat /dev/shm/child)")
