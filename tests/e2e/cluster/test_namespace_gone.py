"""A namespace is deleted with live runs in it: nothing hangs, and the runs are ended in the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from uuid import UUID

import pytest

from agentrun.proto import log_pb2 as pb
from tests.e2e.cluster.conftest import STORE_SECRET
from tests.e2e.cluster.kube import Kubectl, Object, wait_until
from tests.e2e.cluster.machinery import OPERATOR, operator_scaled, system
from tests.e2e.cluster.runs import stepping, wait_phase
from tests.e2e.cluster.store import ClusterStore
from tests.e2e.cluster.stubs import Stubs

RUNS = 3
GONE_SECONDS = 70


@pytest.fixture
def gone(runs_here: Kubectl) -> Kubectl:
    """A namespace for runs, which the test takes away."""
    secret = runs_here.get("secret", STORE_SECRET)
    assert secret is not None
    kube = runs_here.within(f"{runs_here.namespace}-gone")
    kube.apply(
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": kube.namespace, "labels": {"agentrun.dev/test": "true"}},
        },
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": STORE_SECRET, "namespace": kube.namespace},
            "data": secret["data"],
        },
    )
    return kube


@contextmanager
def operator_within(kube: Kubectl) -> Iterator[None]:
    """The operator is in this namespace, with all that it needs there, and nowhere else."""
    deployment = system.get("deployment", OPERATOR)
    assert deployment is not None
    pod = deployment["spec"]["template"]["spec"]
    account = pod["serviceAccountName"]
    names = {
        each["valueFrom"]["secretKeyRef"]["name"]
        for each in pod["containers"][0]["env"]
        if "secretKeyRef" in each.get("valueFrom", {})
    }
    secrets = [system.get("secret", name) for name in names]
    binding = _binding_of(account) | {"metadata": {"name": kube.namespace}}
    binding["subjects"] = [{"kind": "ServiceAccount", "name": account, "namespace": kube.namespace}]
    with operator_scaled(0):
        Kubectl().apply(binding)
        try:
            kube.apply(
                {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}},
                *(_moved(secret) for secret in secrets if secret is not None),
                _moved(deployment) | {"spec": deployment["spec"] | {"replicas": 1}},
            )
            kube("rollout", "status", f"deployment/{OPERATOR}", "--timeout=60s", seconds=70)
            yield
        finally:
            Kubectl().delete("clusterrolebinding", kube.namespace)


def _binding_of(account: str) -> Object:
    subject = {"kind": "ServiceAccount", "name": account, "namespace": system.namespace}
    bindings = Kubectl().list("clusterrolebindings")
    found = next(each for each in bindings if subject in each.get("subjects", []))
    return {key: found[key] for key in ("apiVersion", "kind", "roleRef")}


def _moved(obj: Object) -> Object:
    """The same, to be made in another namespace."""
    kept = {key: value for key, value in obj.items() if key not in ("metadata", "status")}
    return kept | {"metadata": {"name": obj["metadata"]["name"]}}


@pytest.mark.parametrize(
    ("around", "goes_first"),
    [(None, False), (None, True), (operator_within, False)],
    ids=["with an operator", "without one", "with the operator in it"],
)
def test_a_namespace_with_live_runs_goes_without_a_hang(
    gone: Kubectl,
    stubs: Stubs,
    store: ClusterStore,
    around: Callable[[Kubectl], AbstractContextManager[None]] | None,
    goes_first: bool,
) -> None:
    names = [f"run-{number}" for number in range(RUNS)]
    with around(gone) if around is not None else nullcontext():
        gone.apply(*(stepping(stubs, name, seconds=3, steps=60) for name in names))
        ids = [UUID(wait_phase(gone, name, "Running")["status"]["runID"]) for name in names]
        with operator_scaled(0) if goes_first else nullcontext():
            seconds = GONE_SECONDS
            gone.delete("namespace", gone.namespace, f"--timeout={seconds}s", seconds=seconds + 10)
            assert Kubectl().get("namespace", gone.namespace) is None
    calls = stubs.counts()
    wait_until(
        lambda: store.outcomes(ids) == [pb.OUTCOME_CANCELLED] * RUNS,
        seconds=120,
        shown=lambda: str(store.outcomes(ids)),
        every=2,
    )
    assert stubs.counts() == calls, "a runner went on without its namespace"
