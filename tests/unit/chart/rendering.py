"""The chart as Helm renders it, for tests: no cluster, Helm's own code as a library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import helm_python
import yaml

CHART = Path(__file__).parents[3] / "charts" / "agentrun"
VALUE_SETS = sorted((CHART / "ci").glob("*.yaml"))

Object = dict[str, Any]
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def values_of(file: Path) -> Object:
    values = yaml.safe_load(file.read_text())
    assert isinstance(values, dict)
    return values


def render_files(values: Object, *, name: str = "demo", namespace: str = "system") -> dict[str, str]:
    """What each template gives."""
    with helm_python.Chart.load(CHART) as chart:
        chart.validate_schema(values)
        return chart.render(values, name=name, namespace=namespace)


def render(values: Object, *, name: str = "demo", namespace: str = "system") -> list[Object]:
    """The objects."""
    files = render_files(values, name=name, namespace=namespace)
    return [
        found
        for file, text in sorted(files.items())
        if file.endswith(".yaml")
        for found in yaml.load_all(text, Loader=_LOADER)
        if found
    ]


def of_kind(objects: list[Object], kind: str) -> list[Object]:
    return [found for found in objects if found["kind"] == kind]


def the(objects: list[Object], kind: str, name: str) -> Object:
    (found,) = [one for one in of_kind(objects, kind) if one["metadata"]["name"] == name]
    return found
