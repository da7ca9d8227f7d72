"""The chart renders with every value set, into objects that Kubernetes takes; rights are the least."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import helm_python
import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from agentrun_operator import crd, settings
from tests.unit.chart.rendering import (
    CHART,
    VALUE_SETS,
    Object,
    of_kind,
    render,
    render_files,
    the,
    values_of,
)
from tests.unit.operator.podspec.restricted import violations

TRIAL = values_of(CHART / "ci" / "trial.yaml")
FULL = values_of(CHART / "ci" / "full.yaml")
EXISTING = values_of(CHART / "ci" / "existing-secret.yaml")
PERSISTENT = values_of(CHART / "ci" / "persistent.yaml")
KUBERNETES = ["1.32", "1.34"]
OTHERS = {"monitoring.coreos.com/v1"}
"""Kinds of others, whose schemas no package ships."""


def ids(file: Path) -> str:
    return file.stem


def operator(objects: list[Object]) -> Object:
    (deployment,) = of_kind(objects, "Deployment")
    container: Object = deployment["spec"]["template"]["spec"]["containers"][0]
    return container


def environment(objects: list[Object]) -> dict[str, str]:
    """The operator's, with what its Secrets hold."""
    held = {
        one["metadata"]["name"]: one["stringData"] for one in of_kind(objects, "Secret") if _in_system(one)
    }
    found = {}
    for entry in operator(objects)["env"]:
        if "value" in entry:
            found[entry["name"]] = entry["value"]
        else:
            ref = entry["valueFrom"]["secretKeyRef"]
            found[entry["name"]] = held.get(ref["name"], {}).get(ref["key"], "postgresql://other.test/runs")
    return found


def _in_system(found: Object) -> bool:
    return bool(found["metadata"]["namespace"] == "system")


@pytest.mark.parametrize("file", VALUE_SETS, ids=ids)
def test_helm_finds_nothing_to_say(file: Path) -> None:
    report = helm_python.lint(CHART, values_of(file), kube_version="v1.34.0", strict=True)
    assert report["errors"] == []
    assert [one["error"] for one in report["messages"] if one["severity"] > 1] == []


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("file", VALUE_SETS, ids=ids)
def test_kubernetes_takes_every_object(file: Path, version: str) -> None:
    objects = render(values_of(file))
    for found in objects:
        if found["apiVersion"] not in OTHERS:
            kubernetes_validate.validate(found, version, strict=True)
    named = [(one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]) for one in objects]
    assert len(named) == len(set(named))


@pytest.mark.parametrize("file", VALUE_SETS, ids=ids)
def test_the_operator_understands_what_the_chart_tells_it(file: Path) -> None:
    settings.read(environment(render(values_of(file))))


def test_what_is_set_arrives() -> None:
    read = settings.read(environment(render(FULL)))
    assert read.installation == "production"
    assert read.database_url == "postgresql://operator:a%40b@db.test:6432/runs"
    assert read.listen_url == "postgresql://operator:a%40b@db.test:5432/runs"
    assert read.prepared_statements is False
    assert read.namespaces == ("team-a", "team-b")
    assert read.workers == 8
    assert (read.rollout, read.rollout_unavailable_max) == (settings.RolloutPolicy.IMMEDIATE, 3)
    assert read.pods.image == "registry.test/agentrun-runner:1.2"
    assert read.pods.image_pull_secrets == ("registry",)
    assert read.pods.resources["limits"] == {"memory": "2Gi"}
    assert read.pods.env == {"AGENTRUN_LOG_FORMAT": "json", "AGENTRUN_DATABASE_PREPARED_STATEMENTS": "false"}


def test_each_installation_has_a_name_of_its_own() -> None:
    read = settings.read(environment(render(TRIAL, name="a", namespace="system")))
    assert read.installation == "system.a"


def test_the_operator_is_one_and_restricted_and_is_looked_after() -> None:
    (deployment,) = of_kind(render(TRIAL), "Deployment")
    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert container["args"] == ["operator"]
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    assert container["ports"] == [{"name": "http", "containerPort": 8080}]


