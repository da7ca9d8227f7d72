"""An admission webhook for the pods of one namespace, in a pod of it.

hook = Webhook(kube, tmp_path)
hook.start()
with hook.configured("/deny"):
    ...
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.cluster.kube import Kubectl, Object
from tests.e2e.cluster.objects import RUNNER_IMAGE, restricted_container, restricted_pod
from tests.e2e.cluster.webhook_server import CERTIFICATE
from tests.support.api_proxy import make_certificate

NAME = "webhook"
PORT = 8443
SERVER = Path(__file__).with_name("webhook_server.py")
NOBODY = "https://127.0.0.1:1"
WHAT = "MutatingWebhookConfiguration"


class Webhook:
    """See the module's docstring."""

    def __init__(self, kube: Kubectl, folder: Path) -> None:
        self._kube = kube
        self._folder = folder
        self._url = ""
        self._ca = b""

    def start(self) -> None:
        """Returns when it serves."""
        container = restricted_container(
            NAME,
            RUNNER_IMAGE,
            command=["python", f"/webhook/{SERVER.name}", str(PORT)],
            volumeMounts=[{"name": NAME, "mountPath": "/webhook"}],
            readinessProbe={"tcpSocket": {"port": PORT}, "periodSeconds": 1, "failureThreshold": 60},
        )
        volumes = [{"name": NAME, "configMap": {"name": NAME}}]
        config = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": NAME}}
        self._kube.apply(
            config | {"data": {SERVER.name: SERVER.read_text()}},
            restricted_pod(NAME, [container], volumes=volumes, terminationGracePeriodSeconds=0),
        )
        pod = self._kube.wait_for("pod", NAME, lambda pod: pod["status"].get("phase") == "Running")
        address = pod["status"]["podIP"]
        crt, key = self._folder / "webhook.crt", self._folder / "webhook.key"
        make_certificate(crt, key, address)
        write = f"import sys; open('{CERTIFICATE}.new', 'w').write(sys.stdin.read())"
        rename = f"import os; os.rename('{CERTIFICATE}.new', '{CERTIFICATE}')"
        pem = crt.read_text() + key.read_text()
        self._kube("exec", "-i", NAME, "--", "python", "-c", f"{write}; {rename}", stdin=pem)
        self._kube("wait", "--for=condition=Ready", f"pod/{NAME}", "--timeout=60s", seconds=70)
        self._url, self._ca = f"https://{address}:{PORT}", crt.read_bytes()

    @contextmanager
    def configured(self, path: str) -> Iterator[None]:
        """Runner pods of the namespace go by it; before `start`, by one that is not there."""
        name = self._kube.namespace
        try:
            self._kube.apply(self._configuration(name, path))
            yield
        finally:
            self._kube.delete(WHAT, name)

    def change(self, path: str) -> None:
        """Within `configured`: it is asked there from now on."""
        self._kube.apply(self._configuration(self._kube.namespace, path))

    def _configuration(self, name: str, path: str) -> Object:
        client: Object = {"url": (self._url or NOBODY) + path}
        if self._ca:
            client["caBundle"] = b64encode(self._ca).decode()
        hook = {
            "name": "hook.example.test",
            "clientConfig": client,
            "failurePolicy": "Fail",
            "timeoutSeconds": 2,
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
            "objectSelector": {"matchExpressions": [{"key": "agentrun.dev/run", "operator": "Exists"}]},
            "rules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
            ],
        }
        api = "admissionregistration.k8s.io/v1"
        return {"apiVersion": api, "kind": WHAT, "metadata": {"name": name}, "webhooks": [hook]}

    def counts(self) -> dict[str, int]:
        """How often each path was asked."""
        path = f"/api/v1/namespaces/{self._kube.namespace}/pods/https:{NAME}:{PORT}/proxy/counts"
        found: dict[str, int] = json.loads(self._kube.raw(path))
        return found
