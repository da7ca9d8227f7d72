"""A namespace a test on the cluster of KUBECONFIG, and what several tests need in it.

`.ci/with-cluster` brings the cluster up, puts agentrun on it, and runs these: several at once
(pytest-xdist), but for those that need the cluster alone, which come last and one by one: the
tests of a module that uses something of ALONE, and others by the mark `alone`.
"""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
from base64 import b64decode
from collections.abc import Generator, Iterator
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

import pytest

from tests.e2e.cluster.kube import Kubectl, KubeError
from tests.e2e.cluster.store import ClusterStore
from tests.e2e.cluster.stubs import Stubs

SYSTEM = os.environ.get("AGENTRUN_TEST_SYSTEM", "agentrun-system")
OPERATOR = "agentrun"
STORE_SECRET = "agentrun-store"

ALONE = frozenset(
    {
        "cordoned",
        "kill_operator",
        "operator_metric",
        "operator_scaled",
        "operator_setting",
        "put_operator_on",
        "wait_alone",
        "wait_operator",
        "writes",
    }
)
"""What disturbs a node, the operator or the store, or counts what happens on the whole cluster."""

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


@pytest.fixture(scope="session", autouse=True)
def _cluster() -> None:
    if not os.environ.get("KUBECONFIG"):
        pytest.skip("KUBECONFIG names no cluster: `make e2e` brings one up")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that need the cluster alone come last, and one worker runs them."""
    items.sort(key=_is_alone)
    for item in filter(_is_alone, items):
        item.add_marker(pytest.mark.xdist_group("alone"))


def _is_alone(item: pytest.Item) -> bool:
    uses = ALONE & vars(item.module).keys() if isinstance(item, pytest.Function) else ()
    return bool(uses) or item.get_closest_marker("alone") is not None


@pytest.fixture(autouse=True)
def _room(_cluster: None, request: pytest.FixtureRequest) -> Iterator[None]:
    """Whoever needs the cluster alone waits for all others, and they for it, whichever worker they are on."""
    cluster = sha256(os.environ["KUBECONFIG"].encode()).hexdigest()[:12]
    with (Path(tempfile.gettempdir()) / f"agentrun-e2e-{cluster}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX if _is_alone(request.node) else fcntl.LOCK_SH)
        yield


@pytest.fixture
def kube(request: pytest.FixtureRequest, _room: None) -> Iterator[Kubectl]:
    """kubectl in a namespace of the test's own, which admits restricted pods only."""
    short = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower().removeprefix("test_"))[:30].strip("-")
    name = f"t-{short}-{uuid4().hex[:6]}"
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": RESTRICTED | {"agentrun.dev/test": "true"}},
    }
    cluster = Kubectl()
    cluster.apply(namespace)
    yield Kubectl(name)
    if request.node.stash.get(_FAILED, False):
        _show(Kubectl(name))
    cluster.delete("namespace", name, "--wait=false")


@pytest.fixture
def runs_here(kube: Kubectl) -> Kubectl:
    """The test's namespace, prepared for AgentRuns: it has the runners' database Secret."""
    system = kube.within(SYSTEM)
    deployment = system.get("deployment", OPERATOR)
    assert deployment is not None, f"agentrun is not installed in {SYSTEM}: run `make deploy`"
    secret = kube.within("default").get("secret", STORE_SECRET)
    assert secret is not None, f"the chart made no Secret {STORE_SECRET} in the namespace default"
    kube.apply(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": STORE_SECRET}, "data": secret["data"]}
    )
    return kube


@pytest.fixture
def store(runs_here: Kubectl) -> ClusterStore:
    """The run log that runners write."""
    secret = runs_here.get("secret", STORE_SECRET)
    assert secret is not None
    return ClusterStore(b64decode(secret["data"]["url"]).decode())


@pytest.fixture
def stubs(kube: Kubectl) -> Stubs:
    """A tool server and a model that count, in the test's namespace."""
    made = Stubs(kube)
    made.start()
    return made


_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call" and report.failed:
        item.stash[_FAILED] = True
    return report


def _show(kube: Kubectl) -> None:
    """What a person would look at first."""
    for args in (
        ["get", "pods", "-o", "wide"],
        ["get", "agentruns", "-o", "yaml"],
        ["get", "events", "--sort-by=.lastTimestamp"],
        ["logs", "-n", SYSTEM, f"deployment/{OPERATOR}", "--tail=100"],
    ):
        try:
            print(f"--- kubectl {' '.join(args)}\n{kube(*args)}")
        except KubeError as error:
            print(error)
