"""Fixtures as in tests/e2e/cluster, for what takes minutes: `make e2e-slow`."""

from tests.e2e.cluster.conftest import _cluster, kube, pytest_runtest_makereport, runs_here, store, stubs

__all__ = ["_cluster", "kube", "pytest_runtest_makereport", "runs_here", "store", "stubs"]
