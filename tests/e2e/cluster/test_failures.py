"""Pods that do not start and runners that die: status says why at once, and each ends as it is documented."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.e2e.cluster.conftest import STORE_SECRET
from tests.e2e.cluster.kube import Kubectl, Object, condition
from tests.e2e.cluster.runs import KIND, agentrun, is_true, pods_of, wait_phase
from tests.e2e.cluster.writes import events_written
from tests.integration.pod.pods import agent, call

AT_ONCE = 25
"""Bound on what takes a second or two: a busy machine and the kubelet's own pace are in it."""

FAULTS = """
import os

def grow() -> str:
    return str(len(bytearray(os.urandom(1 << 20) * 400)))

def leave() -> str:
    os._exit(1)

def leave_once() -> str:
    if os.environ["AGENTRUN_ATTEMPT"] == "1":
        os._exit(1)
    return "still here"
"""


def faulty(tool: str, **spec: Any) -> Object:
    """A spec whose one tool is a function of FAULTS, in a small runner."""
    tools = [{"name": tool, "python": {"entrypoint": f"faults:{tool}"}, "effect": "idempotent"}]
    runner = {
        "name": "runner",
        "env": [{"name": "PYTHONPATH", "value": "/faults"}],
        "volumeMounts": [{"name": "faults", "mountPath": "/faults"}],
        "resources": {"requests": {"memory": "64Mi"}, "limits": {"memory": "256Mi"}},
    }
    pod = {"containers": [runner], "volumes": [{"name": "faults", "configMap": {"name": "faults"}}]}
    turns = [{"toolCalls": [call(tool)]}, {"text": "All is well."}]
    return agent(*turns, tools=tools, podTemplate={"spec": pod}, **spec)


def hello(**spec: Any) -> Object:
    return agent({"text": "Here."}, **spec)


def pods_with(**spec: Any) -> Object:
    return {"podTemplate": {"spec": spec}}


def told(kube: Kubectl, name: str, reason: str) -> list[str]:
    """Messages of the run's Events of a reason."""
    return [message for found, message in events_written(kube, name) if found == reason]


def test_runners_that_die_are_counted_and_draw_retries(runs_here: Kubectl) -> None:
    kube = runs_here
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "faults"}}
    kube.apply(
        config | {"data": {"faults.py": FAULTS}},
        agentrun("memory", faulty("grow", budget={"retries": 1})),
        agentrun("loop", faulty("leave", budget={"retries": 1, "onExceeded": "Fail"})),
        agentrun("once", faulty("leave_once")),
    )
    for name, words in (("memory", "out of memory"), ("loop", "exit code 1"), ("once", "exit code 1")):
        run = wait_phase(kube, name, "Pending", "BackOff")
        assert run["status"]["failures"] == 1
        assert words in run["status"]["message"]
        assert condition(run, "Reconciling")["status"] == "True"
    once = wait_phase(kube, "once", "Succeeded", seconds=90)["status"]
    assert (once["failures"], once["disruptions"], once["attempt"]) == (1, 0, 2)
    assert once["budget"]["retries"]["used"] == 1
    memory = wait_phase(kube, "memory", "Paused", "BudgetExceeded", seconds=90)
    loop = wait_phase(kube, "loop", "Failed", "BudgetExceeded", seconds=90)
    for run, reason in ((memory, "OOMKilled"), (loop, "RunnerFailed")):
        status = run["status"]
        assert (status["failures"], status["disruptions"], status["attempt"]) == (2, 0, 2)
        assert reason in status["message"]
        assert is_true(run, "BudgetExceeded")
        name = run["metadata"]["name"]
        assert len(told(kube, name, "AttemptFailed")) == 2
        assert len(pods_of(kube, name)) == 2, "failed pods are kept to be looked at"
    assert is_true(loop, "Stalled")
    kube.patch(KIND, "memory", {"spec": {"budget": {"retries": 2}}})
    kube.wait_for(KIND, "memory", lambda run: run["status"]["failures"] == 3)
    wait_phase(kube, "memory", "Paused", "BudgetExceeded")


