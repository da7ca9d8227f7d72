"""Many AgentRuns applied at once all end well (tests/e2e/slow has more of them)."""

from __future__ import annotations

import pytest

from tests.e2e.cluster.kube import Kubectl
from tests.e2e.cluster.many import all_end_well

RUNS = 40


@pytest.mark.alone
def test_all_of_them_end_well(runs_here: Kubectl) -> None:
    print(f"{RUNS} runs took {all_end_well(runs_here, RUNS):.0f} s")
