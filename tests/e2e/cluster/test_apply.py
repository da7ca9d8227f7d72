"""The ways in which people apply objects: by the server, by two of them, with a diff, with a wait."""

from __future__ import annotations

import json

import pytest

from tests.e2e.cluster.kube import Kubectl, KubeError, Object
from tests.e2e.cluster.runs import KIND, agentrun, wait_phase
from tests.integration.pod.pods import agent


def text(run: Object) -> str:
    return json.dumps(run)


def server_apply(kube: Kubectl, run: Object, manager: str, *more: str) -> None:
    kube("apply", "--server-side", f"--field-manager={manager}", *more, "-f", "-", stdin=text(run))


def test_two_who_apply_keep_what_is_theirs(runs_here: Kubectl) -> None:
    kube = runs_here
    spec = agent({"text": "Done."})
    run = agentrun("shared", spec, suspend=True)
    server_apply(kube, run, "pipeline")
    wait_phase(kube, "shared", "Paused", "Suspended")
    # Another one sets a limit, and owns no more than that.
    limit = {key: run[key] for key in ("apiVersion", "kind", "metadata")} | {
        "spec": {"budget": {"tokens": 5000}}
    }
    server_apply(kube, limit, "finance")
    server_apply(kube, run, "pipeline")
    found = kube.get(KIND, "shared")
    assert found is not None and found["spec"]["budget"]["tokens"] == 5000
    with pytest.raises(KubeError, match="conflict"):
        server_apply(kube, agentrun("shared", spec, budget={"tokens": 9000}), "pipeline")
    # What runs cannot be changed, by whichever way.
    with pytest.raises(KubeError, match=r"immutable|cannot be changed"):
        server_apply(kube, agentrun("shared", {**spec, "prompt": "Another."}, suspend=True), "pipeline")
    assert kube("diff", "--server-side", "--field-manager=pipeline", "-f", "-", stdin=text(run)) == ""
    server_apply(kube, agentrun("shared", spec, suspend=False), "pipeline")
    kube("wait", "--for=jsonpath={.status.phase}=Succeeded", f"{KIND}/shared", "--timeout=60s", seconds=70)
    kube("wait", "--for=condition=Succeeded", f"{KIND}/shared", "--timeout=10s")


def test_what_was_applied_shows_no_diff_when_it_is_applied_again(runs_here: Kubectl) -> None:
    kube = runs_here
    run = agentrun("same", agent({"text": "Done."}), budget={"turns": 3})
    kube.apply(run)
    wait_phase(kube, "same", "Succeeded")
    before = kube.get(KIND, "same")
    assert kube("diff", "-f", "-", stdin=text(run)) == ""
    assert "unchanged" in kube("apply", "-f", "-", stdin=text(run))
    after = kube.get(KIND, "same")
    assert before is not None and after is not None
    assert before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]