def test_pods_that_do_not_start_say_why_and_start_when_the_cause_is_gone(runs_here: Kubectl) -> None:
    kube = runs_here
    label = f"agentrun.dev/{kube.namespace}"
    image = [{"name": "runner", "image": "agentrun.invalid/no-such-image:1"}]
    key = {"secretKeyRef": {"name": "keys", "key": "tool"}}
    keyed = {
        "name": "keyed",
        "description": "Not called.",
        "http": {"url": "http://tools.invalid/", "headers": [{"name": "x-key", "valueFrom": key}]},
        "parameters": {"type": "object", "properties": {}},
    }
    late = {"startDeadlineSeconds": 30}
    kube.apply(
        agentrun("image", hello(**pods_with(containers=image), **late)),
        agentrun("image-waits", hello(**pods_with(containers=image))),
        agentrun("nowhere", hello(**pods_with(nodeSelector={label: "no"}), **late)),
        agentrun("somewhere", hello(**pods_with(nodeSelector={label: "yes"}))),
        agentrun("secret", hello(tools=[keyed])),
    )
    wanted = {
        "image": ("ErrImagePull", "ImagePullBackOff"),
        "image-waits": ("ErrImagePull", "ImagePullBackOff"),
        "nowhere": ("Unschedulable",),
        "somewhere": ("Unschedulable",),
        "secret": ("SecretMissing",),
    }
    for name, reasons in wanted.items():
        run = wait_reason(kube, name, reasons)
        assert run["status"]["phase"] == "Pending"
        assert condition(run, "Reconciling")["status"] == "True"
    assert "keys" in wait_phase(kube, "secret", "Pending")["status"]["message"]
    somewhere = wait_phase(kube, "somewhere", "Pending")
    assert condition(somewhere, "PodScheduled")["status"] == "False"
    assert told(kube, "somewhere", "Unschedulable")

    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}}
    kube.apply(secret | {"stringData": {"tool": "abc"}})
    with labelled_node(label):
        wait_phase(kube, "somewhere", "Succeeded")
    wait_phase(kube, "secret", "Succeeded")
    for name, why in (("image", "no-such-image"), ("nowhere", "Unschedulable")):
        run = wait_phase(kube, name, "Failed", "StartDeadlineExceeded")
        assert why in run["status"]["message"]
        assert "startTime" not in run["status"]
    waits = wait_phase(kube, "image-waits", "Pending", "ImagePullBackOff")
    assert "no-such-image" in waits["status"]["message"]
    runs = kube.list("agentruns")
    assert {(run["status"]["failures"], run["status"]["disruptions"]) for run in runs} == {(0, 0)}


def wait_reason(kube: Kubectl, name: str, any_of: tuple[str, ...]) -> Object:
    return kube.wait_for(
        KIND, name, lambda run: run.get("status", {}).get("reason") in any_of, seconds=AT_ONCE
    )


@contextmanager
def labelled_node(label: str) -> Iterator[None]:
    """A node that pods with this selector fit on."""
    cluster = Kubectl()
    node = cluster.list("nodes")[0]["metadata"]["name"]
    cluster("label", "node", node, f"{label}=yes")
    try:
        yield
    finally:
        cluster("label", "node", node, f"{label}-")


def test_a_run_over_quota_waits_outside_its_deadline_and_starts_when_there_is_room(
    runs_here: Kubectl,
) -> None:
    kube = runs_here
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "pods"}}
    kube.apply(quota | {"spec": {"hard": {"pods": "1"}}})
    kube.wait_for("resourcequota", "pods", lambda quota: quota.get("status", {}).get("hard"))
    kube.apply(agentrun("first", agent({"text": "Here.", "delaySeconds": 20})))
    wait_phase(kube, "first", "Running")
    kube.apply(
        agentrun("second", hello(startDeadlineSeconds=15)),
        agentrun("third", hello()),
    )
    for name in ("second", "third"):
        run = wait_phase(kube, name, "Pending", "ExceededQuota", seconds=AT_ONCE)
        assert "exceeded quota: pods" in run["status"]["message"]
        assert told(kube, name, "ExceededQuota")
    wait_phase(kube, "first", "Succeeded")
    for name in ("second", "third"):
        status = wait_phase(kube, name, "Succeeded", seconds=90)["status"]
        assert (status["failures"], status["disruptions"]) == (0, 0)
        assert status["budget"]["retries"]["used"] == 0


def test_a_namespace_without_the_stores_secret_is_told_and_the_run_starts_when_it_is_there(
    kube: Kubectl,
) -> None:
    kube.apply(agentrun("hello", hello()))
    run = wait_phase(kube, "hello", "Pending", "StoreSecretMissing", seconds=AT_ONCE)
    assert STORE_SECRET in run["status"]["message"]
    assert told(kube, "hello", "StoreSecretMissing")
    secret = kube.within("default").get("secret", STORE_SECRET)
    assert secret is not None
    kube.apply(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": STORE_SECRET}, "data": secret["data"]}
    )
    status = wait_phase(kube, "hello", "Succeeded")["status"]
    assert (status["attempt"], status["failures"], status["disruptions"]) == (1, 0, 0)
