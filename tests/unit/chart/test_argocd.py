"""Argo CD's health check and actions, run in a Lua like Argo CD's, for objects of every phase."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from lupa import lua51

from agentrun.log.summary import Phase
from agentrun_operator.crd_argocd import ACTIONS
from tests.unit.chart.rendering import CHART

SCRIPTS = CHART / "argocd"
# What Argo CD opens: the base functions, tables, and of os the clock. `require` knows os alone.
SANDBOX = """
local clock = { time = os.time, date = os.date }
local known = { os = clock }
for _, name in ipairs({"string", "math", "io", "debug", "coroutine", "package", "dofile", "loadfile"}) do
  _G[name] = nil
end
os = clock
require = function(name) return known[name] or error("no module " .. name) end
python = nil
"""


def to_python(value: Any) -> Any:
    if lua51.lua_type(value) != "table":
        return value
    pairs = {key: to_python(child) for key, child in value.items()}
    if pairs and all(isinstance(key, int) for key in pairs):
        return [pairs[key] for key in sorted(pairs)]
    return pairs


def run(script: str, obj: dict[str, Any]) -> Any:
    lua = lua51.LuaRuntime(unpack_returned_tuples=True)
    obj_in_lua = lua.table_from(obj, recursive=True)
    lua.globals()["obj"] = obj_in_lua
    lua.execute(SANDBOX)
    return to_python(lua.execute((SCRIPTS / script).read_text()))


def an_object(
    phase: str | None = None, *, spec: dict[str, Any] | None = None, **status: Any
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "apiVersion": "agentrun.dev/v1alpha1",
        "kind": "AgentRun",
        "metadata": {"name": "hello", "generation": 3},
        "spec": {"prompt": "Hello", "agent": {"model": {"name": "openai:a"}, "tools": [{"name": "t"}]}}
        | (spec or {}),
    }
    if phase is not None:
        found["status"] = {"phase": phase, "observedGeneration": 3} | status
    return found


def stalled(status: str) -> list[dict[str, str]]:
    return [{"type": "Reconciling", "status": "True"}, {"type": "Stalled", "status": status}]


@pytest.mark.parametrize(
    ("obj", "health", "says"),
    [
        (an_object(), "Progressing", "has not seen it"),
        (an_object("Pending", observedGeneration=3), "Progressing", "Pending"),
        (an_object("Succeeded", observedGeneration=2), "Progressing", "last change"),
        (
            an_object("Pending", reason="ExceededQuota", message="no room"),
            "Progressing",
            "Pending (ExceededQuota): no room",
        ),
        (
            an_object("Pending", reason="BackOff", failures=4),
            "Progressing",
            "Pending (BackOff); attempts that failed: 4",
        ),
        (
            an_object("Pending", reason="RunIDTaken", conditions=stalled("True")),
            "Degraded",
            "Pending (RunIDTaken)",
        ),
        (an_object("Running", reason="Running", conditions=stalled("False")), "Progressing", "Running"),
        (an_object("Pausing"), "Progressing", "Pausing"),
        (
            an_object("Paused", reason="BudgetExceeded", message="tokens"),
            "Suspended",
            "Paused (BudgetExceeded): tokens",
        ),
        (an_object("Succeeded", reason="Done", failures=2), "Healthy", "Succeeded (Done)"),
        (
            an_object("Failed", reason="Retries", message="x", failures=1),
            "Degraded",
            "Failed (Retries): x; attempts",
        ),
        (an_object("Cancelled", reason="Stop"), "Degraded", "Cancelled (Stop)"),
        (an_object("SomethingNew"), "Progressing", "SomethingNew"),
    ],
)
def test_health(obj: dict[str, Any], health: str, says: str) -> None:
    found = run("health.lua", obj)
    assert found["status"] == health
    assert says in found["message"]


def test_every_phase_has_a_health() -> None:
    known = {"Healthy", "Progressing", "Degraded", "Suspended"}
    assert {run("health.lua", an_object(phase.value))["status"] for phase in Phase} == known


@pytest.mark.parametrize(
    ("obj", "offered"),
    [
        (an_object(), {"suspend", "stop"}),
        (an_object("Running"), {"suspend", "stop"}),
        (an_object("Paused", spec={"suspend": True}), {"resume", "stop"}),
        (an_object("Running", spec={"shutdown": "Stop"}), set()),
        (an_object("Succeeded"), set()),
        (an_object("Failed"), {"retry"}),
        (an_object("Cancelled", spec={"shutdown": "Stop"}), set()),
    ],
)
def test_actions_are_offered_where_they_do_something(obj: dict[str, Any], offered: set[str]) -> None:
    found = run("discovery.lua", obj)
    assert set(found) == set(ACTIONS)
    assert {name for name, action in found.items() if not action["disabled"]} == offered


@pytest.mark.parametrize(
    ("action", "change"),
    [("suspend", {"suspend": True}), ("resume", {"suspend": False}), ("stop", {"shutdown": "Stop"})],
)
def test_an_action_changes_its_level_alone(action: str, change: dict[str, Any]) -> None:
    before = an_object("Running", spec={"suspend": action == "resume"})
    after = run(f"{action}.lua", before)
    assert after == before | {"spec": before["spec"] | change}


def test_retry_gives_a_token_that_was_not_there_before() -> None:
    spec = run("retry.lua", an_object("Failed"))["spec"]
    assert spec["retryToken"].startswith("argocd-20")
    assert len(spec["retryToken"]) <= 256


def test_the_patch_of_argo_cds_config_map_holds_the_scripts() -> None:
    data = yaml.safe_load((SCRIPTS / "argocd-cm-patch.yaml").read_text())["data"]
    assert (
        data["resource.customizations.health.agentrun.dev_AgentRun"] == (SCRIPTS / "health.lua").read_text()
    )
    actions = yaml.safe_load(data["resource.customizations.actions.agentrun.dev_AgentRun"])
    assert actions["discovery.lua"] == (SCRIPTS / "discovery.lua").read_text()
    assert {one["name"]: one["action.lua"] for one in actions["definitions"]} == {
        name: (SCRIPTS / f"{name}.lua").read_text() for name in ACTIONS
    }
