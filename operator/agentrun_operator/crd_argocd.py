"""The chart's Lua scripts as a patch of Argo CD's ConfigMap, which takes them as texts.

Used by `crd` when it writes the repository's files. Invariant: the scripts in
`charts/agentrun/argocd` are the only source; tests run those.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

ACTIONS = ("suspend", "resume", "stop", "retry")
KIND = "agentrun.dev_AgentRun"
_HEADER = (
    "# Generated from the Lua scripts beside it: run `make crds`.\n"
    "#   kubectl -n argocd patch configmap argocd-cm --patch-file argocd-cm-patch.yaml\n"
)


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as they are."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def _yaml(value: dict[str, Any]) -> str:
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=110)


def argocd_patch(scripts: Path) -> str:
    """The patch, as YAML: one health check, and the actions with what offers them."""
    actions = {
        "discovery.lua": (scripts / "discovery.lua").read_text(),
        "definitions": [
            {"name": name, "action.lua": (scripts / f"{name}.lua").read_text()} for name in ACTIONS
        ],
    }
    data = {
        f"resource.customizations.health.{KIND}": (scripts / "health.lua").read_text(),
        f"resource.customizations.actions.{KIND}": _yaml(actions),
    }
    return _HEADER + _yaml({"data": data})
