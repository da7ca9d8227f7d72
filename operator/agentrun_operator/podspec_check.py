"""What a pod template may add, and why the rest is refused.

Used by `podspec`. `check_template` never raises, whatever the free-form part
holds: each problem names its field, and what would be right. What the API server
itself checks (the shape of an affinity, say) is left to it; its refusal is then
shown in the run's status.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from agentrun.spec import PodTemplate, Problem
from agentrun.spec.errors import format_path, show
from agentrun_operator.podspec_containers import Found, container_problems, security_problems
from agentrun_operator.podspec_names import (
    LABEL_MANAGED_BY,
    LABEL_NAME,
    RESERVED_VOLUME_PREFIX,
    SAFE_TO_EVICT,
)

FIELDS: Mapping[str, type] = {
    "nodeSelector": dict,
    "tolerations": list,
    "affinity": dict,
    "topologySpreadConstraints": list,
    "priorityClassName": str,
    "runtimeClassName": str,
    "schedulerName": str,
    "schedulingGates": list,
    "serviceAccountName": str,
    "serviceAccount": str,
    "imagePullSecrets": list,
    "securityContext": dict,
    "dnsConfig": dict,
    "dnsPolicy": str,
    "hostAliases": list,
    "volumes": list,
    "initContainers": list,
    "containers": list,
}
"""Fields of a PodSpec that a template may have."""

SAME_AS_OURS: Mapping[str, object] = {
    "restartPolicy": "Never",
    "automountServiceAccountToken": False,
    "enableServiceLinks": False,
    "hostNetwork": False,
    "hostPID": False,
    "hostIPC": False,
    "shareProcessNamespace": False,
}
"""Fields that a template may repeat, with the value that they have anyway."""

REFUSED: Mapping[str, str] = {
    "restartPolicy": "is always Never: a new attempt gets a new pod",
    "automountServiceAccountToken": "is always false: a runner has no Kubernetes credentials; a tool that "
    "needs some gets them from a Secret, or from a projected token with an audience of its own",
    "enableServiceLinks": "is always false: variables of services would mix with the runner's settings",
    "hostNetwork": "is not allowed: a runner shares nothing with its node",
    "hostPID": "is not allowed: a runner shares nothing with its node",
    "hostIPC": "is not allowed: a runner shares nothing with its node",
    "hostUsers": "is not allowed: it is the cluster's to decide",
    "shareProcessNamespace": "is not allowed: a sidecar could read the runner's secrets",
    "activeDeadlineSeconds": "is not allowed: set spec.completionDeadlineSeconds, which counts over all pods",
    "terminationGracePeriodSeconds": "has a field of its own: set spec.terminationGracePeriodSeconds",
    "nodeName": "is not allowed, for it goes past the scheduler: use nodeSelector or affinity",
    "priority": "is not allowed: set priorityClassName",
    "preemptionPolicy": "is not allowed: it comes with priorityClassName",
    "ephemeralContainers": "is not allowed: `kubectl debug` adds them to a running pod",
    "hostname": "is not allowed: pods are named by run and attempt",
    "subdomain": "is not allowed: pods are named by run and attempt",
}
"""Why, and what would be right."""

VOLUMES = frozenset(
    [
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    ]
)
"""Kinds of volumes that the restricted Pod Security standard allows (an image is read-only)."""

RESERVED_PREFIXES = (
    "agentrun.dev/",
    "argocd.argoproj.io/",
    "kubectl.kubernetes.io/",
    "kopf.dev/",
    "kopf.zalando.org/",
)
RESERVED_KEYS = frozenset({LABEL_NAME, LABEL_MANAGED_BY, "app.kubernetes.io/instance"})
_LOST_NODE_TAINTS = ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready")
TOLERATION_SECONDS_MAX = 600
_ROOT = ("spec", "podTemplate")


def check_template(template: PodTemplate | None) -> list[Problem]:
    """What is wrong with a template; nothing for one that may be used, or for none."""
    if template is None:
        return []
    found = [*_metadata(template), *(_spec(template.spec) if template.spec else ())]
    return [Problem(format_path((*_ROOT, *path)), message) for path, message in found]


def _metadata(template: PodTemplate) -> Iterator[Found]:
    parts = {"labels": template.metadata.labels, "annotations": template.metadata.annotations}
    for part, entries in parts.items():
        for key, value in entries.items():
            path = ("metadata", part, key)
            if key in RESERVED_KEYS or key.startswith(RESERVED_PREFIXES):
                yield (
                    path,
                    "is reserved: the operator sets it, or another controller would take the pod for its own",
                )
            elif (key, value) in ((SAFE_TO_EVICT, "false"), ("karpenter.sh/do-not-disrupt", "true")):
                yield (
                    path,
                    "is not allowed: a run goes on elsewhere, and never keeps a node from being drained",
                )
            elif key == SAFE_TO_EVICT and value != "true":
                yield path, f"must be 'true', not {show(value)}"


def _spec(spec: Mapping[str, Any]) -> Iterator[Found]:
    known: dict[str, Any] = {}
    for field, value in spec.items():
        path = ("spec", field)
        if value is None:
            continue
        if field in FIELDS:
            if isinstance(value, FIELDS[field]):
                known[field] = value
            else:
                yield path, f"must be {_KINDS[FIELDS[field]]}, not {show(value)}"
        elif field not in SAME_AS_OURS or value != SAME_AS_OURS[field] or type(value) is int:
            yield path, REFUSED.get(field) or _unknown(field)
    yield from _accounts(known)
    yield from _tolerations(known.get("tolerations", ()))
    yield from security_problems(("spec", "securityContext"), known.get("securityContext", {}), of_pod=True)
    yield from _volumes(known.get("volumes", ()))
    yield from container_problems(known.get("containers", ()), known.get("initContainers", ()))


_KINDS: Mapping[type, str] = {dict: "a mapping", list: "a list", str: "text"}


def _unknown(field: str) -> str:
    near = difflib.get_close_matches(field, FIELDS, n=1)
    if near:
        return f"is not allowed; did you mean '{near[0]}'?"
    return f"is not allowed; a template may have: {', '.join(FIELDS)}"


def _accounts(spec: Mapping[str, Any]) -> Iterator[Found]:
    new, old = spec.get("serviceAccountName"), spec.get("serviceAccount")
    if new and old and new != old:
        yield (
            ("spec", "serviceAccount"),
            f"must be the same as serviceAccountName ({show(new)}), not {show(old)}; leave it out, it is "
            "the old name of that field",
        )


def _tolerations(tolerations: list[Any] | tuple[()]) -> Iterator[Found]:
    for index, toleration in enumerate(tolerations):
        path = ("spec", "tolerations", index)
        if not isinstance(toleration, dict):
            yield path, f"must be a mapping, not {show(toleration)}"
        elif toleration.get("key") in _LOST_NODE_TAINTS and toleration.get("effect") in (
            None,
            "",
            "NoExecute",
        ):
            seconds = toleration.get("tolerationSeconds")
            if type(seconds) is not int or not 0 <= seconds <= TOLERATION_SECONDS_MAX:
                yield (
                    (*path, "tolerationSeconds"),
                    f"must be a number from 0 to {TOLERATION_SECONDS_MAX}: no run waits for a lost node",
                )


def _volumes(volumes: list[Any] | tuple[()]) -> Iterator[Found]:
    names: set[str] = set()
    for index, volume in enumerate(volumes):
        path = ("spec", "volumes", index)
        if not isinstance(volume, dict) or not isinstance(volume.get("name"), str):
            yield path, "must be a mapping with a name"
            continue
        name = volume["name"]
        if name.startswith(RESERVED_VOLUME_PREFIX):
            yield (*path, "name"), f"must not begin with {RESERVED_VOLUME_PREFIX}, which is the operator's"
        if name in names:
            yield (*path, "name"), f"{show(name)} is the name of another volume already"
        names.add(name)
        for kind in sorted(key for key in volume if key != "name" and volume[key] is not None):
            if kind not in VOLUMES:
                yield (
                    (*path, kind),
                    f"is not allowed: a runner's volumes may be {', '.join(sorted(VOLUMES))}",
                )
        yield from _tokens((*path, "projected", "sources"), volume.get("projected"))


def _tokens(path: tuple[str | int, ...], projected: Any) -> Iterator[Found]:
    sources = projected.get("sources") if isinstance(projected, dict) else None
    for index, source in enumerate(sources if isinstance(sources, list) else ()):
        token = source.get("serviceAccountToken") if isinstance(source, dict) else None
        if isinstance(token, dict) and not token.get("audience"):
            yield (
                (*path, index, "serviceAccountToken", "audience"),
                "is required: without one the token is for the Kubernetes API, and a runner has no "
                "Kubernetes credentials",
            )
