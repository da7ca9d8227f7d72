"""Many AgentRuns applied at once on a small cluster all end well."""

from __future__ import annotations

import os
import time

from tests.e2e.cluster.kube import Kubectl, wait_until
from tests.e2e.cluster.runs import agentrun
from tests.integration.pod.pods import agent, call, tool

RUNS = int(os.environ.get("AGENTRUN_TEST_MANY", "300"))
SECONDS_MAX = 60 + 4 * RUNS


def test_all_of_them_end_well(runs_here: Kubectl) -> None:
    kube = runs_here
    turns = [{"toolCalls": [call("word_count", text="one of many")]}, {"text": "Three."}]
    spec = agent(*turns, tools=[tool("word_count", "agentrun.tools.demo:word_count")])
    began = time.monotonic()
    for first in range(0, RUNS, 100):
        kube.apply(*(agentrun(f"run-{number}", spec) for number in range(first, min(first + 100, RUNS))))

    def phases() -> dict[str, int]:
        found = kube(
            "get", "agentruns", "-o", 'jsonpath={range .items[*]}{.status.phase} {.status.reason}{"\\n"}{end}'
        )
        lines = found.splitlines()
        assert not [line for line in lines if line.startswith(("Failed", "Cancelled"))], set(lines)
        return {line: lines.count(line) for line in set(lines)}

    wait_until(
        lambda: phases().get("Succeeded Completed") == RUNS,
        seconds=SECONDS_MAX,
        shown=lambda: str(phases()),
        every=3,
    )
    print(f"{RUNS} runs took {time.monotonic() - began:.0f} s")
    for run in kube.list("agentruns"):
        status = run["status"]
        assert (status["attempt"], status.get("failures", 0), status["disruptions"]) == (1, 0, 0), run[
            "metadata"
        ]["name"]
        assert status["result"]["preview"] == "Three."
    wait_until(lambda: not kube.list("pods"), seconds=60, shown=lambda: str(len(kube.list("pods"))))
