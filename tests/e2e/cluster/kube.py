"""kubectl with bounds, and waiting for what a cluster does in its own time.

    kube = Kubectl("my-namespace")
    kube.apply({...})
    kube.wait_for("pod", "web", lambda pod: pod["status"]["phase"] == "Running", seconds=30)

The cluster is that of KUBECONFIG. Nothing here waits for ever.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

COMMAND_SECONDS_MAX = 60.0

Object = dict[str, Any]


class KubeError(Exception):
    """kubectl said no. `message` is what it said."""

    def __init__(self, command: str, message: str) -> None:
        super().__init__(f"kubectl {command}: {message}")
        self.message = message


class Kubectl:
    """Commands in one namespace ("" for objects that are in none)."""

    def __init__(self, namespace: str = "") -> None:
        self.namespace = namespace

    def within(self, namespace: str) -> Kubectl:
        """The same in another one."""
        return Kubectl(namespace)

    def __call__(self, *args: str, stdin: str | None = None, seconds: float = COMMAND_SECONDS_MAX) -> str:
        """What the command prints. Raises KubeError."""
        where = ["-n", self.namespace] if self.namespace else []
        done = subprocess.run(
            ["kubectl", "--request-timeout=30s", *where, *args],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        if done.returncode != 0:
            raise KubeError(" ".join(args)[:200], done.stderr.strip() or done.stdout.strip())
        return done.stdout

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """kubectl apply."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [dict(each) for each in objects]})
        self("apply", "-f", "-", stdin=text)

    def create(self, obj: Mapping[str, Any]) -> Object:
        """kubectl create; the object as the server has it."""
        made: Object = json.loads(self("create", "-o", "json", "-f", "-", stdin=json.dumps(dict(obj))))
        return made

    def get(self, kind: str, name: str) -> Object | None:
        """The object, or None."""
        try:
            found: Object = json.loads(self("get", kind, name, "-o", "json"))
        except KubeError as error:
            if "(NotFound)" in error.message:
                return None
            raise
        return found

    def list(self, kind: str, selector: str = "") -> list[Object]:
        """The objects."""
        args = ["-l", selector] if selector else []
        found: list[Object] = json.loads(self("get", kind, *args, "-o", "json"))["items"]
        return found

    def patch(self, kind: str, name: str, change: Mapping[str, Any]) -> None:
        """A merge patch."""
        self("patch", kind, name, "--type=merge", "-p", json.dumps(dict(change)))

    def delete(self, kind: str, name: str, *args: str, seconds: float = COMMAND_SECONDS_MAX) -> None:
        """Deletes, and waits until it is gone unless `--wait=false` is among the arguments."""
        self("delete", kind, name, "--ignore-not-found", *args, seconds=seconds)

    def logs(self, pod: str, container: str = "") -> str:
        """All that it wrote."""
        return self("logs", pod, *(["-c", container] if container else []))

    def wait_for(
        self, kind: str, name: str, condition: Callable[[Object], Any], *, seconds: float = 60.0
    ) -> Object:
        """The object as soon as the condition holds; the assertion shows its status if it never does."""
        found: Object | None = None

        def holds() -> bool:
            nonlocal found
            found = self.get(kind, name)
            return found is not None and bool(condition(found))

        def shown() -> str:
            return f"{kind} {name}: " + json.dumps((found or {}).get("status"), indent=1)

        wait_until(holds, seconds=seconds, shown=shown)
        assert found is not None
        return found

    def wait_gone(self, kind: str, name: str, *, seconds: float = 60.0) -> None:
        """Until there is no such object."""
        wait_until(lambda: self.get(kind, name) is None, seconds=seconds, shown=lambda: f"{kind} {name}")

    def raw(self, path: str, *, seconds: float = COMMAND_SECONDS_MAX) -> str:
        """What the API server says at a path; through it services are reached too."""
        return self("get", "--raw", path, seconds=seconds)

    @contextmanager
    def port_forward(self, target: str, port: int) -> Iterator[int]:
        """A port of this machine's loopback that leads to a pod or a service (svc/NAME)."""
        process = subprocess.Popen(
            ["kubectl", "-n", self.namespace, "port-forward", target, f":{port}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"127\.0\.0\.1:([0-9]+)", line)
            assert found, f"kubectl port-forward {target}: {line}"
            yield int(found[1])
        finally:
            process.kill()
            process.communicate()


def wait_until(
    condition: Callable[[], Any], *, seconds: float, shown: Callable[[], str] = lambda: "", every: float = 0.3
) -> None:
    """Until the condition holds; `shown` says how things stand if it never does."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not so after {seconds} s: {shown()}"
        time.sleep(every)


def condition(obj: Object, kind: str) -> Object:
    """One of an object's conditions; empty where it has none of that type."""
    found: list[Object] = obj.get("status", {}).get("conditions", [])
    return next((each for each in found if each["type"] == kind), {})
