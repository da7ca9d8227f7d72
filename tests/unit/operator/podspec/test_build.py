"""The pod of an attempt: its name, what it may do, and where its settings come from."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from agentrun.spec import AgentRun, ManifestError, parse_object
from agentrun_operator.apply import event_body
from agentrun_operator.events import Told
from agentrun_operator.objects import Objects
from agentrun_operator.podspec import POD_SELECTOR, PodSettings, build_pod, pod_name
from tests.unit.operator.podspec.templates import run_with

RUN_ID = UUID("0b0e6a52-6f0f-4a8e-9f53-0b7c5a3f5e11")
UID = "8f3c1a5e-1111-4222-8333-444455556666"
SETTINGS = PodSettings(image="agentrun-runner:dev")
LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
POD_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def build(template: dict[str, Any] | None = None, *, attempt: int = 1, **spec: Any) -> dict[str, Any]:
    return build_pod(run_with(template, **spec), run_id=RUN_ID, attempt=attempt, uid=UID, settings=SETTINGS)


def env_of(pod: dict[str, Any]) -> dict[str, Any]:
    (runner,) = [one for one in pod["spec"]["containers"] if one["name"] == "runner"]
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in runner["env"]}


LONG = "team-a.nightly-triage.of-all-issues-that-were-opened-since-the-last-release-train.2027-01-31t03-15"


@pytest.mark.parametrize(
    "name", ["hello", "a" * 63, LONG, "a" * 253, "run.7", "v1.2.3", "x" * 50 + "." + "y" * 20]
)
@pytest.mark.parametrize("attempt", [1, 12, 1_000_000])
def test_every_name_gives_a_pod_name_and_labels_that_are_valid(name: str, attempt: int) -> None:
    assert POD_NAME.fullmatch(pod_name(name, uid=UID, attempt=attempt))
    pod = build_pod(named(name), run_id=RUN_ID, attempt=attempt, uid=UID, settings=SETTINGS)
    assert pod["metadata"]["name"] == pod_name(name, uid=UID, attempt=attempt)
    assert all(LABEL.fullmatch(value) for value in pod["metadata"]["labels"].values())


def named(name: str) -> AgentRun:
    return parse_object(
        {
            "apiVersion": "agentrun.dev/v1alpha1",
            "kind": "AgentRun",
            "metadata": {"name": name, "namespace": "demo"},
            "spec": {"prompt": "Hello", "agent": {"model": {"name": "openai:gpt-5"}}},
        }
    )


def test_two_long_names_with_one_beginning_have_labels_that_tell_them_apart() -> None:
    labels = {
        build_pod(named("a" * 80 + end * 20), run_id=RUN_ID, attempt=1, uid=UID, settings=SETTINGS)[
            "metadata"
        ]["labels"]["agentrun.dev/run"]
        for end in "bc"
    }
    assert len(labels) == 2 and all(LABEL.fullmatch(label) for label in labels)
    assert all(label.startswith("a" * 40) for label in labels)


@pytest.mark.parametrize("name", ["hello", LONG, "a" * 253, "a" * 199 + "." + "b" * 50])
def test_events_have_names_that_the_api_server_takes(name: str) -> None:
    found = Objects().parse({"metadata": {"name": name, "namespace": "demo", "uid": UID}})
    event = event_body(found, Told(reason="PodCreated"), "operator-1", datetime.now(UTC))
    text = event["metadata"]["name"]
    assert len(text) <= 253
    assert all(re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", part) for part in text.split("."))
    assert event["involvedObject"]["name"] == name


def test_names_never_meet() -> None:
    names = {
        pod_name(name, uid=uid, attempt=attempt)
        for name in ("a" * 80 + "b" * 20, "a" * 80 + "c" * 20, "a")
        for uid in (f"{name}-1", f"{name}-2")
        for attempt in (1, 2, 11)
    }
    assert len(names) == 18
    # An object called `a-1` and attempt 1 of one called `a`: the hash keeps them apart.
    assert pod_name("a-1", uid="x", attempt=1) != pod_name("a", uid="y", attempt=1)


def test_the_same_arguments_give_the_same_pod() -> None:
    assert build(attempt=3) == build(attempt=3)
    assert build(attempt=3)["metadata"]["name"].endswith("-3")


def test_it_belongs_to_its_object_and_can_be_found() -> None:
    metadata = build(attempt=2)["metadata"]
    assert metadata["namespace"] == "demo"
    assert metadata["labels"] == {
        "app.kubernetes.io/name": "agentrun-runner",
        "app.kubernetes.io/managed-by": "agentrun",
        "agentrun.dev/run": "hello",
        "agentrun.dev/run-id": str(RUN_ID),
        "agentrun.dev/attempt": "2",
    }
    assert metadata["ownerReferences"] == [
        {
            "apiVersion": "agentrun.dev/v1alpha1",
            "kind": "AgentRun",
            "name": "hello",
            "uid": UID,
            "controller": True,
            "blockOwnerDeletion": False,
        }
    ]
    selected = dict(part.split("=") for part in POD_SELECTOR.split(","))
    assert selected.items() <= metadata["labels"].items()
    assert "finalizers" not in metadata


def test_nothing_keeps_its_node_from_being_drained() -> None:
    pod = build()
    assert pod["metadata"]["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "true"
    assert "volumes" not in pod["spec"]
    assert {(one["key"], one["tolerationSeconds"]) for one in pod["spec"]["tolerations"]} == {
        ("node.kubernetes.io/unreachable", 30),
        ("node.kubernetes.io/not-ready", 30),
    }


def test_it_is_restricted_and_has_no_credentials() -> None:
    spec = build()["spec"]
    assert spec["restartPolicy"] == "Never"
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert spec["containers"][0]["securityContext"] == {
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert not {"command", "args"} & spec["containers"][0].keys()


def test_settings_reach_the_runner_by_reference() -> None:
    pod = build(terminationGracePeriodSeconds=90, attempt=4)
    assert pod["spec"]["terminationGracePeriodSeconds"] == 90
    assert env_of(pod) == {
        "AGENTRUN_RUN_ID": str(RUN_ID),
        "AGENTRUN_ATTEMPT": "4",
        "AGENTRUN_GRACE_SECONDS": "90",
        "AGENTRUN_POD_NAME": {"fieldRef": {"fieldPath": "metadata.name"}},
        "AGENTRUN_NODE_NAME": {"fieldRef": {"fieldPath": "spec.nodeName"}},
        "AGENTRUN_DATABASE_URL": {"secretKeyRef": {"name": "agentrun-store", "key": "url"}},
        "AGENTRUN_SECRET_KEYS__OPENAI": {"secretKeyRef": {"name": "keys", "key": "openai"}},
        "HOME": "/dev/shm",
        "TMPDIR": "/dev/shm",
    }


def test_a_secret_that_is_named_twice_is_one_variable() -> None:
    key = {"secretKeyRef": {"name": "keys", "key": "openai"}}
    other = {"secretKeyRef": {"name": "keys", "key": "tools.token"}}
    headers = [{"name": "authorization", "valueFrom": other}]
    tool = {
        "name": "t",
        "description": "t",
        "parameters": {"type": "object"},
        "http": {"url": "http://t.test", "headers": headers},
    }
    agent = {
        "model": {
            "name": "openai:a",
            "apiKeyFrom": key,
            "fallbacks": [{"name": "openai:b", "apiKeyFrom": key}],
        }
    }
    pod = build(agent=agent | {"tools": [tool]})
    names = [entry["name"] for entry in pod["spec"]["containers"][0]["env"]]
    assert [name for name in names if "SECRET" in name] == [
        "AGENTRUN_SECRET_KEYS__OPENAI",
        "AGENTRUN_SECRET_KEYS__TOOLS_TOKEN",
    ]


def test_texts_of_config_maps_are_files() -> None:
    def text(name: str, key: str) -> dict[str, Any]:
        return {"configMapKeyRef": {"name": name, "key": key}}

    model = {"name": "openai:gpt-5"}
    spec: dict[str, Any] = {
        "prompt": None,
        "promptFrom": text("prompts", "hello.md"),
        "agent": {"model": model, "instructionsFrom": text("prompts", "system")},
        "agents": [{"name": "a", "model": model, "instructionsFrom": text("other.team", "system")}],
    }
    with_api = {"name": "shop", "openapi": {"documentFrom": text("apis", "shop.yaml")}}
    api_pod = build(**{**spec, "agent": {**spec["agent"], "tools": [with_api]}})
    sources = api_pod["spec"]["volumes"][0]["projected"]["sources"]
    assert {"name": "apis", "items": [{"key": "shop.yaml", "path": "apis/shop.yaml"}]} in [
        source["configMap"] for source in sources
    ]
    pod = build(**spec)
    assert pod["spec"]["volumes"] == [
        {
            "name": "agentrun-config",
            "projected": {
                "defaultMode": 0o444,
                "sources": [
                    {
                        "configMap": {
                            "name": "other.team",
                            "items": [{"key": "system", "path": "other.team/system"}],
                        }
                    },
                    {
                        "configMap": {
                            "name": "prompts",
                            "items": [
                                {"key": "hello.md", "path": "prompts/hello.md"},
                                {"key": "system", "path": "prompts/system"},
                            ],
                        }
                    },
                ],
            },
        }
    ]
    (mount,) = pod["spec"]["containers"][0]["volumeMounts"]
    assert mount == {"name": "agentrun-config", "mountPath": "/etc/agentrun/config", "readOnly": True}
    assert env_of(pod)["AGENTRUN_CONFIG_DIR"] == "/etc/agentrun/config"


def test_the_installation_has_its_say() -> None:
    settings = PodSettings(
        image="mirror.test/runner:2",
        image_pull_policy="Always",
        image_pull_secrets=("mirror",),
        store_secret_name="db",
        store_secret_key="dsn",
        resources={"limits": {"memory": "2Gi"}},
        lost_node_seconds=5,
        env={"AGENTRUN_LOG_FORMAT": "json"},
    )
    pod = build_pod(run_with(), run_id=RUN_ID, attempt=1, uid=UID, settings=settings)
    runner = pod["spec"]["containers"][0]
    assert (runner["image"], runner["imagePullPolicy"]) == ("mirror.test/runner:2", "Always")
    assert runner["resources"] == {"limits": {"memory": "2Gi"}}
    assert pod["spec"]["imagePullSecrets"] == [{"name": "mirror"}]
    assert pod["spec"]["tolerations"][0]["tolerationSeconds"] == 5
    assert env_of(pod)["AGENTRUN_DATABASE_URL"] == {"secretKeyRef": {"name": "db", "key": "dsn"}}
    assert env_of(pod)["AGENTRUN_LOG_FORMAT"] == "json"
    assert pod["metadata"]["annotations"]["agentrun.dev/image"] == "mirror.test/runner:2"


def test_the_objects_own_labels_and_annotations_stay_its_own() -> None:
    run = parse_object(
        {
            "apiVersion": "agentrun.dev/v1alpha1",
            "kind": "AgentRun",
            "metadata": {
                "name": "r1",
                "namespace": "demo",
                "labels": {"app.kubernetes.io/instance": "agents", "argocd.argoproj.io/instance": "agents"},
                "annotations": {
                    "argocd.argoproj.io/tracking-id": "agents:agentrun.dev/AgentRun:demo/r1",
                    "kubectl.kubernetes.io/last-applied-configuration": "{}",
                },
            },
            "spec": {
                "prompt": "Hello",
                "agent": {"model": {"name": "openai:gpt-5"}},
                "podTemplate": {
                    "metadata": {"labels": {"team": "a"}, "annotations": {"example.test/note": "b"}}
                },
            },
        }
    )
    metadata = build_pod(run, run_id=RUN_ID, attempt=1, uid=UID, settings=SETTINGS)["metadata"]
    assert metadata["labels"]["team"] == "a"
    assert metadata["annotations"]["example.test/note"] == "b"
    assert not [
        key
        for part in ("labels", "annotations")
        for key in metadata[part]
        if "argo" in key or "kubectl" in key
    ]
    assert "app.kubernetes.io/instance" not in metadata["labels"]


def test_no_pod_is_built_from_a_template_that_is_refused() -> None:
    with pytest.raises(ManifestError, match=r"spec\.podTemplate\.spec\.hostNetwork"):
        build({"spec": {"hostNetwork": True}})
