"""The chart over its life: an older CRD is brought up to date, and runs outlive an uninstall.

It takes the installation of the cluster away and puts it back, as `make deploy` does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.cluster.kube import Kubectl, KubeError, Object, condition, wait_until
from tests.e2e.cluster.machinery import OPERATOR, operator_metric, system, wait_alone, wait_operator
from tests.e2e.cluster.objects import postgres_objects
from tests.e2e.cluster.runs import agentrun, pods_of, wait_phase
from tests.e2e.cluster.writes import events_written, writes
from tests.integration.pod.pods import agent

pytestmark = pytest.mark.alone

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "agentrun"
CRD = "agentruns.agentrun.dev"
RELEASE = f"app.kubernetes.io/instance={OPERATOR}"
KINDS = "all,secrets,configmaps,serviceaccounts,clusterroles,clusterrolebindings,roles,rolebindings"
PASSWORD = "secret"
SPEC_FIELD, STATUS_FIELD = "podRetentionPolicy", "disruptions"


def cluster(step: str, chart: Path = CHART, values: Path | None = None) -> None:
    """A step of `.ci/cluster`."""
    environ = os.environ | {"DEPLOY_CHART": str(chart)} | ({"DEPLOY_VALUES": str(values)} if values else {})
    done = subprocess.run(
        [ROOT / ".ci" / "cluster", step],
        env=environ,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def older(folder: Path) -> Path:
    """The chart as it was before a field of spec and one of status."""
    chart = folder / "older"
    shutil.copytree(CHART, chart)
    template = chart / "templates" / "crd.yaml"
    text, end = template.read_text(), "{{- end }}\n"
    head = text.partition("apiVersion:")[0]
    crd = yaml.safe_load("\n".join(line for line in text.splitlines() if not line.startswith("{{")))
    (version,) = crd["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    rules = spec["x-kubernetes-validations"]
    spec["x-kubernetes-validations"] = [rule for rule in rules if SPEC_FIELD not in str(rule)]
    del schema_of(crd, "spec")[SPEC_FIELD]
    del schema_of(crd, "status")[STATUS_FIELD]
    template.write_text(head + yaml.safe_dump(crd, sort_keys=False, width=1000) + end)
    about = yaml.safe_load((chart / "Chart.yaml").read_text())
    (chart / "Chart.yaml").write_text(yaml.safe_dump(about | {"version": "0.0.9"}))
    return chart


def schema_of(crd: Object, part: str) -> Object:
    """The fields of spec or status."""
    (version,) = crd["spec"]["versions"]
    found: Object = version["schema"]["openAPIV3Schema"]["properties"][part]["properties"]
    return found


def served(kube: Kubectl, part: str) -> Object:
    crd = kube.get("crd", CRD)
    assert crd is not None
    return schema_of(crd, part)


@pytest.fixture
def own_values(kube: Kubectl, tmp_path: Path) -> Path:
    """Values with a Postgres in the test's namespace, which outlives the release."""
    kube.apply(*postgres_objects("postgres", PASSWORD))
    kube("wait", "--for=condition=Ready", "pod/postgres", "--timeout=60s", seconds=70)
    url = f"postgresql://agentrun:{PASSWORD}@postgres.{kube.namespace}.svc:5432/agentrun"
    values = {"store": {"url": url}, "runNamespaces": [kube.namespace]}
    path = tmp_path / "values.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


@contextmanager
def put_back(kube: Kubectl) -> Iterator[None]:
    """In the end the cluster has the installation that it had."""
    try:
        yield
    finally:
        kube("delete", "agentruns", "--all", "--wait=false")
        cluster("undeploy")
        cluster("deploy")
        wait_operator()


def what_is_installed(kube: Kubectl) -> list[str]:
    found = Kubectl().within("")("get", KINDS, "-A", "-l", RELEASE, "-o", "name")
    return sorted(found.split())


