"""The operator and the store of a cluster: where they are, and putting them elsewhere.

Whatever a test does to them it undoes: `cordoned`, `operator_scaled` and `operator_setting` do it by
themselves. Such a test has the cluster alone (`conftest.ALONE`).
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.e2e.cluster.kube import Kubectl, Object, wait_until
from tests.e2e.cluster.processes import processes_of, send

SYSTEM = os.environ.get("AGENTRUN_TEST_SYSTEM", "agentrun-system")
OPERATOR = "agentrun"
STORE_POD = "agentrun-postgres-0"
OPERATOR_PODS = "app.kubernetes.io/component=operator"

system = Kubectl(SYSTEM)


def store_node() -> str:
    """Where Postgres is: its data goes with its pod, so this node stays."""
    pod = system.get("pod", STORE_POD)
    assert pod is not None
    return str(pod["spec"]["nodeName"])


def other_node() -> str:
    """A node that may go."""
    names: list[str] = [node["metadata"]["name"] for node in Kubectl().list("nodes")]
    return next(name for name in names if name != store_node())


def preferring(node: str) -> Object:
    """A pod template: on this node as long as it takes pods, elsewhere otherwise."""
    terms = [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]
    preference = {"weight": 100, "preference": {"matchExpressions": terms}}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preference]}}
    return {"spec": {"affinity": affinity}}


@contextmanager
def cordoned(node: str) -> Iterator[None]:
    """Takes no new pods meanwhile."""
    try:
        Kubectl()("cordon", node)
        yield
    finally:
        Kubectl()("uncordon", node)


def wait_operator(replicas: int = 1) -> list[Object]:
    """The operator's pods, as soon as there are so many, all ready."""

    def found() -> list[Object]:
        return system.list("pods", OPERATOR_PODS)

    def there() -> bool:
        pods = found()
        return len(pods) == replicas and all(_ready(pod) for pod in pods)

    wait_until(there, seconds=90, shown=lambda: json.dumps([pod["status"] for pod in found()]))
    return found()


def _ready(pod: Object) -> bool:
    conditions = pod["status"].get("conditions", [])
    return not pod["metadata"].get("deletionTimestamp") and any(
        each["type"] == "Ready" and each["status"] == "True" for each in conditions
    )


def operator_metric(name: str) -> float:
    """One of the operator's figures, with its labels if it has any; 0 if there is none of it yet."""
    (pod,) = wait_operator()
    path = f"/api/v1/namespaces/{SYSTEM}/pods/{pod['metadata']['name']}:8080/proxy/metrics"
    found = [line for line in system.raw(path).splitlines() if line.startswith(name + " ")]
    return float(found[0].split()[-1]) if found else 0.0


def kill_operator() -> None:
    """By `kill -9`; its pod goes too, for a container that is started again waits longer each time."""
    for pod in system.list("pods", OPERATOR_PODS):
        send(signal.SIGKILL, processes_of(pod["metadata"]["uid"]))
    system("delete", "pod", "-l", OPERATOR_PODS, "--force", "--grace-period=0", "--wait=false")


def put_operator_on(node: str) -> None:
    """Moves it, if it is elsewhere."""
    pods = wait_operator()
    if pods[0]["spec"]["nodeName"] == node:
        return
    with cordoned(pods[0]["spec"]["nodeName"]):
        system.delete("pod", pods[0]["metadata"]["name"])
        assert wait_operator()[0]["spec"]["nodeName"] == node


@contextmanager
def operator_scaled(replicas: int) -> Iterator[None]:
    """So many operators at once, meanwhile; 0: none."""
    try:
        system("scale", "deployment", OPERATOR, f"--replicas={replicas}")
        wait_operator(replicas)
        yield
    finally:
        system("scale", "deployment", OPERATOR, "--replicas=1")
        wait_operator()


@contextmanager
def operator_setting(**variables: str) -> Iterator[None]:
    """The operator with other settings, meanwhile: variables of its environment."""
    deployment = system.get("deployment", OPERATOR)
    assert deployment is not None
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    old = {each["name"]: each.get("value") for each in container["env"]}
    try:
        _set_env(dict(variables))
        yield
    finally:
        _set_env({name: old.get(name) for name in variables})


def _set_env(variables: dict[str, Any]) -> None:
    args = [f"{name}-" if value is None else f"{name}={value}" for name, value in variables.items()]
    system("set", "env", f"deployment/{OPERATOR}", *args)
    system("rollout", "status", f"deployment/{OPERATOR}", "--timeout=90s", seconds=100)
    wait_operator()


def wait_alone(kube: Kubectl) -> None:
    """Until what earlier tests left behind is gone: their pods would be drained too, their ends be slow."""

    def others() -> list[str]:
        found = [each["metadata"]["name"] for each in Kubectl().list("namespaces", "agentrun.dev/test")]
        return [name for name in found if name != kube.namespace]

    wait_until(lambda: not others(), seconds=120, shown=lambda: str(others()))
