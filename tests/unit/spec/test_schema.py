"""The schema that the CRD is made from, and the reference that people read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentrun.spec import AgentRun, load_manifest

ROOT = Path(__file__).parents[3]
SCHEMA = AgentRun.model_json_schema()
MODELS: dict[str, Any] = {"AgentRun": SCHEMA, **SCHEMA["$defs"]}
BOUNDS = {
    "string": {"maxLength", "enum", "const"},
    "array": {"maxItems"},
    "integer": {"maximum"},
    "number": {"maximum"},
}


def nodes(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema inside one, with a path to it; references are not followed."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for index, child in enumerate(schema.get("anyOf", ())):
        yield from nodes(child, f"{path}|{index}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from nodes(schema[key], f"{path}.{key}")


ALL_NODES = [found for name, model in MODELS.items() for found in nodes(model, name)]


def test_every_field_has_a_description() -> None:
    bare = [
        f"{name}.{field}"
        for name, model in MODELS.items()
        for field, schema in model.get("properties", {}).items()
        if not schema.get("description")
    ]
    assert bare == []


def test_every_string_list_number_and_map_has_a_bound() -> None:
    unbounded = [
        path
        for path, node in ALL_NODES
        if (node.get("type") in BOUNDS and not BOUNDS[node["type"]] & node.keys())
        or (node.get("type") == "object" and "properties" not in node and "maxProperties" not in node)
    ]
    assert unbounded == []


def test_unknown_fields_are_refused_everywhere() -> None:
    open_models = [
        name
        for name, model in MODELS.items()
        if "properties" in model and model["additionalProperties"] is not False
    ]
    assert open_models == []


def test_fields_bear_the_names_of_the_kubernetes_conventions() -> None:
    names = set(MODELS["AgentRunSpec"]["properties"])
    assert {"runID", "promptFrom", "ttlSecondsAfterFinished", "terminationGracePeriodSeconds"} <= names
    assert {"baseURL", "apiKeyFrom"} <= set(MODELS["ModelSpec"]["properties"])
    assert not [field for model in MODELS.values() for field in model.get("properties", {}) if "_" in field]


def test_the_reference_names_every_field_and_every_value() -> None:
    text = (ROOT / "docs" / "manifest.md").read_text()
    fields = {field for model in MODELS.values() for field in model.get("properties", {})}
    values = {value for _, node in ALL_NODES for value in node.get("enum", ())}
    assert sorted(word for word in fields | values if f"`{word}`" not in text) == []


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.name)
def test_every_example_loads(path: Path) -> None:
    run = load_manifest(path.read_bytes(), source=path.name, base_dir=path.parent)
    assert run.metadata.name == path.stem


def test_the_research_example_takes_about_eight_seconds() -> None:
    text = (ROOT / "examples" / "research.yaml").read_text()
    agent = load_manifest(text, source="research.yaml", base_dir=None).spec.agent
    assert agent is not None
    assert agent.model.script is not None
    seconds = sum(
        turn.delay_seconds + max((call.arguments.get("seconds", 0) for call in turn.tool_calls), default=0)
        for turn in agent.model.script.turns
    )
    assert 7 <= seconds <= 9
