"""What it takes on a cluster from `kubectl apply` to a run's first durable step, beside a bare pod.

    KEEP=1 .ci/with-cluster .venv/bin/python -m benchmarks.start [ROUNDS]

A round is a run and a bare pod of the same image that exits at once (`true`), in turn, so that
what else the machine does hits both; the figures are medians. Two ratios:

- to the bare pod's end as the API server tells it (which the kubelet notices once a second),
- to the moment at which the bare pod's process started, by the clock that it prints.

The run's end is the moment at which its second node was launched, for that waits until the first
one's row is in Postgres. The nodes' clock and this process's must be one: the cluster is on this
machine. Everything is loaded and nothing else runs, or the figures mean little.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from agentrun.log.replay import decode
from tests.e2e.cluster.kube import Kubectl, Object, wait_until
from tests.e2e.cluster.machinery import OPERATOR, system, wait_operator
from tests.e2e.cluster.objects import RUNNER_IMAGE, restricted_container, restricted_pod
from tests.e2e.cluster.runs import agentrun
from tests.e2e.cluster.store import ClusterStore
from tests.integration.pod.pods import agent

ROUNDS = 9
SECRET = "agentrun-store"  # a Secret's name
SECONDS_MAX = 60


class Watch:
    """When what was seen of the objects of one kind: by this process's clock."""

    def __init__(self, path: str) -> None:
        self.seen: list[tuple[float, str, Object]] = []
        self._process = subprocess.Popen(
            ["kubectl", "get", "--raw", f"{path}?watch=1"], stdout=subprocess.PIPE
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = json.loads(line)
            self.seen.append((time.time(), event["type"], event["object"]))

    def first(self, name: str, holds: Any) -> float | None:
        """When the first object whose name begins so was seen to be so."""
        found = (at for at, _, obj in self.seen if obj["metadata"]["name"].startswith(name) and holds(obj))
        return next(found, None)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def namespace() -> Iterator[Kubectl]:
    """One of its own, in which runs may live."""
    kube = Kubectl(f"bench-{uuid4().hex[:6]}")
    secret = Kubectl("default").get("secret", SECRET)
    assert secret is not None, f"no Secret {SECRET} in the namespace default: install with `make deploy`"
    kube.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": kube.namespace}},
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": SECRET, "namespace": kube.namespace},
            "data": secret["data"],
        },
    )
    try:
        yield kube
    finally:
        Kubectl().delete("namespace", kube.namespace, "--wait=false")


def is_running(pod: Object) -> bool:
    states = pod["status"].get("containerStatuses") or [{"state": {}}]
    return bool({"running", "terminated"} & set(states[0]["state"]))


def is_over(pod: Object) -> bool:
    states = pod["status"].get("containerStatuses") or [{"state": {}}]
    return "terminated" in states[0]["state"]


def bare(kube: Kubectl, pods: Watch, number: int) -> dict[str, float]:
    """Seconds from the apply of a bare pod, by what was reached."""
    name = f"bare-{number}"
    command = ["sh", "-c", "date +%s.%N; exec true"]
    began = time.time()
    kube.apply(restricted_pod(name, [restricted_container("bare", RUNNER_IMAGE, command=command)]))
    applied = time.time()
    wait_until(lambda: pods.first(name, is_over), seconds=SECONDS_MAX, every=0.05)
    marks = {
        "applied": applied,
        "pod made": pods.first(name, lambda pod: True),
        "scheduled": pods.first(name, lambda pod: pod["spec"].get("nodeName")),
        "process started": float(kube.logs(name)),
        "told to have ended": pods.first(name, is_over),
    }
    kube.delete("pod", name)
    return {mark: at - began for mark, at in marks.items() if at is not None}


