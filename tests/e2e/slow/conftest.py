"""Fixtures as in tests/e2e/cluster, for what takes long outages or very many runs: `make e2e-slow`."""

from tests.e2e.cluster.conftest import (
    _cluster,
    _room,
    kube,
    pytest_runtest_makereport,
    runs_here,
    store,
    stubs,
)

__all__ = ["_cluster", "_room", "kube", "pytest_runtest_makereport", "runs_here", "store", "stubs"]
