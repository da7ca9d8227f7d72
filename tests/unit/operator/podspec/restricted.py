"""The restricted Pod Security standard, as a list of what a pod has that it does not allow.

Written from the standard's own table, for the pods that the operator makes: a pod that this
finds nothing in is admitted where a namespace enforces `restricted`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

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
SELINUX = frozenset(["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"])
PROFILES = frozenset(["RuntimeDefault", "Localhost"])


def violations(spec: Mapping[str, Any]) -> list[str]:
    """What is wrong; []: it is restricted."""
    return list(_pod(spec)) + [
        f"{container['name']}: {problem}"
        for field in ("initContainers", "containers")
        for container in spec.get(field, [])
        for problem in _container(container, spec.get("securityContext", {}))
    ]


def _pod(spec: Mapping[str, Any]) -> Iterator[str]:
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(field):
            yield field
    if spec.get("securityContext", {}).get("sysctls"):
        yield "sysctls"
    for volume in spec.get("volumes", []):
        if not (volume.keys() - {"name"}) <= VOLUMES:
            yield f"volume {volume['name']}"


def _container(container: Mapping[str, Any], pod: Mapping[str, Any]) -> Iterator[str]:
    own = container.get("securityContext", {})
    effective = {**pod, **own}
    if own.get("privileged"):
        yield "privileged"
    if own.get("allowPrivilegeEscalation") is not False:
        yield "allowPrivilegeEscalation"
    capabilities = own.get("capabilities", {})
    if "ALL" not in capabilities.get("drop", []) or set(capabilities.get("add", [])) - {"NET_BIND_SERVICE"}:
        yield "capabilities"
    if effective.get("runAsNonRoot") is not True:
        yield "runAsNonRoot"
    if 0 in (own.get("runAsUser"), pod.get("runAsUser")):
        yield "runAsUser"
    if effective.get("seccompProfile", {}).get("type") not in PROFILES:
        yield "seccompProfile"
    if effective.get("appArmorProfile", {}).get("type", "RuntimeDefault") not in PROFILES:
        yield "appArmorProfile"
    selinux = effective.get("seLinuxOptions", {})
    if selinux.get("type", "") not in SELINUX or selinux.get("user") or selinux.get("role"):
        yield "seLinuxOptions"
    if own.get("procMount", "Default") != "Default":
        yield "procMount"
    if any(port.get("hostPort") for port in container.get("ports", [])):
        yield "hostPort"
