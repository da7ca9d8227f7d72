"""300 AgentRuns applied at once, more than the nodes take pods at a time, all end well."""

from __future__ import annotations

import os

from tests.e2e.cluster.kube import Kubectl
from tests.e2e.cluster.many import all_end_well

RUNS = int(os.environ.get("AGENTRUN_TEST_MANY", "300"))


def test_all_of_them_end_well(runs_here: Kubectl) -> None:
    print(f"{RUNS} runs took {all_end_well(runs_here, RUNS):.0f} s")
