"""A tool server and a model provider inside the cluster, which count.

`Stubs` runs `stub_server.py` in a pod of the runner's image; the URLs are for pods,
what it counted comes back through the API server.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.e2e.cluster.kube import Kubectl
from tests.e2e.cluster.objects import RUNNER_IMAGE, restricted_container, restricted_pod

NAME = "stubs"
PORT = 8080
SERVER = Path(__file__).with_name("stub_server.py")


class Stubs:
    """One in a namespace. `start` it first."""

    def __init__(self, kube: Kubectl) -> None:
        self._kube = kube

    @property
    def model_url(self) -> str:
        """For a model's baseURL, as openai:NAME."""
        return f"http://{NAME}.{self._kube.namespace}.svc:{PORT}/v1"

    def tool_url(self, name: str, **query: Any) -> str:
        """For an HTTP tool. `seconds`: how long a call takes; `status`: what it answers; `gate`: what it
        waits for (`open`)."""
        text = "&".join(f"{key}={value}" for key, value in query.items())
        return f"http://{NAME}.{self._kube.namespace}.svc:{PORT}/tools/{name}" + (f"?{text}" if text else "")

    def start(self, node: str = "") -> None:
        """Returns when it serves; on a node that is named, if it matters."""
        container = restricted_container(
            NAME,
            RUNNER_IMAGE,
            command=["python", "/stub/stub_server.py"],
            volumeMounts=[{"name": "stub", "mountPath": "/stub"}],
            ports=[{"containerPort": PORT}],
            # Once it serves it stays: a busy machine is no reason to take its address away.
            readinessProbe={
                "httpGet": {"path": "/counts", "port": PORT},
                "periodSeconds": 1,
                "timeoutSeconds": 5,
                "failureThreshold": 30,
            },
        )
        pod = restricted_pod(
            NAME,
            [container],
            labels={"app": NAME},
            restartPolicy="Always",
            volumes=[{"name": "stub", "configMap": {"name": NAME}}],
            terminationGracePeriodSeconds=0,
        )
        if node:
            pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
        config = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": NAME}}
        service = {"kind": "Service", "apiVersion": "v1", "metadata": {"name": NAME}}
        self._kube.apply(
            config | {"data": {SERVER.name: SERVER.read_text()}},
            service | {"spec": {"selector": {"app": NAME}, "ports": [{"port": PORT}]}},
            pod,
        )
        self._kube("wait", "--for=condition=Ready", f"pod/{NAME}", "--timeout=60s", seconds=70)

    def script(self, *turns: Any) -> None:
        """The model's next answers: texts, lists of (tool, arguments), or HTTP statuses."""
        data = json.dumps([_turn(turn) for turn in turns])
        self._kube("exec", "-i", NAME, "--", "python", "/stub/stub_server.py", "post", "/script", stdin=data)

    def counts(self) -> dict[str, int]:
        """Calls by tool, and those of the model as "model"."""
        return {name: len(calls) for name, calls in self.calls().items()}

    def calls(self) -> dict[str, list[dict[str, Any]]]:
        """Each call with its idempotency key, its body, and when it came and was answered."""
        found: dict[str, list[dict[str, Any]]] = json.loads(self._get("/counts"))
        return found

    def open(self, gate: str) -> None:
        """Calls of tools with this gate go on."""
        self._get(f"/open/{gate}")

    def _get(self, path: str) -> str:
        return self._kube.raw(f"/api/v1/namespaces/{self._kube.namespace}/services/{NAME}:{PORT}/proxy{path}")


def _turn(turn: Any) -> dict[str, Any]:
    if isinstance(turn, str):
        return {"text": turn}
    if isinstance(turn, int):
        return {"status": turn}
    return {"calls": [[name, json.dumps(arguments)] for name, arguments in turn]}
