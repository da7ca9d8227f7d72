"""Puts a pod template, already checked, over the operator's own pod.

Used by `podspec`. Invariants: the operator's security settings stay, for every
container, unless the template makes them stricter or names another user; a
resource that the template mentions is the template's alone.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from agentrun.spec import PodTemplate
from agentrun_operator.podspec_names import RUNNER_CONTAINER

_REPLACED = (
    "nodeSelector",
    "affinity",
    "topologySpreadConstraints",
    "priorityClassName",
    "runtimeClassName",
    "schedulerName",
    "schedulingGates",
    "dnsConfig",
    "dnsPolicy",
    "hostAliases",
)
"""Fields of which the operator's pod has none."""

_RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
"""What the restricted standard asks of each container and the pod's own context cannot say."""


def merge_template(pod: dict[str, Any], template: PodTemplate) -> None:
    """Changes the pod in place."""
    pod["metadata"]["labels"] |= template.metadata.labels
    pod["metadata"]["annotations"] |= template.metadata.annotations
    extra = deepcopy(_without_nulls(template.spec or {}))
    spec = pod["spec"]
    spec |= {key: extra[key] for key in _REPLACED if key in extra}
    if account := extra.get("serviceAccountName") or extra.get("serviceAccount"):
        spec["serviceAccountName"] = account
    if "securityContext" in extra:
        spec["securityContext"] = _merged(spec["securityContext"], extra["securityContext"])
    for key in ("imagePullSecrets", "volumes"):
        if key in extra:
            spec[key] = spec.get(key, []) + extra[key]
    if "tolerations" in extra:
        spec["tolerations"] = _tolerations(spec["tolerations"], extra["tolerations"])
    if "initContainers" in extra:
        spec["initContainers"] = [_restricted(container) for container in extra["initContainers"]]
    for container in extra.get("containers", ()):
        if container["name"] == RUNNER_CONTAINER:
            _merge_runner(spec["containers"][0], container)
        else:
            spec["containers"].append(_restricted(container))


def _without_nulls(value: Any) -> Any:
    """As the API server has it: an empty value counts as left out."""
    if isinstance(value, dict):
        return {key: _without_nulls(child) for key, child in value.items() if child is not None}
    if isinstance(value, list):
        return [_without_nulls(child) for child in value]
    return value


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in over.items():
        before = result.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            result[key] = _merged(before, value)
        else:
            result[key] = value
    return result


def _restricted(container: dict[str, Any]) -> dict[str, Any]:
    return container | {"securityContext": _merged(_RESTRICTED, container.get("securityContext", {}))}


def _tolerations(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Ours stay but where the template names the same taint: the shorter time would win."""
    named = {
        toleration.get("key") for toleration in theirs if toleration.get("effect", "NoExecute") == "NoExecute"
    }
    return [toleration for toleration in ours if toleration["key"] not in named] + theirs


def _merge_runner(runner: dict[str, Any], extra: dict[str, Any]) -> None:
    for key in ("image", "imagePullPolicy", "envFrom"):
        if key in extra:
            runner[key] = extra[key]
    if "env" in extra:
        named = {entry["name"] for entry in extra["env"]}
        runner["env"] = [entry for entry in runner["env"] if entry["name"] not in named] + extra["env"]
    if "volumeMounts" in extra:
        runner["volumeMounts"] = runner.get("volumeMounts", []) + extra["volumeMounts"]
    if "securityContext" in extra:
        runner["securityContext"] = _merged(runner["securityContext"], extra["securityContext"])
    if "resources" in extra:
        runner["resources"] = _resources(runner["resources"], extra["resources"])


def _resources(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    # Requests above a default limit would be refused, so a resource's two amounts have one author.
    mentioned = {name for amounts in theirs.values() for name in amounts}
    result = {}
    for kind in ("requests", "limits"):
        kept = {name: amount for name, amount in ours.get(kind, {}).items() if name not in mentioned}
        if amounts := kept | theirs.get(kind, {}):
            result[kind] = amounts
    return result
