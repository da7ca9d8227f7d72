"""What containers of a pod template may have: the runner's own, sidecars, init containers.

Used by `podspec_check`. Invariant: nothing here loosens what the restricted Pod
Security standard asks, and nothing changes how the runner is started, told to
stop, or finds its settings.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from typing import Any

from agentrun.spec.errors import Path, show
from agentrun_operator.podspec_names import RUNNER_CONTAINER, SCRATCH_DIR

Found = tuple[Path, str]

RUNNER_FIELDS = frozenset(
    ["name", "image", "imagePullPolicy", "env", "envFrom", "resources", "securityContext", "volumeMounts"]
)
SIDECAR_FIELDS = RUNNER_FIELDS | frozenset(
    [
        "command",
        "args",
        "workingDir",
        "ports",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle",
        "resizePolicy",
        "terminationMessagePath",
        "terminationMessagePolicy",
    ]
)
RUNNER_REFUSED: Mapping[str, str] = {
    "command": "is not allowed: the image's entry point is the runner; name your code by spec.program or a "
    "tool's python.entrypoint, in an image of your own",
    "args": "is not allowed: the runner takes its settings from the environment",
    "lifecycle": "is not allowed: a preStop hook would eat the time that steps have to finish",
    "livenessProbe": "is not allowed: a runner that is stuck is found by its log, and replaced",
    "readinessProbe": "is not allowed: nothing sends requests to a runner",
    "startupProbe": "is not allowed: nothing waits for a runner to be ready",
    "ports": "is not allowed: nothing sends requests to a runner",
}
POD_SECURITY = frozenset(
    [
        "appArmorProfile",
        "fsGroup",
        "fsGroupChangePolicy",
        "runAsGroup",
        "runAsNonRoot",
        "runAsUser",
        "seLinuxOptions",
        "seccompProfile",
        "supplementalGroups",
        "supplementalGroupsPolicy",
    ]
)
CONTAINER_SECURITY = frozenset(
    [
        "allowPrivilegeEscalation",
        "appArmorProfile",
        "capabilities",
        "privileged",
        "readOnlyRootFilesystem",
        "runAsGroup",
        "runAsNonRoot",
        "runAsUser",
        "seLinuxOptions",
        "seccompProfile",
    ]
)
RESERVED_VARIABLES = "AGENTRUN_"
RESERVED_FOLDERS = ("/etc/agentrun", SCRATCH_DIR, "/proc", "/sys")
"""No mount at, below or above these (above would hide them)."""


def container_problems(containers: Any, init_containers: Any) -> Iterator[Found]:
    """Problems of all containers of a template."""
    names: set[str] = set()
    for field, entries in (("containers", containers), ("initContainers", init_containers)):
        for index, container in enumerate(entries):
            path: Path = ("spec", field, index)
            if not isinstance(container, dict) or not isinstance(container.get("name"), str):
                yield path, "must be a mapping with a name"
                continue
            present = {key: value for key, value in container.items() if value is not None}
            name = present["name"]
            is_init = field == "initContainers"
            if name in names or (is_init and name == RUNNER_CONTAINER):
                yield (*path, "name"), f"{show(name)} is the name of another container already"
            names.add(name)
            yield from _container(path, present, is_runner=name == RUNNER_CONTAINER, is_init=is_init)


def _container(path: Path, container: dict[str, Any], *, is_runner: bool, is_init: bool) -> Iterator[Found]:
    allowed = RUNNER_FIELDS if is_runner else SIDECAR_FIELDS
    for field, value in container.items():
        if field == "restartPolicy" and is_init and value == "Always":
            continue  # a native sidecar
        if field not in allowed:
            yield (*path, field), _refused_field(field, allowed, is_runner=is_runner)
    for field, kind in (
        ("securityContext", dict),
        ("resources", dict),
        ("env", list),
        ("volumeMounts", list),
    ):
        value = container.get(field)
        if value is not None and not isinstance(value, kind):
            wanted = "a mapping" if kind is dict else "a list"
            yield (*path, field), f"must be {wanted}, not {show(value)}"
            return
    security = container.get("securityContext", {})
    yield from security_problems((*path, "securityContext"), security, of_pod=False)
    yield from _mounts((*path, "volumeMounts"), container.get("volumeMounts", []), is_runner=is_runner)
    if is_runner:
        yield from _variables((*path, "env"), container.get("env", []))
        yield from _resources((*path, "resources"), container.get("resources", {}))
        if security.get("readOnlyRootFilesystem") is False:
            yield (
                (*path, "securityContext", "readOnlyRootFilesystem"),
                f"is always true: write to {SCRATCH_DIR}",
            )
    else:
        yield from _ports((*path, "ports"), container.get("ports"))


def _refused_field(field: str, allowed: frozenset[str], *, is_runner: bool) -> str:
    if is_runner and field in RUNNER_REFUSED:
        return RUNNER_REFUSED[field]
    if field == "restartPolicy":
        return "is allowed for init containers only, as Always: that makes a sidecar of one"
    whose = "the runner's container" if is_runner else "a container"
    return f"is not allowed; {whose} may have: {', '.join(sorted(allowed))}"


def security_problems(path: Path, context: dict[str, Any], *, of_pod: bool) -> Iterator[Found]:
    """What a security context may not say. It is merged over the operator's, and replaces none."""
    allowed = POD_SECURITY if of_pod else CONTAINER_SECURITY
    for field, value in context.items():
        if value is not None and field not in allowed:
            yield (*path, field), f"is not allowed; known are: {', '.join(sorted(allowed))}"
    if context.get("privileged"):
        yield (*path, "privileged"), "is not allowed: runner pods are restricted"
    if context.get("allowPrivilegeEscalation"):
        yield (*path, "allowPrivilegeEscalation"), "is always false: runner pods are restricted"
    if context.get("runAsNonRoot") is False:
        yield (*path, "runAsNonRoot"), "is always true: runner pods are restricted"
    user = context.get("runAsUser")
    if user is not None and (type(user) is not int or user < 1):
        yield (*path, "runAsUser"), f"must be the number of a user that is not root, not {show(user)}"
    for field in ("seccompProfile", "appArmorProfile"):
        profile = context.get(field)
        if isinstance(profile, dict) and profile.get("type") == "Unconfined":
            yield (*path, field, "type"), "must not be Unconfined: runner pods are restricted"
    capabilities = context.get("capabilities")
    if isinstance(capabilities, dict):
        added = capabilities.get("add") or []
        if not isinstance(added, list) or set(map(str, added)) - {"NET_BIND_SERVICE"}:
            yield (*path, "capabilities", "add"), "may hold NET_BIND_SERVICE only: runner pods are restricted"
        dropped = capabilities.get("drop")
        if dropped is not None and (not isinstance(dropped, list) or "ALL" not in dropped):
            yield (*path, "capabilities", "drop"), "must hold ALL: runner pods are restricted"


