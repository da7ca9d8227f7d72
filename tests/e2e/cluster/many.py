"""Many AgentRuns applied at once: what `test_many` here and the one in tests/e2e/slow do."""

from __future__ import annotations

import time
from collections import Counter

from tests.e2e.cluster.kube import Kubectl, wait_until
from tests.e2e.cluster.runs import agentrun
from tests.integration.pod.pods import agent, call, tool

SECONDS_FIRST, SECONDS_EACH = 60, 4
"""Bounds: a machine of two cores starts a pod a second at best."""

APPLIED_AT_ONCE = 100
PHASES = 'jsonpath={range .items[*]}{.status.phase} {.status.reason}{"\\n"}{end}'


def all_end_well(kube: Kubectl, runs: int) -> float:
    """Seconds from the first `kubectl apply` until all have ended."""
    turns = [{"toolCalls": [call("word_count", text="one of many")]}, {"text": "Three."}]
    spec = agent(*turns, tools=[tool("word_count", "agentrun.tools.demo:word_count")])
    began = time.monotonic()
    for first in range(0, runs, APPLIED_AT_ONCE):
        last = min(first + APPLIED_AT_ONCE, runs)
        kube.apply(*(agentrun(f"run-{number}", spec) for number in range(first, last)))

    def phases() -> Counter[str]:
        found = Counter(kube("get", "agentruns", "-o", PHASES).splitlines())
        assert not [line for line in found if line.startswith(("Failed", "Cancelled"))], found
        return found

    wait_until(
        lambda: phases()["Succeeded Completed"] == runs,
        seconds=SECONDS_FIRST + SECONDS_EACH * runs,
        shown=lambda: str(phases()),
        every=2,
    )
    took = time.monotonic() - began
    for run in kube.list("agentruns"):
        status, name = run["status"], run["metadata"]["name"]
        assert (status["attempt"], status.get("failures", 0), status["disruptions"]) == (1, 0, 0), name
        assert status["result"]["preview"] == "Three."
    wait_until(lambda: not kube.list("pods"), seconds=60, shown=lambda: str(len(kube.list("pods"))))
    return took
