"""The CRD is fresh, structural, described and bounded; what runs is immutable in it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentrun.spec import AgentRunSpec, ManifestError, definition_bytes, parse_object
from agentrun_operator import crd, crd_schema
from tests.unit.operator.crd.objects import CHANGES, REFUSED, good

ROOT = Path(__file__).parents[4]
FILE = ROOT / "crds" / "agentrun.dev_agentruns.yaml"
SCHEMA = crd.schema()
SPEC = SCHEMA["properties"]["spec"]


def nodes(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from nodes(schema[key], f"{path}[]")


ALL = [(path, node) for path, node in nodes(SCHEMA, "") if path != ".metadata"]


def test_the_files_in_the_repository_are_the_generated_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert crd.main(["--check"], ROOT) == 0, capsys.readouterr().err


def test_a_file_that_is_not_fresh_is_named_and_written_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(ROOT / "charts/agentrun/argocd", tmp_path / "charts/agentrun/argocd")
    assert crd.main(["--check"], tmp_path) == 1
    assert "crds/agentrun.dev_agentruns.yaml: not that of the models" in capsys.readouterr().err
    assert crd.main([], tmp_path) == 0
    assert crd.main(["--check"], tmp_path) == 0


def test_it_is_small_enough_for_a_last_applied_annotation() -> None:
    assert len(json.dumps(yaml.safe_load(FILE.read_text()))) < 200 * 1024


def test_every_node_is_structural_and_has_no_default() -> None:
    allowed = {"properties", "required", "items", "additionalProperties", "exclusiveMinimum"}
    known = allowed | set(crd_schema.KEPT)
    assert [(path, key) for path, node in ALL for key in node.keys() - known] == []
    free = {"x-kubernetes-preserve-unknown-fields"}
    assert [path for path, node in ALL if "type" not in node and not free & node.keys()] == []
    assert [path for path, node in ALL if "properties" in node and "additionalProperties" in node] == []


def test_every_field_is_described() -> None:
    bare = [path for path, node in ALL if not path.endswith("[]") and not node.get("description")]
    assert bare == []


def test_everything_is_bounded() -> None:
    bounds = {
        "string": {"maxLength", "enum", "format"},
        "array": {"maxItems"},
        "number": {"maximum"},
        "integer": {"maximum", "format"},
    }
    server_side = {".apiVersion", ".kind"}
    unbounded = [
        path
        for path, node in ALL
        if path not in server_side
        and (
            (node.get("type") in bounds and not bounds[node["type"]] & node.keys())
            or (node.get("type") == "object" and "properties" not in node and "maxProperties" not in node)
        )
    ]
    assert unbounded == []


def test_no_bound_overflows_in_the_server() -> None:
    # It holds bounds as floats: 2^63 - 1 would become 2^63, and that the least integer.
    assert [path for path, node in ALL if abs(node.get("maximum", 0)) > 2**53] == []
    assert [path for path, node in ALL if abs(node.get("minimum", 0)) > 2**53] == []


def test_free_form_data_is_a_map_of_anything() -> None:
    # In an object with unknown fields CEL's == does not see that a key was renamed.
    loose = [
        path
        for path, node in ALL
        if node.get("type") == "object" and "x-kubernetes-preserve-unknown-fields" in node
    ]
    assert loose == []


def test_each_field_is_either_starred_or_immutable() -> None:
    rules = {
        rule["fieldPath"]: rule for rule in SPEC["x-kubernetes-validations"] if "oldSelf" in rule["rule"]
    }
    starred = {"budget", "suspend", "shutdown", "retryToken", "ttlSecondsAfterFinished"}
    fields = {info.alias for info in AgentRunSpec.model_fields.values()}
    assert rules.keys() == {f".{field}" for field in fields - starred | {"shutdown"}}


def test_rules_name_fields_that_exist() -> None:
    for path, node in ALL:
        for rule in node.get("x-kubernetes-validations", ()):
            below = node
            for step in rule.get("fieldPath", "").split(".")[1:]:
                below = below["properties"][step]
            assert rule["message"], path


def test_kubectl_finds_it_and_shows_it_at_a_glance() -> None:
    spec = crd.definition()["spec"]
    assert spec["names"]["shortNames"] == ["arun"]
    assert spec["names"]["categories"] == ["all", "agents"]
    (version,) = spec["versions"]
    # Applying a manifest that was exported, status and all, leaves status to the operator.
    assert version["subresources"] == {"status": {}}
    shown = [column["name"] for column in version["additionalPrinterColumns"] if "priority" not in column]
    assert shown == ["Phase", "Reason", "Turns", "Tokens", "Budget", "Attempt", "Age"]
    assert version["selectableFields"] == [{"jsonPath": ".status.phase"}]
    for column in version["additionalPrinterColumns"]:
        below = SCHEMA
        if column["jsonPath"].startswith(".status"):
            for step in column["jsonPath"].split(".")[1:]:
                below = below["properties"][step]


@pytest.mark.parametrize("title", REFUSED)
def test_what_the_server_refuses_the_models_refuse_too(title: str) -> None:
    run = good()
    parse_object(run)
    REFUSED[title][0](run["spec"])
    with pytest.raises(ManifestError):
        parse_object(run)


@pytest.mark.parametrize("title", CHANGES)
def test_a_change_that_is_refused_is_one_of_what_runs(title: str) -> None:
    edit, message = CHANGES[title]
    before, after = good(), good()
    edit(after["spec"])
    same = definition_bytes(parse_object(before)) == definition_bytes(parse_object(after))
    assert same == (not message or title == "runID")