def _variables(path: Path, env: list[Any]) -> Iterator[Found]:
    names: set[str] = set()
    for index, entry in enumerate(env):
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str):
            yield (*path, index), "must be a mapping with a name"
        elif name.upper().startswith(RESERVED_VARIABLES):
            yield (*path, index, "name"), f"must not begin with {RESERVED_VARIABLES}: the operator sets those"
        elif name in names:
            yield (*path, index, "name"), f"{show(name)} is set twice"
        else:
            names.add(name)


def _resources(path: Path, resources: dict[str, Any]) -> Iterator[Found]:
    for field, amounts in resources.items():
        if field not in ("requests", "limits"):
            yield (*path, field), "is not allowed; known are: requests, limits"
        elif amounts is not None and not isinstance(amounts, dict):
            yield (*path, field), f"must be a mapping, not {show(amounts)}"


def _mounts(path: Path, mounts: list[Any], *, is_runner: bool) -> Iterator[Found]:
    seen: set[str] = set()
    for index, mount in enumerate(mounts):
        below = (*path, index)
        folder = mount.get("mountPath") if isinstance(mount, dict) else None
        if not isinstance(folder, str) or not isinstance(mount.get("name"), str):
            yield below, "must be a mapping with name and mountPath"
            continue
        if mount.get("mountPropagation") == "Bidirectional":
            yield (
                (*below, "mountPropagation"),
                "must not be Bidirectional, which is for privileged containers",
            )
        if not is_runner:
            continue
        clean = posixpath.normpath(folder)
        if not folder.startswith("/") or ".." in folder.split("/"):
            yield (*below, "mountPath"), f"must be an absolute path without '..', not {show(folder)}"
        elif any(_overlap(clean.lstrip("/"), reserved.lstrip("/")) for reserved in RESERVED_FOLDERS):
            yield (
                (*below, "mountPath"),
                f"must not cover {', '.join(RESERVED_FOLDERS)}, which the runner uses",
            )
        elif clean in seen:
            yield (*below, "mountPath"), f"{show(folder)} is mounted twice"
        seen.add(clean)


def _overlap(one: str, other: str) -> bool:
    a, b = (one.split("/") if one else []), other.split("/")
    shared = min(len(a), len(b))
    return a[:shared] == b[:shared]


def _ports(path: Path, ports: Any) -> Iterator[Found]:
    for index, port in enumerate(ports if isinstance(ports, list) else ()):
        if isinstance(port, dict) and port.get("hostPort"):
            yield (*path, index, "hostPort"), "is not allowed: a runner shares nothing with its node"