@pytest.mark.parametrize("file", VALUE_SETS, ids=ids)
def test_every_pod_satisfies_the_restricted_standard(file: Path) -> None:
    for found in render(values_of(file)):
        pod = found.get("spec", {}).get("template", {}).get("spec")
        if not pod:
            continue
        assert violations(pod) == []
        for container in pod["containers"] + pod.get("initContainers", []):
            assert container["securityContext"]["readOnlyRootFilesystem"] is True


def rules(objects: list[Object], kind: str) -> set[tuple[str, str]]:
    """(resource, verb) of the operator's roles of that kind."""
    return {
        (resource, verb)
        for role in of_kind(objects, kind)
        if not any("aggregate" in label for label in role["metadata"]["labels"])
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


NEEDED = {
    *(("agentruns", verb) for verb in ("get", "list", "watch", "delete")),
    ("agentruns/status", "patch"),
    *(("pods", verb) for verb in ("get", "list", "watch", "create", "delete")),
    *(("events", verb) for verb in ("create", "list")),
}


def test_rights_are_the_least_and_never_touch_secrets() -> None:
    assert rules(render(TRIAL), "ClusterRole") == NEEDED | {("nodes", "get")}


def test_in_given_namespaces_the_operator_has_rights_there_alone() -> None:
    objects = render(FULL)
    assert rules(objects, "ClusterRole") == {("nodes", "get")}
    assert rules(objects, "Role") == NEEDED
    assert {role["metadata"]["namespace"] for role in of_kind(objects, "Role")} == {"team-a", "team-b"}
    without = render(EXISTING)
    assert of_kind(without, "ClusterRole") == []
    (binding,) = of_kind(without, "RoleBinding")
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "agentrun", "namespace": "system"}]
    assert of_kind(without, "ServiceAccount") == []


def test_who_may_edit_a_namespace_may_edit_its_runs() -> None:
    roles = {role["metadata"]["name"]: role for role in of_kind(render(TRIAL), "ClusterRole")}
    edit = roles["system-demo-agentrun-edit"]
    assert edit["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-edit"] == "true"
    # Status is the operator's alone.
    assert [rule["resources"] for rule in edit["rules"]] == [["agentruns"]]


def test_the_crd_is_kept_on_uninstall_and_is_the_generated_one() -> None:
    (found,) = of_kind(render(TRIAL), "CustomResourceDefinition")
    assert found["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert found["spec"] == crd.definition()["spec"]
    assert of_kind(render(EXISTING), "CustomResourceDefinition") == []
    assert not (CHART / "crds").exists()  # what is there, Helm never upgrades


def test_the_stores_secret_goes_where_runs_live() -> None:
    objects = render(FULL)
    secrets = {
        (one["metadata"]["namespace"], one["metadata"]["name"]): one["stringData"]
        for one in of_kind(objects, "Secret")
    }
    runner = {"url": "postgresql://runner:c@db.test:6432/runs"}
    assert secrets[("team-a", "agentrun-store")] == secrets[("team-b", "agentrun-store")] == runner
    assert set(secrets) == {
        ("system", "demo-agentrun-operator-store"),
        ("team-a", "agentrun-store"),
        ("team-b", "agentrun-store"),
    }


def test_an_existing_secret_is_used_and_none_is_made() -> None:
    objects = render(EXISTING)
    assert of_kind(objects, "Secret") == []
    refs = [entry["valueFrom"]["secretKeyRef"] for entry in operator(objects)["env"] if "valueFrom" in entry]
    assert refs == [{"name": "postgres", "key": "uri"}, {"name": "postgres", "key": "direct-uri"}]


def test_the_small_postgres_has_a_disk_only_where_it_is_asked_for() -> None:
    (trial,) = of_kind(render(TRIAL), "StatefulSet")
    assert {"name": "data", "emptyDir": {}} in trial["spec"]["template"]["spec"]["volumes"]
    assert "volumeClaimTemplates" not in trial["spec"]
    objects = render(PERSISTENT)
    (kept,) = of_kind(objects, "StatefulSet")
    (claim,) = kept["spec"]["volumeClaimTemplates"]
    assert claim["spec"] == {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}}
    assert len(of_kind(objects, "PodDisruptionBudget")) == 1


