"""Objects that several tests make. Pods are restricted ones, as runner pods are."""

from __future__ import annotations

import os
from typing import Any

from tests.e2e.cluster.kube import Object

RUNNER_IMAGE = os.environ.get("AGENTRUN_TEST_RUNNER_IMAGE", "agentrun-runner:dev")
POSTGRES_IMAGE = "postgres:17"


def restricted_container(name: str, image: str, **more: Any) -> Object:
    """A container that a restricted namespace admits, and that writes to no disk."""
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        **more,
    }


def restricted_pod(
    name: str,
    containers: list[Object],
    *,
    labels: dict[str, str] | None = None,
    user: int = 65532,
    **spec: Any,
) -> Object:
    """A pod of such containers."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": user,
                "runAsGroup": user,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": containers,
            **spec,
        },
    }


def postgres_objects(name: str, password: str) -> list[Object]:
    """A Postgres whose data goes with its pod, and its service."""
    container = restricted_container(
        name,
        POSTGRES_IMAGE,
        env=[
            {"name": "POSTGRES_USER", "value": "agentrun"},
            {"name": "POSTGRES_PASSWORD", "value": password},
            {"name": "POSTGRES_DB", "value": "agentrun"},
            {"name": "PGDATA", "value": "/var/lib/postgresql/data/pg"},
        ],
        ports=[{"containerPort": 5432}],
        volumeMounts=[
            {"name": "data", "mountPath": "/var/lib/postgresql/data"},
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "run", "mountPath": "/var/run/postgresql"},
        ],
        readinessProbe={
            "exec": {"command": ["pg_isready", "-h", "127.0.0.1", "-U", "agentrun"]},
            "periodSeconds": 1,
        },
    )
    pod = restricted_pod(
        name,
        [container],
        labels={"app": name},
        user=999,
        restartPolicy="Always",
        volumes=[{"name": volume, "emptyDir": {}} for volume in ("data", "tmp", "run")],
        terminationGracePeriodSeconds=5,
    )
    pod["spec"]["securityContext"]["fsGroup"] = 999
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": [{"port": 5432}]},
    }
    return [pod, service]
