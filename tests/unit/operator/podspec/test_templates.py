"""What a pod template adds, and what is refused by name with what would be right."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest

from agentrun.spec import PodTemplate
from agentrun_operator.podspec import check_template
from tests.unit.operator.podspec.restricted import violations
from tests.unit.operator.podspec.templates import ACCEPTED, REFUSED, run_with
from tests.unit.operator.podspec.test_build import build, env_of


def problems(spec: dict[str, Any]) -> list[str]:
    return [str(problem) for problem in check_template(PodTemplate(spec=spec))]


@pytest.mark.parametrize("title", ACCEPTED)
def test_what_people_write_is_taken_and_every_container_stays_restricted(title: str) -> None:
    before = deepcopy(ACCEPTED[title])
    assert problems(ACCEPTED[title]) == []
    pod = build({"spec": ACCEPTED[title]})
    assert before == ACCEPTED[title]
    spec = pod["spec"]
    assert spec["containers"][0]["name"] == "runner"
    assert spec["securityContext"]["runAsNonRoot"] is True
    for container in spec["containers"] + spec.get("initContainers", []):
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
    assert env_of(pod)["AGENTRUN_ATTEMPT"] == "1"


@pytest.mark.parametrize("version", ["1.32", "1.34"])
@pytest.mark.parametrize("title", ACCEPTED)
def test_every_pod_is_one_that_kubernetes_knows_and_restricted_namespaces_take(
    title: str, version: str
) -> None:
    pod = build({"spec": ACCEPTED[title]})
    kubernetes_validate.validate(pod, version, strict=True)
    assert violations(pod["spec"]) == []


LOOSE: dict[str, tuple[dict[str, Any], str]] = {
    "the host's network": ({"hostNetwork": True}, "hostNetwork"),
    "a folder of the node": ({"volumes": [{"name": "x", "hostPath": {"path": "/"}}]}, "volume x"),
    "a bare container": ({"containers": [{"name": "x"}]}, "x: capabilities"),
    "root": ({"securityContext": {"runAsUser": 0}, "containers": [{"name": "x"}]}, "x: runAsUser"),
    "no seccomp": ({"initContainers": [{"name": "x"}]}, "x: seccompProfile"),
    "a port of the node": (
        {"containers": [{"name": "x", "ports": [{"hostPort": 80}]}]},
        "x: hostPort",
    ),
}


@pytest.mark.parametrize("title", LOOSE)
def test_what_restricted_namespaces_refuse_is_found(title: str) -> None:
    spec, found = LOOSE[title]
    assert found in violations(spec)


@pytest.mark.parametrize("title", REFUSED)
def test_what_is_refused_is_named_with_what_would_be_right(title: str) -> None:
    spec, path, reason = REFUSED[title]
    found = problems(spec)
    assert len(found) == 1, found
    assert found[0].startswith(f"spec.podTemplate.spec.{path}: ")
    assert reason in found[0]


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("labels", "agentrun.dev/run", "x"),
        ("labels", "app.kubernetes.io/name", "x"),
        ("labels", "app.kubernetes.io/managed-by", "x"),
        ("labels", "app.kubernetes.io/instance", "x"),
        ("labels", "argocd.argoproj.io/instance", "x"),
        ("annotations", "kubectl.kubernetes.io/last-applied-configuration", "{}"),
        ("annotations", "kopf.zalando.org/last-handled-configuration", "{}"),
        ("annotations", "cluster-autoscaler.kubernetes.io/safe-to-evict", "false"),
        ("annotations", "karpenter.sh/do-not-disrupt", "true"),
    ],
)
def test_labels_and_annotations_of_controllers_are_refused(part: str, key: str, value: str) -> None:
    template = run_with({"metadata": {part: {key: value}}}).spec.pod_template
    (problem,) = check_template(template)
    assert problem.path == f"spec.podTemplate.metadata.{part}[{key}]"


def test_no_template_is_fine() -> None:
    assert check_template(None) == []


def test_security_is_merged_and_not_replaced() -> None:
    pod = build({"spec": ACCEPTED["a random user, as OpenShift gives"]})
    assert pod["spec"]["securityContext"] == {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
        "runAsUser": 1000680000,
        "fsGroup": 1000680000,
    }


def test_the_runners_container_is_merged_by_name() -> None:
    pod = build({"spec": ACCEPTED["the runner's own container"]})
    (runner,) = pod["spec"]["containers"]
    assert runner["image"] == "registry.test/team/runner:1.4"
    assert pod["metadata"]["annotations"]["agentrun.dev/image"] == runner["image"]
    assert runner["resources"] == {"requests": {"cpu": "500m", "memory": "2Gi"}, "limits": {"memory": "4Gi"}}
    assert runner["securityContext"]["runAsUser"] == 65532
    assert env_of(pod)["HTTPS_PROXY"] == "http://proxy.test:3128"
    assert runner["volumeMounts"][0]["subPath"] == "ca.crt"


def test_a_resource_that_is_mentioned_is_the_templates_alone() -> None:
    container = {"name": "runner", "resources": {"requests": {"memory": "8Gi"}}}
    (runner,) = build({"spec": {"containers": [container]}})["spec"]["containers"]
    assert runner["resources"] == {"requests": {"cpu": "100m", "memory": "8Gi"}}


def test_tolerations_are_added_and_a_lost_node_is_left_as_soon_as_the_template_says() -> None:
    tolerations = build({"spec": ACCEPTED["placement"]})["spec"]["tolerations"]
    seconds = {one["key"]: one.get("tolerationSeconds") for one in tolerations}
    assert seconds == {
        "node.kubernetes.io/not-ready": 30,
        "node.kubernetes.io/unreachable": 20,
        "spot": None,
    }


def test_either_name_of_the_account_is_the_account() -> None:
    for title in ("both names of the account", "the old name of the account"):
        spec = build({"spec": ACCEPTED[title]})["spec"]
        assert spec["serviceAccountName"] == "default"
        assert spec["automountServiceAccountToken"] is False


def test_sidecars_come_behind_the_runner_and_keep_their_ways() -> None:
    spec = build({"spec": ACCEPTED["a classic sidecar"]})["spec"]
    assert [container["name"] for container in spec["containers"]] == ["runner", "shipper"]
    assert spec["containers"][1]["command"] == ["/fluent-bit/bin/fluent-bit"]
    (proxy,) = build({"spec": ACCEPTED["a native sidecar"]})["spec"]["initContainers"]
    assert proxy["restartPolicy"] == "Always"


@pytest.mark.parametrize("value", [None, 0, "x", True, [], [None], {}, {"a": [1]}, [[1]], [{"name": 1}]])
@pytest.mark.parametrize(
    "field", ["containers", "initContainers", "volumes", "tolerations", "securityContext", "serviceAccount"]
)
def test_no_nonsense_raises(field: str, value: Any) -> None:
    problems({field: value})
    problems(
        {
            "containers": [
                {"name": "runner", key: value} for key in ("env", "volumeMounts", "ports", "resources")
            ]
        }
    )
    problems(
        {
            "containers": [
                {"name": "side", "securityContext": {"capabilities": value, "seccompProfile": value}}
            ]
        }
    )
