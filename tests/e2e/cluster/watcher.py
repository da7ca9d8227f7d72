"""What runs and their pods looked like in between: a thread that looks again and again.

    with Watcher(kube) as watcher:
        ...
    assert "Failed" not in watcher.phases("web")

`check` is called with each look, and what it raises is raised again at the end.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from types import TracebackType

from tests.e2e.cluster.kube import Kubectl, KubeError, Object

Check = Callable[[list[Object]], None]


class Watcher:
    """See the module's docstring."""

    def __init__(self, kube: Kubectl, check: Check | None = None, *, every: float = 0.4) -> None:
        self._kube = kube
        self._check = check
        self._every = every
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._phases: dict[str, list[str]] = defaultdict(list)
        self._pods: dict[str, set[str]] = defaultdict(set)
        self._broken: list[AssertionError] = []
        self.looks = 0

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join(40)
        if kind is None:
            if self._broken:
                raise self._broken[0]
            assert self.looks > 2, "the watcher saw next to nothing"

    def phases(self, run: str) -> list[str]:
        """The phases of a run in order, each change once."""
        return self._phases[run]

    def pods(self, run: str) -> set[str]:
        """All pods of the run that were seen."""
        return self._pods[run]

    def _watch(self) -> None:
        while not self._over.wait(self._every):
            try:
                found = self._kube.list("pods,agentruns")
            except KubeError:
                continue  # the API server is busy, or the namespace goes
            runs = [each for each in found if each["kind"] == "AgentRun"]
            pods = [each for each in found if each["kind"] == "Pod" and "agentrun.dev/run" in labels(each)]
            try:
                self._look(pods, runs)
            except AssertionError as error:
                self._broken.append(error)
                return

    def _look(self, pods: list[Object], runs: list[Object]) -> None:
        self.looks += 1
        for run in runs:
            seen = self._phases[run["metadata"]["name"]]
            phase = run.get("status", {}).get("phase", "")
            if seen[-1:] != [phase]:
                seen.append(phase)
        for pod in pods:
            self._pods[run_of(pod)].add(pod["metadata"]["name"])
        if self._check is not None:
            self._check(pods)


def labels(obj: Object) -> dict[str, str]:
    """An object's."""
    found: dict[str, str] = obj["metadata"].get("labels", {})
    return found


def run_of(pod: Object) -> str:
    """The name of a runner pod's run."""
    return labels(pod)["agentrun.dev/run"]


def runner_lives(pod: Object) -> bool:
    """Its runner has not ended, as far as the cluster knows."""
    if pod["status"].get("phase") in ("Succeeded", "Failed"):
        return False
    return "terminated" not in runner_state(pod)


def runner_state(pod: Object) -> Object:
    """The state of its runner's container, as the kubelet tells it; empty before it is known."""
    states = {each["name"]: each["state"] for each in pod["status"].get("containerStatuses", [])}
    found: Object = states.get("runner", {})
    return found


def called_off(pod: Object) -> bool:
    """It goes before its runner has begun: its attempt is over, and cannot be claimed any more."""
    return "deletionTimestamp" in pod["metadata"] and "running" not in runner_state(pod)


def one_pod_a_run(pods: list[Object]) -> None:
    """Never two whose runners live, or may come to live."""
    alive = [run_of(pod) for pod in pods if runner_lives(pod) and not called_off(pod)]
    twice = {name for name in alive if alive.count(name) > 1}
    shown = [(pod["metadata"], pod["status"]) for pod in pods if run_of(pod) in twice]
    assert not twice, f"two pods at once: {shown}"
