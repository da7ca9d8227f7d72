"""What loads, and as what."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from agentrun.spec import (
    AgentRun,
    AgentRunSpec,
    AgentSpec,
    Budget,
    ManifestError,
    ModelSpec,
    OnExceeded,
    OnUnknown,
    PodRetentionPolicy,
    load_manifest,
    parse_object,
)

Load = Callable[..., AgentRun]


def test_the_defaults_are_those_that_the_reference_names(load: Load) -> None:
    spec = load().spec
    assert spec.budget == Budget(
        tokens=None, wall_seconds=None, turns=100, retries=10, on_exceeded=OnExceeded.PAUSE
    )
    assert (spec.concurrency, spec.suspend, spec.termination_grace_period_seconds) == (16, False, 30)
    assert spec.pod_retention_policy is PodRetentionPolicy.ON_FAILURE
    assert spec.agent is not None
    tool = spec.agent.tools[0]
    assert (tool.effect, tool.on_unknown, tool.timeout_seconds) == (None, OnUnknown.REPORT, 60)


def test_json_and_yaml_give_the_same_run(tree: dict[str, Any]) -> None:
    text = json.dumps(tree)
    assert load_manifest(text, source="x.json", base_dir=None) == parse_object(tree)
    assert load_manifest(
        json.dumps(tree, indent="\t").encode(), source="x.json", base_dir=None
    ) == parse_object(tree)


def test_a_flow_mapping_that_is_no_json_is_read_as_yaml() -> None:
    head = "apiVersion: agentrun.dev/v1alpha1, kind: AgentRun, metadata: {name: a}"
    text = f"{{{head}, spec: {{program: {{entrypoint: 'a:b'}}}}}}"
    assert load_manifest(text, source="x.yaml", base_dir=None).metadata.name == "a"


def test_a_byte_order_mark_and_empty_documents_do_no_harm(good_text: str) -> None:
    text = b"\xef\xbb\xbf---\n" + good_text.encode() + b"---\n"
    assert load_manifest(text, source="x.yaml", base_dir=None).metadata.name == "good"


def test_an_exported_object_loads_again(tree: dict[str, Any]) -> None:
    before = parse_object(tree)
    tree["metadata"] |= {
        "uid": "x",
        "resourceVersion": "12",
        "generation": 2,
        "creationTimestamp": "2025-01-01T00:00:00Z",
        "managedFields": [{"fieldsV1": {"f:spec": {}}}],
        "ownerReferences": [],
        "finalizers": [],
    }
    tree["status"] = {"phase": "Succeeded", "anything": float("nan")}
    assert parse_object(tree) == before


def test_an_empty_value_counts_as_left_out(tree: dict[str, Any]) -> None:
    before = parse_object(tree)
    tree["spec"] |= {"budget": None, "agents": None, "runID": None, "suspend": None}
    assert parse_object(tree) == before


def test_unquoted_dates_and_versions_stay_text(load: Load) -> None:
    assert load("prompt: Say hello.", "prompt: 2025-01-01").spec.prompt == "2025-01-01"
    assert load("prompt: Say hello.", "prompt: 1.2.3").spec.prompt == "1.2.3"
    assert load("prompt: Say hello.", "prompt: !!str 12").spec.prompt == "12"


@pytest.mark.parametrize(
    ("written", "value"), [("0x10", 16), ("0o20", 16), ("020", 16), ("0b10000", 16), ("1_6", 16), ("+16", 16)]
)
def test_numbers_are_read_as_kubectl_reads_them(load: Load, written: str, value: int) -> None:
    run = load("prompt: Say hello.", f"prompt: Say hello.\n  concurrency: {written}")
    assert run.spec.concurrency == value


def test_aliases_stand_for_their_anchor(load: Load) -> None:
    run = load("prompt: Say hello.", "prompt: &p Say hello.\n  retryToken: *p")
    assert run.spec.retry_token == "Say hello."


def test_a_run_id_is_a_uuid(load: Load) -> None:
    run = load("prompt: Say hello.", "prompt: a\n  runID: 0B0E6A52-6f0f-4a8e-9f53-0b7c5a3f5e11")
    assert run.spec.run_id == uuid.UUID("0b0e6a52-6f0f-4a8e-9f53-0b7c5a3f5e11")


def test_a_program_needs_no_prompt_and_may_have_one(tree: dict[str, Any]) -> None:
    del tree["spec"]["agent"]
    tree["spec"]["program"] = {"entrypoint": "pkg.mod:main", "input": {"n": 1}}
    assert parse_object(tree).spec.prompt == "Say hello."
    del tree["spec"]["prompt"]
    program = parse_object(tree).spec.program
    assert program is not None
    assert program.input == {"n": 1}


def test_sub_agents_may_call_each_other_in_a_circle(tree: dict[str, Any]) -> None:
    model = {"name": "openai:gpt-5"}
    tree["spec"]["agents"] = [
        {"name": "ann", "model": model, "tools": [{"agent": "bob"}]},
        {"name": "bob", "model": model, "tools": [{"agent": "ann", "name": "ask_ann"}, {"agent": "bob"}]},
    ]
    tools = parse_object(tree).spec.agents[1].tools
    assert [tool.tool_name for tool in tools] == ["ask_ann", "bob"]


def test_scripted_arguments_may_be_a_mapping_or_raw_text(load: Load) -> None:
    turn = "- toolCalls: [{name: add, arguments: {a: 1}}, {name: add, arguments: '{broken'}, {name: add}]"
    agent = load("- text: Hello.", turn).spec.agent
    assert agent is not None
    script = agent.model.script
    assert script is not None
    assert [call.arguments for call in script.turns[0].tool_calls] == [{"a": 1}, "{broken", {}]


def test_models_are_frozen_and_take_python_names() -> None:
    spec = AgentRunSpec(
        prompt="a", agent=AgentSpec(model=ModelSpec(name="openai:x")), start_deadline_seconds=5
    )
    with pytest.raises(ValidationError):
        spec.prompt = "b"  # type: ignore[misc]


# Scripts in files

SCRIPT = "      script:\n        turns:\n          - text: Hello.\n"


def test_a_script_file_is_inlined(load: Load, tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "a.yaml").write_text("turns: [{text: From a file.}]")
    agent = load(SCRIPT, "      scriptFile: scripts/a.yaml\n", tmp_path).spec.agent
    assert agent is not None
    assert agent.model.script is not None
    assert agent.model.script.turns[0].text == "From a file."
    assert agent.model.script_file is None


SCRIPT_FILES = [
    ("none.yaml", "'none.yaml' cannot be read: No such file or directory"),
    ("../up.yaml", "must be a file in the manifest's folder or below, not '../up.yaml'"),
    ("/etc/hostname", "must be a file in the manifest's folder or below, not '/etc/hostname'"),
    ("link.yaml", "must be a file in the manifest's folder or below, not 'link.yaml'"),
    (".", "must be a file, and '.' is none"),
    (
        "broken.yaml",
        "'broken.yaml': line 1, column 5: not valid YAML: "
        "a second ':' in one line; put text that holds ': ' in quotes",
    ),
    ("big.yaml", "must name a file of at most 524288 bytes, and 'big.yaml' has more"),
]


@pytest.mark.parametrize(("name", "message"), SCRIPT_FILES)
def test_a_script_file_that_cannot_be_used_is_named(
    load: Load, tmp_path: Path, name: str, message: str
) -> None:
    folder = tmp_path / "manifests"
    folder.mkdir()
    (tmp_path / "up.yaml").write_text("turns: [{text: a}]")
    (folder / "link.yaml").symlink_to(tmp_path / "up.yaml")
    (folder / "broken.yaml").write_text("a: b: c")
    (folder / "big.yaml").write_text("#" * 524289)
    with pytest.raises(ManifestError) as caught:
        load(SCRIPT, f"      scriptFile: {name}\n", folder)
    assert str(caught.value) == f"x.yaml: spec.agent.model.scriptFile: {message}"


def test_a_mistake_in_a_script_file_is_told_with_its_place(load: Load, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("turns: [{text: 1}]")
    with pytest.raises(ManifestError) as caught:
        load(SCRIPT, "      scriptFile: a.yaml\n", tmp_path)
    assert caught.value.problems[0].path == "spec.agent.model.script.turns[0].text"
