"""An operator that runs on this machine, for one namespace, behind a proxy that can be told to misbehave.

    with own_operator(kube, tmp_path, AGENTRUN_SWEEP_SECONDS="10") as own:
        own.proxy.freeze()
        assert own.health() == (200, "ok\\n")

It is the checked-out code as a process of its own, of an installation of its own, with the rights
that the chart gives in a namespace and no others. The deployed one is away meanwhile.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tests.e2e.cluster.kube import Kubectl, Object, wait_until
from tests.e2e.cluster.machinery import OPERATOR, SYSTEM, operator_scaled
from tests.e2e.cluster.objects import RUNNER_IMAGE
from tests.support.api_proxy import ApiProxy, free_port

ACCOUNT = "own-operator"
START_SECONDS = 30
END_SECONDS = 30


@dataclass
class OwnOperator:
    """See the module's docstring."""

    proxy: ApiProxy
    environ: dict[str, str]
    log: Path
    _process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when it watches, and has swept."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "agentrun_operator.cli"],
                env=self.environ,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

        def ready() -> bool:
            assert self.ended() is None, self.log.read_text()[-3000:]
            return self.is_watching() and self.ask("/readyz")[0] == 200

        wait_until(ready, seconds=START_SECONDS, shown=lambda: self.log.read_text()[-3000:])

    def is_watching(self) -> bool:
        """Both of its watches are open."""
        return set(self.proxy.watched()) >= {"agentruns", "pods"}

    def ended(self) -> int | None:
        """Its exit code; None: it lives."""
        assert self._process is not None
        return self._process.poll()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """As the kubelet does."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)
            self._process.wait(END_SECONDS)

    def ask(self, path: str) -> tuple[int, str]:
        """The code and the text of what it serves at /healthz, /readyz or /metrics; 0: no answer."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.environ['AGENTRUN_HTTP_PORT']}{path}", timeout=10
            ) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""


@contextmanager
def own_operator(kube: Kubectl, folder: Path, **environ: str) -> Iterator[OwnOperator]:
    """One for the namespace of `kube`, which has the runners' Secret already; with these settings."""
    (cluster,) = json.loads(kube("config", "view", "--raw", "--minify", "-o", "json"))["clusters"]
    secret = kube.within(SYSTEM).get("secret", f"{OPERATOR}-operator-store")
    assert secret is not None
    url = urlsplit(b64decode(secret["data"]["url"]).decode())
    assert url.hostname is not None
    service, namespace = url.hostname.split(".")[:2]
    give_rights(kube)
    token = kube("create", "token", ACCOUNT, "--duration=1h").strip()
    ca = b64decode(cluster["cluster"]["certificate-authority-data"])
    store = Kubectl(namespace).port_forward(f"svc/{service}", url.port or 5432)
    proxied = ApiProxy(cluster["cluster"]["server"], ca, folder)
    with operator_scaled(0), store as port, proxied as proxy:
        user = url.netloc.rpartition("@")[0]
        own = OwnOperator(
            proxy=proxy,
            log=folder / "operator.log",
            environ={
                **{name: value for name, value in os.environ.items() if not name.startswith("KUBERNETES_")},
                "KUBECONFIG": str(proxy.kubeconfig(token, kube.namespace)),
                "AGENTRUN_DATABASE_URL": url._replace(netloc=f"{user}@127.0.0.1:{port}").geturl(),
                "AGENTRUN_INSTALLATION": kube.namespace,
                "AGENTRUN_NAMESPACES": kube.namespace,
                "AGENTRUN_RUNNER_IMAGE": RUNNER_IMAGE,
                "AGENTRUN_HTTP_PORT": str(free_port()),
                "AGENTRUN_REQUEST_TIMEOUT_SECONDS": "5",
                **environ,
            },
        )
        try:
            own.start()
            yield own
        except BaseException:
            print(f"--- the operator's log\n{own.log.read_text()[-8000:]}")
            raise
        finally:
            own.stop()


def give_rights(kube: Kubectl, pods: list[str] | None = None) -> None:
    """What the chart gives the operator in each namespace; `pods`: the verbs on pods instead."""
    chart = kube.get("clusterrole", f"{SYSTEM}-{OPERATOR}")
    assert chart is not None
    rules: list[Object] = chart["rules"]
    if pods is not None:
        rules = [rule | {"verbs": pods} if rule["resources"] == ["pods"] else rule for rule in rules]
    api = "rbac.authorization.k8s.io"
    named = {"metadata": {"name": ACCOUNT}}
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": kube.namespace}
    kube.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", **named},
        {"apiVersion": f"{api}/v1", "kind": "Role", "rules": rules, **named},
        {
            "apiVersion": f"{api}/v1",
            "kind": "RoleBinding",
            "roleRef": {"apiGroup": api, "kind": "Role", "name": ACCOUNT},
            "subjects": [subject],
            **named,
        },
    )