def run(kube: Kubectl, runs: Watch, pods: Watch, store: ClusterStore, number: int) -> dict[str, float]:
    """Seconds from the apply of a run, by what was reached."""
    name = f"run-{number}"
    spec = agent({"text": "Here."}, podRetentionPolicy="Always")
    began = time.time()
    kube.apply(agentrun(name, spec))
    applied = time.time()
    wait_until(
        lambda: runs.first(name, lambda obj: obj.get("status", {}).get("phase") == "Succeeded"),
        seconds=SECONDS_MAX,
        every=0.05,
    )
    found = kube.get("agentrun", name)
    assert found is not None
    records = [decode(run_id, *row) for run_id, row in _rows(store, UUID(found["metadata"]["uid"]))]
    nodes = {record.id: record for record in records}
    logged = _times(kube.logs(found["status"]["pod"]["name"]))
    told = _operator_times(f"{kube.namespace}/{name}")
    marks = {
        "applied": applied,
        "object seen": runs.first(name, lambda obj: True),
        "operator: about to insert the run": told.get("CreateRun"),
        "operator: run is in the store": told.get("StartAttempt"),
        "pod made": pods.first(name, lambda pod: True),
        "scheduled": pods.first(name, lambda pod: pod["spec"].get("nodeName")),
        "runner: settings are read": logged["starting"],
        "runner: claimed": logged["claimed"],
        "first step": nodes["user-1"].finished_us / 1e6,
        "first step is durable": nodes["turn-1"].started_us / 1e6,
        "told to have ended": runs.first(name, lambda obj: obj.get("status", {}).get("phase") == "Succeeded"),
    }
    kube.delete("agentrun", name)
    return {mark: at - began for mark, at in marks.items() if at is not None}


def _rows(store: ClusterStore, run_id: UUID) -> list[tuple[UUID, Any]]:
    return [(run_id, row) for row in store.ask(lambda found: found.read_rows(run_id))]


def _times(log: str) -> dict[str, float]:
    """When each event of a runner's log was first told."""
    found: dict[str, float] = {}
    for line in log.splitlines():
        stamp, _, event = line.split()[:3]
        found.setdefault(event, datetime.fromisoformat(stamp).timestamp())
    return found


def _operator_times(key: str) -> dict[str, float]:
    """When the operator did what for a key, by the name of the action."""
    found: dict[str, float] = {}
    for line in system("logs", f"deployment/{OPERATOR}", "--tail=200").splitlines():
        event = json.loads(line)
        if str(event.get("message")).startswith(f"{key}: "):
            action = event["message"].removeprefix(f"{key}: ").partition("(")[0]
            found.setdefault(action, datetime.fromisoformat(event["time"]).timestamp())
    return found


def show(title: str, rounds: list[dict[str, float]]) -> dict[str, float]:
    """Medians, and what each mark adds to the one before."""
    medians = {mark: statistics.median(each[mark] for each in rounds) for mark in rounds[0]}
    print(title)
    before = 0.0
    for mark, at in sorted(medians.items(), key=lambda item: item[1]):
        print(f"  {at:6.2f} s  +{at - before:5.2f}  {mark}")
        before = at
    return medians


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    assert os.environ.get("KUBECONFIG"), "KUBECONFIG names no cluster: see this module's docstring"
    wait_operator()
    bares, ours = [], []
    with namespace() as kube:
        dsn = b64decode((kube.get("secret", SECRET) or {})["data"]["url"]).decode()
        store = ClusterStore(dsn)
        path = f"namespaces/{kube.namespace}"
        pods = Watch(f"/api/v1/{path}/pods")
        runs = Watch(f"/apis/agentrun.dev/v1alpha1/{path}/agentruns")
        try:
            for number in range(rounds + 1):
                pair = bare(kube, pods, number), run(kube, runs, pods, store, number)
                if number > 0:  # the first of each warms up
                    bares.append(pair[0])
                    ours.append(pair[1])
        finally:
            pods.stop()
            runs.stop()
    pod, first = show("bare pod", bares), show("run", ours)
    durable = first["first step is durable"]
    for mark in ("told to have ended", "process started"):
        print(f"first durable step / bare pod {mark}: {durable / pod[mark]:.2f}")


if __name__ == "__main__":
    main()