def run(name: str, seconds: float = 1, **spec: Any) -> Object:
    return agentrun(name, agent({"text": "Here.", "delaySeconds": seconds}, **spec))


def test_a_release_is_upgraded_from_an_older_crd_and_outlived_by_its_runs(
    kube: Kubectl, own_values: Path, tmp_path: Path
) -> None:
    wait_alone(kube)
    with put_back(kube):
        cluster("undeploy")
        cluster("deploy", older(tmp_path), own_values)
        assert SPEC_FIELD not in served(kube, "spec") and STATUS_FIELD not in served(kube, "status")
        check_an_old_crd_is_told_of(kube)

        kube.apply(run("upgraded", seconds=40))
        pod = wait_phase(kube, "upgraded", "Running")["status"]["pod"]
        cluster("deploy", values=own_values)
        assert SPEC_FIELD in served(kube, "spec") and STATUS_FIELD in served(kube, "status")
        wait_operator()
        kube.apply(run("new", podRetentionPolicy="Always"))
        new = wait_phase(kube, "new", "Succeeded")
        assert new["status"][STATUS_FIELD] == 0 and len(pods_of(kube, "new")) == 1
        assert operator_metric("agentrun_operator_status_fields_pruned") == 0
        upgraded = wait_phase(kube, "upgraded", "Succeeded")["status"]
        assert upgraded["pod"] == pod and (upgraded["attempt"], upgraded[STATUS_FIELD]) == (1, 0)

        kube.apply(run("outlives", seconds=60), run("over", seconds=8))
        for name in ("outlives", "over"):
            wait_phase(kube, name, "Running")
        check_uninstalled(kube)
        kube.wait_for("pod", pods_of(kube, "over")[0], lambda pod: pod["status"]["phase"] == "Succeeded")
        cluster("deploy", values=own_values)
        for name in ("over", "outlives"):
            status = wait_phase(kube, name, "Succeeded", seconds=90)["status"]
            assert (status["attempt"], status["failures"], status[STATUS_FIELD]) == (1, 0, 0), status


def check_an_old_crd_is_told_of(kube: Kubectl) -> None:
    """Loudly, and at the price of no write."""
    with pytest.raises(KubeError, match=f'unknown field "(spec.)?{SPEC_FIELD}"'):
        kube.apply(run("refused", podRetentionPolicy="Always"))
    before = writes(kube)
    kube.apply(run("old", seconds=10))
    status = wait_phase(kube, "old", "Succeeded")["status"]
    assert STATUS_FIELD not in status and status["failures"] == 0
    patches = writes(kube)["PATCH agentruns/status"] - before["PATCH agentruns/status"]
    assert patches <= 4, "Pending, Running, the end, and progress once"
    told = [message for reason, message in events_written(kube, "old") if reason == "OldCRD"]
    assert len(told) == 1 and f"status.{STATUS_FIELD}" in told[0] and "update the CRD" in told[0]
    assert operator_metric("agentrun_operator_status_fields_pruned") == 1
    log = system("logs", f"deployment/{OPERATOR}")
    assert log.count(f"lacks status.{STATUS_FIELD}") == 1


def check_uninstalled(kube: Kubectl) -> None:
    """The CRD, the runs and their pods are there, and nothing else is."""
    before = {name: pods_of(kube, name) for name in ("outlives", "over")}
    assert len(what_is_installed(kube)) > 5
    cluster("undeploy")
    wait_until(lambda: not what_is_installed(kube), seconds=60, shown=lambda: str(what_is_installed(kube)))
    crd = kube.get("crd", CRD)
    assert crd is not None and condition(crd, "Established")["status"] == "True"
    for name, pods in before.items():
        found = kube.get("agentrun", name)
        assert found is not None and "deletionTimestamp" not in found["metadata"]
        assert pods_of(kube, name) == pods
    (pod,) = before["outlives"]
    lives = kube.get("pod", pod)
    assert lives is not None and lives["status"]["phase"] == "Running"
