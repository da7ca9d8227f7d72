"""The runner's pod: a pure function of the object, the attempt and the settings.

The operator calls `check_template` when it first sees an object and `build_pod`
when an attempt is due. Invariants: the same arguments give the same pod, under a
name that no other attempt of any object has; the pod satisfies the restricted Pod
Security standard, carries no Kubernetes credentials, and nothing in it keeps a
node from being drained. What a template may add is stated in `podspec_check`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from agentrun.spec import (
    API_VERSION,
    CONFIG_DIR_VARIABLE,
    KIND,
    AgentRun,
    AgentRunSpec,
    ConfigMapKeyRef,
    ManifestError,
    secret_env_name,
    secret_refs,
)
from agentrun_operator.podspec_check import check_template
from agentrun_operator.podspec_merge import merge_template
from agentrun_operator.podspec_names import (
    CONFIG_DIR,
    CONFIG_VOLUME,
    IMAGE_ANNOTATION,
    LABEL_ATTEMPT,
    LABEL_MANAGED_BY,
    LABEL_NAME,
    LABEL_RUN,
    LABEL_RUN_ID,
    MANAGED_BY,
    POD_SELECTOR,
    RUNNER_CONTAINER,
    RUNNER_NAME,
    SAFE_TO_EVICT,
    SCRATCH_DIR,
)

__all__ = [
    "IMAGE_ANNOTATION",
    "LABEL_ATTEMPT",
    "LABEL_RUN",
    "LABEL_RUN_ID",
    "POD_SELECTOR",
    "RUNNER_CONTAINER",
    "PodSettings",
    "build_pod",
    "check_template",
    "pod_name",
]

NAME_CHARACTERS_MAX = 63
"""Of a pod's name, which becomes its host name, and of a label's value."""

_HASH_CHARACTERS = 10


def _resources() -> dict[str, dict[str, str]]:
    return {"requests": {"cpu": "100m", "memory": "192Mi"}, "limits": {"memory": "1Gi"}}


@dataclass(frozen=True, kw_only=True)
class PodSettings:
    """What the installation says of every runner pod."""

    image: str
    image_pull_policy: str = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()
    store_secret_name: str = "agentrun-store"
    """The Secret in the run's namespace that holds the runner's database URL."""
    store_secret_key: str = "url"
    resources: Mapping[str, Mapping[str, str]] = field(default_factory=_resources)
    """Requests and limits of the runner, where a template says nothing of that resource."""
    lost_node_seconds: int = 30
    """How long a pod stays bound to a node that is not ready or unreachable."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Further settings for the runner, as environment variables."""


def pod_name(name: str, *, uid: str, attempt: int) -> str:
    """The name of an attempt's pod: readable, at most 63 characters, never used twice.

    The hash is of the object's uid and the attempt, so that two objects whose names
    share a beginning, or one that was created again, never meet.
    """
    digest = hashlib.sha256(f"{uid}/{attempt}".encode()).hexdigest()[:_HASH_CHARACTERS]
    return _shortened(name.replace(".", "-"), f"-{digest}-{attempt}")


def _shortened(name: str, ending: str) -> str:
    return name[: NAME_CHARACTERS_MAX - len(ending)].rstrip("-.") + ending


def _run_label(name: str) -> str:
    """The object's name where a label can hold it, else its beginning and a hash of it."""
    if len(name) <= NAME_CHARACTERS_MAX:
        return name
    return _shortened(name, "-" + hashlib.sha256(name.encode()).hexdigest()[:_HASH_CHARACTERS])


