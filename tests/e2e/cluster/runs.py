"""AgentRuns that tests make, and where they stand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.e2e.cluster.kube import Kubectl, Object, condition
from tests.e2e.cluster.stubs import Stubs
from tests.integration.pod.pods import agent, call

KIND = "agentrun"
TERMINAL = ("Succeeded", "Failed", "Cancelled")


def agentrun(name: str, spec: Mapping[str, Any], **more: Any) -> Object:
    """A manifest; `more` are fields of spec."""
    return {
        "apiVersion": "agentrun.dev/v1alpha1",
        "kind": "AgentRun",
        "metadata": {"name": name},
        "spec": {**spec, **more},
    }


def http_tool(name: str, url: str, **more: Any) -> Object:
    """A tool that the model calls without arguments."""
    return {
        "name": name,
        "description": "Does what its name says.",
        "http": {"url": url},
        "parameters": {"type": "object", "properties": {}},
        "effect": "idempotent",
        "timeoutSeconds": 600,
        **more,
    }


def stepping(
    stubs: Stubs, name: str, *, steps: int = 3, seconds: float = 2, gate: str = "", **more: Any
) -> Object:
    """A run that calls its tool so many times, one call a turn; the stub counts them under the run's name."""
    query = {"seconds": seconds, **({"gate": gate} if gate else {})}
    tools = [http_tool("step", stubs.tool_url(name, **query))]
    turns = [
        *({"toolCalls": [call("step", number=number)]} for number in range(steps)),
        {"text": "All are done."},
    ]
    return agentrun(name, agent(*turns, tools=tools), **more)


def is_in(phase: str, reason: str = "") -> Callable[[Object], bool]:
    """A condition for `wait_for`. Fails at once in a phase that ends the run, unless asked for."""

    def holds(run: Object) -> bool:
        status = run.get("status", {})
        found = status.get("phase")
        if found == phase and reason in ("", status.get("reason")):
            return True
        assert found not in TERMINAL or found == phase, status
        return False

    return holds


def wait_phase(kube: Kubectl, name: str, phase: str, reason: str = "", *, seconds: float = 60) -> Object:
    """The run, as soon as it is there."""
    return kube.wait_for(KIND, name, is_in(phase, reason), seconds=seconds)


def is_true(run: Object, kind: str) -> bool:
    """Whether one of its conditions is True."""
    return bool(condition(run, kind).get("status") == "True")


def pods_of(kube: Kubectl, name: str) -> list[str]:
    """Names of the run's pods."""
    return [pod["metadata"]["name"] for pod in kube.list("pods", f"agentrun.dev/run={name}")]
