"""Nobody reaches Postgres for two minutes: no pod comes or goes, no phase changes, and all goes on after."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.e2e.cluster.kube import Kubectl, condition, wait_until
from tests.e2e.cluster.machinery import STORE_POD, system, wait_operator
from tests.e2e.cluster.runs import agentrun, stepping, wait_phase
from tests.e2e.cluster.stubs import Stubs
from tests.e2e.cluster.watcher import labels
from tests.integration.pod.pods import agent

AWAY_SECONDS = 120
SERVICE = "agentrun-postgres"
CUT = """PGPASSWORD=$POSTGRES_PASSWORD psql -h 127.0.0.1 -U agentrun -d agentrun -c "
select pg_terminate_backend(pid) from pg_stat_activity
where client_addr is not null and pid <> pg_backend_pid()"
"""


@contextmanager
def store_away() -> Iterator[None]:
    """Its service leads nowhere, and the connections that there were are cut."""
    nowhere = {"spec": {"selector": {"agentrun.dev/nowhere": "true"}}}
    system.patch("service", SERVICE, nowhere)
    try:
        wait_until(lambda: not _endpoints(), seconds=20)
        time.sleep(2)  # the nodes hear of it
        for _ in range(2):
            system("exec", STORE_POD, "--", "sh", "-c", CUT)
            time.sleep(0.5)
        yield
    finally:
        system.patch("service", SERVICE, {"spec": {"selector": {"agentrun.dev/nowhere": None}}})
        wait_until(_endpoints, seconds=20)
        wait_operator()


def _endpoints() -> list[str]:
    slices = system.list("endpointslices", f"kubernetes.io/service-name={SERVICE}")
    return [address for each in slices for end in each.get("endpoints") or [] for address in end["addresses"]]


def test_two_minutes_without_the_store_change_nothing(runs_here: Kubectl, stubs: Stubs) -> None:
    kube = runs_here
    names = ["live", "podless", "suspended"]
    kube.apply(
        *(stepping(stubs, name, steps=4, seconds=5, terminationGracePeriodSeconds=5) for name in names)
    )
    found = {name: wait_phase(kube, name, "Running") for name in names}
    wait_until(lambda: set(names) <= set(stubs.counts()), seconds=60)
    gone = str(found["podless"]["status"]["pod"]["name"])
    with store_away():
        end = time.monotonic() + AWAY_SECONDS
        kube.delete("pod", gone, "--wait=false")
        kube.patch("agentrun", "suspended", {"spec": {"suspend": True}})
        kube.apply(agentrun("new", agent({"text": "Here."})))
        kube.wait_gone("pod", gone, seconds=30)
        told = kube.wait_for(
            "agentrun",
            "podless",
            lambda run: condition(run, "Reconciling").get("reason") == "StoreUnavailable",
            seconds=60,
        )
        assert told["status"]["phase"] in ("Running", "Pausing")
        pods, phases = pods_here(kube), phases_here(kube, names)
        calls = stubs.counts()
        while time.monotonic() < end:
            assert pods_here(kube) == pods
            assert phases_here(kube, names) == phases
            assert stubs.counts() == calls, "called with nowhere to write what came of it"
            time.sleep(3)
    assert wait_phase(kube, "suspended", "Paused", "Suspended")
    kube.patch("agentrun", "suspended", {"spec": {"suspend": False}})
    for name in (*names, "new"):
        status = wait_phase(kube, name, "Succeeded", seconds=120)["status"]
        assert status.get("failures", 0) == 0
    counts = stubs.counts()
    assert counts["live"] == 4
    # What was in flight when its pod went could not be written down.
    assert 4 <= counts["podless"] <= 5
    assert 4 <= counts["suspended"] <= 5


def pods_here(kube: Kubectl) -> dict[str, str]:
    """Runner pods, and whether they are to go."""
    return {
        pod["metadata"]["uid"]: pod["metadata"].get("deletionTimestamp", "")
        for pod in kube.list("pods")
        if "agentrun.dev/run" in labels(pod)
    }


def phases_here(kube: Kubectl, names: list[str]) -> dict[str, str]:
    found = {
        each["metadata"]["name"]: each.get("status", {}).get("phase", "") for each in kube.list("agentruns")
    }
    return {name: found[name] for name in names}