def build_pod(
    run: AgentRun, *, run_id: UUID, attempt: int, uid: str, settings: PodSettings
) -> dict[str, Any]:
    """The pod of one attempt, ready to be created in the run's namespace.

    `uid` is the object's. Raises ManifestError if the template has something that
    `check_template` refuses.
    """
    template = run.spec.pod_template
    if problems := check_template(template):
        raise ManifestError(problems)
    name = run.metadata.name or ""
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(name, uid=uid, attempt=attempt),
            "namespace": run.metadata.namespace,
            "labels": {
                LABEL_NAME: RUNNER_NAME,
                LABEL_MANAGED_BY: MANAGED_BY,
                LABEL_RUN: _run_label(name),
                LABEL_RUN_ID: str(run_id),
                LABEL_ATTEMPT: str(attempt),
            },
            "annotations": {SAFE_TO_EVICT: "true"},
            "ownerReferences": [
                {
                    "apiVersion": API_VERSION,
                    "kind": KIND,
                    "name": name,
                    "uid": uid,
                    "controller": True,
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "spec": _pod_spec(run.spec, run_id=run_id, attempt=attempt, settings=settings),
    }
    if template is not None:
        merge_template(pod, template)
    # What was asked for: an admission webhook may put another image in its place.
    pod["metadata"]["annotations"][IMAGE_ANNOTATION] = pod["spec"]["containers"][0]["image"]
    return pod


def _pod_spec(spec: AgentRunSpec, *, run_id: UUID, attempt: int, settings: PodSettings) -> dict[str, Any]:
    texts = _config_maps(spec)
    result: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": spec.termination_grace_period_seconds,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "tolerations": [
            {
                "key": f"node.kubernetes.io/{state}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": settings.lost_node_seconds,
            }
            for state in ("unreachable", "not-ready")
        ],
        "containers": [_runner(spec, run_id=run_id, attempt=attempt, settings=settings, texts=bool(texts))],
    }
    if settings.image_pull_secrets:
        result["imagePullSecrets"] = [{"name": name} for name in settings.image_pull_secrets]
    if texts:
        result["volumes"] = [{"name": CONFIG_VOLUME, "projected": {"defaultMode": 0o444, "sources": texts}}]
    return result


def _runner(
    spec: AgentRunSpec, *, run_id: UUID, attempt: int, settings: PodSettings, texts: bool
) -> dict[str, Any]:
    env: list[dict[str, Any]] = [
        {"name": "AGENTRUN_RUN_ID", "value": str(run_id)},
        {"name": "AGENTRUN_ATTEMPT", "value": str(attempt)},
        {"name": "AGENTRUN_GRACE_SECONDS", "value": str(spec.termination_grace_period_seconds)},
        _from_field("AGENTRUN_POD_NAME", "metadata.name"),
        _from_field("AGENTRUN_NODE_NAME", "spec.nodeName"),
        _from_secret("AGENTRUN_DATABASE_URL", settings.store_secret_name, settings.store_secret_key),
        {"name": "HOME", "value": SCRATCH_DIR},
        {"name": "TMPDIR", "value": SCRATCH_DIR},
    ]
    env += [{"name": name, "value": value} for name, value in sorted(settings.env.items())]
    secrets = sorted({(ref.name, ref.key) for _, ref in secret_refs(spec)})
    env += [_from_secret(secret_env_name(name, key), name, key) for name, key in secrets]
    result: dict[str, Any] = {
        "name": RUNNER_CONTAINER,
        "image": settings.image,
        "imagePullPolicy": settings.image_pull_policy,
        "env": env,
        "resources": {kind: dict(amounts) for kind, amounts in settings.resources.items()},
        "securityContext": {
            "runAsNonRoot": True,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        # The last lines of a runner that crashed are then in its status, for people to see.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if texts:
        env.append({"name": CONFIG_DIR_VARIABLE, "value": CONFIG_DIR})
        result["volumeMounts"] = [{"name": CONFIG_VOLUME, "mountPath": CONFIG_DIR, "readOnly": True}]
    return result


def _from_field(variable: str, path: str) -> dict[str, Any]:
    return {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _from_secret(variable: str, name: str, key: str) -> dict[str, Any]:
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": name, "key": key}}}


def _config_maps(spec: AgentRunSpec) -> list[dict[str, Any]]:
    """Sources of the one volume with texts: each key as the file `<ConfigMap>/<key>`."""
    keys: dict[str, set[str]] = {}
    for ref in _text_refs(spec):
        keys.setdefault(ref.name, set()).add(ref.key)
    return [
        {
            "configMap": {
                "name": name,
                "items": [{"key": key, "path": f"{name}/{key}"} for key in sorted(found)],
            }
        }
        for name, found in sorted(keys.items())
    ]


def _text_refs(spec: AgentRunSpec) -> list[ConfigMapKeyRef]:
    agents = [agent for _, agent in spec.all_agents()]
    tools = [tool.openapi for agent in agents for tool in agent.tools if tool.openapi is not None]
    sources = [
        spec.prompt_from,
        *(agent.instructions_from for agent in agents),
        *(openapi.document_from for openapi in tools),
    ]
    return [source.config_map_key_ref for source in sources if source is not None]