def test_a_password_with_odd_characters_is_one_in_the_url_too() -> None:
    objects = render(PERSISTENT)
    assert the(objects, "Secret", "demo-agentrun-postgres")["stringData"] == {"password": "a b/c"}
    url = the(objects, "Secret", "agentrun-store")["stringData"]["url"]
    assert url == "postgresql://agentrun:a%20b%2Fc@demo-agentrun-postgres.system.svc:5432/agentrun"


def test_a_password_that_is_made_up_is_the_same_everywhere() -> None:
    objects = render({"postgres": {"enabled": True}, "runNamespaces": ["default"]})
    password = the(objects, "Secret", "demo-agentrun-postgres")["stringData"]["password"]
    assert len(password) == 24
    for name in ("agentrun-store", "demo-agentrun-operator-store"):
        assert f":{password}@" in the(objects, "Secret", name)["stringData"]["url"]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, "set exactly one of store.url, store.existingSecret.name and postgres.enabled=true; it is none"),
        (
            {"store": {"url": "postgresql://a"}, "postgres": {"enabled": True}},
            "store.url and postgres.enabled",
        ),
        ({"postgres": {"enabled": True}, "rollout": {"polcy": "x"}}, "polcy"),
        ({"postgres": {"enabled": True}, "rollout": {"policy": "Now"}}, "policy"),
        ({"store": {"url": "mysql://a"}}, "mysql"),
        ({"postgres": {"enabled": True}, "watchNamespaces": ["Team A"]}, "Team A"),
        ({"postgres": {"enabled": True}, "rollout": {"maxUnavailable": 0}}, "maxUnavailable"),
    ],
)
def test_values_that_make_no_sense_are_refused_by_name(values: Object, says: str) -> None:
    with pytest.raises(helm_python.HelmError) as refused:
        render(values)
    assert says in str(refused.value)


def test_every_value_has_a_place_in_the_schema() -> None:
    import json

    schema = json.loads((CHART / "values.schema.json").read_text())
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())

    def missing(value: Any, part: Object, path: str) -> list[str]:
        if not isinstance(value, dict) or "properties" not in part:
            return []
        found = [f"{path}{key}" for key in value if key not in part["properties"]]
        for key in value.keys() & part["properties"].keys():
            found += missing(value[key], part["properties"][key], f"{path}{key}.")
        return found

    assert missing(defaults, schema, "") == []
    assert [key for key in schema["properties"] if key not in defaults] == ["global"]


def test_network_policies_let_in_what_is_needed_alone() -> None:
    objects = render(PERSISTENT)
    policies = {one["metadata"]["name"]: one["spec"] for one in of_kind(objects, "NetworkPolicy")}
    runners = policies["demo-agentrun-runners"]
    assert runners["ingress"] == []
    assert runners["policyTypes"] == ["Ingress", "Egress"]
    postgres = policies["demo-agentrun-postgres"]["ingress"][0]["from"]
    assert {"app.kubernetes.io/name": "agentrun-runner"} in [
        peer["podSelector"]["matchLabels"] for peer in postgres
    ]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (
            TRIAL,
            ["kubectl -n default apply -f examples/hello.yaml", "has no disk", "Runs can live in: default"],
        ),
        ({"postgres": {"enabled": True}}, ["No namespace is prepared", "StoreSecretMissing"]),
        (EXISTING, ["create secret generic agentrun-store --from-literal=url=postgresql://"]),
    ],
)
def test_the_notes_tell_the_next_step(values: Object, says: list[str]) -> None:
    (notes,) = [text for file, text in render_files(values).items() if file.endswith("NOTES.txt")]
    assert "kubectl -n system rollout status deployment/demo-agentrun" in notes
    assert [part for part in says if part not in notes] == []
    assert "\n\n\n" not in notes


def test_no_password_stands_in_anything_but_secrets() -> None:
    for found in render(PERSISTENT):
        if found["kind"] != "Secret":
            text = yaml.safe_dump(found)
            assert "a b/c" not in text
            assert "a%20b%2Fc" not in text
            assert base64.b64encode(b"a b/c").decode() not in text
