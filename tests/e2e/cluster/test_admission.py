"""Pods that admission refuses or changes, a quota that never fits, and a prompt that is not there yet."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster.kube import Kubectl, KubeError, Object, condition, wait_until
from tests.e2e.cluster.machinery import operator_metric
from tests.e2e.cluster.objects import RUNNER_IMAGE, restricted_container, restricted_pod
from tests.e2e.cluster.runs import KIND, agentrun, pods_of, wait_phase
from tests.e2e.cluster.webhook import Webhook
from tests.e2e.cluster.webhook_server import MESSAGE, SIDECAR
from tests.e2e.cluster.writes import events_written
from tests.integration.pod.pods import agent

pytestmark = pytest.mark.alone

LOOKED_AT = 12
"""So long a run that waits is looked at, in seconds."""


def hello(name: str, **spec: Any) -> Object:
    return agentrun(name, agent({"text": "Here."}, **spec))


def refused(code: int) -> float:
    """How often the making of a pod was answered so."""
    labels = f'{{code="{code}",resource="pods",verb="post"}}'
    return operator_metric("agentrun_operator_api_requests_total" + labels)


def check_ended_at_once(kube: Kubectl, name: str) -> None:
    """By its first attempt, nothing counted against it."""
    status = wait_phase(kube, name, "Succeeded", seconds=90)["status"]
    assert (status["attempt"], status["failures"], status["disruptions"]) == (1, 0, 0), status


def test_a_webhook_that_is_away_delays_a_run_and_a_pod_that_it_changes_is_known_again(
    runs_here: Kubectl, tmp_path: Path
) -> None:
    kube = runs_here
    hook = Webhook(kube, tmp_path)
    with hook.configured("/mutate"):
        before = refused(500)
        kube.apply(hello("away"))
        run = wait_phase(kube, "away", "Pending", "WebhookUnavailable", seconds=25)
        assert "hook.example.test" in run["status"]["message"]
        assert [reason for reason, _ in events_written(kube, "away")].count("WebhookUnavailable") == 1
        time.sleep(LOOKED_AT)
        assert 2 <= refused(500) - before <= 2 + LOOKED_AT / 5
        assert wait_phase(kube, "away", "Pending", "WebhookUnavailable")
        hook.start()
        hook.change("/mutate")
        check_ended_at_once(kube, "away")
        kube.apply(agentrun("changed", agent({"text": "Here.", "delaySeconds": 12})))
        wait_phase(kube, "changed", "Running")
        (name,) = pods_of(kube, "changed")
        pod = kube.get("pod", name)
        assert pod is not None and pod["metadata"]["labels"]["mutated"] == "x7"
        assert [each["name"] for each in pod["spec"]["containers"]] == [SIDECAR, "runner"]
        check_ended_at_once(kube, "changed")
        # Its sidecar would go on for minutes.
        wait_until(lambda: not pods_of(kube, "changed"), seconds=60)
        assert hook.counts() == {"/mutate": 2}


def test_what_a_policy_denies_is_told_in_its_words_and_asked_for_seldom(
    runs_here: Kubectl, tmp_path: Path
) -> None:
    kube = runs_here
    hook = Webhook(kube, tmp_path)
    hook.start()
    with hook.configured("/deny"):
        kube.apply(hello("denied"))
        run = wait_phase(kube, "denied", "Pending", "PolicyDenied", seconds=25)
        assert MESSAGE in run["status"]["message"]
        assert [reason for reason, _ in events_written(kube, "denied")].count("PolicyDenied") == 1
        time.sleep(LOOKED_AT)
        assert hook.counts() == {"/deny": 1}
    with policy(kube):
        kube.apply(hello("against-policy"))
        run = wait_phase(kube, "against-policy", "Pending", "PolicyDenied", seconds=25)
        assert MESSAGE in run["status"]["message"]
        assert condition(run, "Stalled")["status"] == "False"
    for name in ("denied", "against-policy"):
        check_ended_at_once(kube, name)


@contextmanager
def policy(kube: Kubectl) -> Iterator[None]:
    """The API server's own: no runner pods in the namespace."""
    api, name = "admissionregistration.k8s.io/v1", kube.namespace
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
    where = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}
    no_runner = "!('agentrun.dev/run' in object.metadata.labels)"
    meta = {"metadata": {"name": name}}
    try:
        kube.apply(
            {
                "apiVersion": api,
                "kind": "ValidatingAdmissionPolicy",
                **meta,
                "spec": {
                    "failurePolicy": "Fail",
                    "matchConstraints": {"resourceRules": [rule], **where},
                    "validations": [{"expression": no_runner, "message": MESSAGE}],
                },
            },
            {
                "apiVersion": api,
                "kind": "ValidatingAdmissionPolicyBinding",
                **meta,
                "spec": {"policyName": name, "validationActions": ["Deny"]},
            },
        )
        wait_until(lambda: denies(kube), seconds=30)
        yield
    finally:
        for kind in ("ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"):
            kube.delete(kind, name)


def denies(kube: Kubectl) -> bool:
    """The policy is in force: it takes a moment."""
    containers = [restricted_container("probe", RUNNER_IMAGE)]
    pod = restricted_pod("probe", containers, labels={"agentrun.dev/run": "x"})
    try:
        kube("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))
    except KubeError as error:
        return MESSAGE in error.message
    return False


def test_a_run_that_can_never_fit_its_quota_waits_with_the_reason_until_it_does(runs_here: Kubectl) -> None:
    kube = runs_here
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "memory"}}
    kube.apply(quota | {"spec": {"hard": {"requests.memory": "16Mi"}}})
    kube.wait_for("resourcequota", "memory", lambda quota: quota.get("status", {}).get("hard"))
    before = refused(403)
    kube.apply(hello("large", startDeadlineSeconds=5), hello("given-up"))
    for name in ("large", "given-up"):
        run = wait_phase(kube, name, "Pending", "ExceededQuota", seconds=25)
        assert "exceeded quota: memory" in run["status"]["message"]
    time.sleep(20)
    # Time over quota is not the run's: the deadline for its start does not count it.
    run = wait_phase(kube, "large", "Pending", "ExceededQuota")
    assert run["status"]["failures"] == 0 and "startTime" not in run["status"]
    assert refused(403) - before <= 2 * 3
    kube.patch(KIND, "given-up", {"spec": {"shutdown": "Stop"}})
    wait_phase(kube, "given-up", "Cancelled", seconds=30)
    kube.apply(quota | {"spec": {"hard": {"requests.memory": "4Gi"}}})
    check_ended_at_once(kube, "large")


def test_a_prompt_whose_config_map_is_not_there_yet_is_waited_for(runs_here: Kubectl) -> None:
    kube = runs_here
    spec = agent({"text": "Here."})
    del spec["prompt"]
    spec["promptFrom"] = {"configMapKeyRef": {"name": "prompts", "key": "first"}}
    kube.apply(agentrun("prompted", spec))
    run = wait_phase(kube, "prompted", "Pending", "ConfigMapMissing", seconds=60)
    assert "prompts" in run["status"]["message"]
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "prompts"}}
    kube.apply(config | {"data": {"first": "Say hello."}})
    check_ended_at_once(kube, "prompted")
