"""The CustomResourceDefinition, generated from the typed models.

`python -m agentrun_operator.crd` writes the files of the repository that hold it
(`make crds`), with `--check` it says whether they are fresh.
Invariant: those files are what the models say, byte for byte.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

from agentrun.spec import API_VERSION, KIND, AgentRunSpec
from agentrun_operator.crd_argocd import argocd_patch
from agentrun_operator.crd_rules import RULES
from agentrun_operator.crd_schema import Schema, structural
from agentrun_operator.crd_status import RunStatus

GROUP, _, VERSION = API_VERSION.partition("/")
PLURAL = "agentruns"
NAME = f"{PLURAL}.{GROUP}"

_HEADER = "# Generated from the typed models of agentrun.spec and the operator: run `make crds`.\n"
_DESCRIPTION = (
    "One run of an agent: its prompt, its model and tools, what it may spend, and what became of it. "
    "A finished step is never lost, and any node goes on from it."
)


def _column(name: str, path: str, kind: str, description: str, priority: int = 0) -> dict[str, Any]:
    column: dict[str, Any] = {"name": name, "type": kind, "jsonPath": path, "description": description}
    if priority:
        column["priority"] = priority
    return column


COLUMNS = [
    _column("Phase", ".status.phase", "string", "Where the run stands."),
    _column("Reason", ".status.reason", "string", "Why it stands there."),
    _column("Turns", ".status.budget.turns.used", "integer", "Turns of models so far."),
    _column("Tokens", ".status.budget.tokens.used", "integer", "Tokens used so far."),
    _column("Budget", ".status.budget.tokens.limit", "integer", "Tokens that it may use."),
    _column("Attempt", ".status.attempt", "integer", "Number of its newest pod."),
    _column("Age", ".metadata.creationTimestamp", "date", "Since it was created."),
    _column("Pod", ".status.pod.name", "string", "Its newest pod.", priority=1),
    _column("Node", ".status.pod.nodeName", "string", "The node of that pod.", priority=1),
]


def schema() -> Schema:
    """The schema of a whole AgentRun object."""
    spec = structural(AgentRunSpec, RULES)
    spec["description"] = "What to run and what it may spend. What runs never changes."
    status = structural(RunStatus, {})
    return {
        "description": _DESCRIPTION,
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"{API_VERSION}."},
            "kind": {"type": "string", "description": f"{KIND}."},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status,
        },
    }


def definition() -> dict[str, Any]:
    """The CustomResourceDefinition object."""
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": COLUMNS,
        "selectableFields": [{"jsonPath": ".status.phase"}],
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema()},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["arun"],
                "categories": ["all", "agents"],
            },
            "versions": [version],
        },
    }


class _Dumper(yaml.SafeDumper):
    """Writes equal parts out: the API server's YAML has no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def to_yaml(value: dict[str, Any]) -> str:
    """One YAML document, keys in their given order."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)


def files(root: Path) -> dict[str, str]:
    """What has to be in which file, below the repository's root."""
    text = to_yaml(definition())
    if "{{" in text:
        raise ValueError("a description holds {{, which the chart would take for a template's")
    # Kept on uninstall: deleting a CRD deletes every object of its kind.
    kept = to_yaml(
        definition() | {"metadata": {"name": NAME, "annotations": {"helm.sh/resource-policy": "keep"}}}
    )
    return {
        "crds/agentrun.dev_agentruns.yaml": _HEADER + text,
        "charts/agentrun/templates/crd.yaml": _HEADER
        + "{{- if .Values.crds.install }}\n"
        + kept
        + "{{- end }}\n",
        "charts/agentrun/argocd/argocd-cm-patch.yaml": argocd_patch(root / "charts/agentrun/argocd"),
    }


def main(arguments: list[str], root: Path) -> int:
    """Writes the files, or says which are not fresh; the exit code."""
    wanted = files(root)
    stale = [name for name, text in wanted.items() if not _holds(root / name, text)]
    if arguments == ["--check"]:
        for name in stale:
            sys.stderr.write(f"{name}: not that of the models any more; run `make crds`\n")
        return 1 if stale else 0
    for name in stale:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(wanted[name])
    return 0


def _holds(file: Path, text: str) -> bool:
    return file.is_file() and file.read_text() == text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path.cwd()))
