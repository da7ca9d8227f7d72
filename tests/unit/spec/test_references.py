"""Secrets and texts that a manifest names instead of holding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentrun.spec import (
    AgentRunSpec,
    ManifestError,
    parse_object,
    resolve_secrets,
    resolve_texts,
    secret_env_name,
    secret_refs,
)


def secret(name: str, key: str) -> dict[str, Any]:
    return {"secretKeyRef": {"name": name, "key": key}}


def text(name: str, key: str) -> dict[str, Any]:
    return {"configMapKeyRef": {"name": name, "key": key}}


@pytest.fixture
def spec(tree: dict[str, Any]) -> AgentRunSpec:
    header = {"name": "Authorization", "valueFrom": secret("tool-keys", "search.token")}
    tree["spec"]["agent"] = {
        "model": {
            "name": "openai:gpt-5",
            "apiKeyFrom": secret("keys", "openai"),
            "fallbacks": [{"name": "anthropic:x", "apiKeyFrom": secret("keys", "anthropic")}],
        },
        "tools": [
            {
                "name": "search",
                "description": "x",
                "parameters": {"type": "object"},
                "http": {"url": "https://a", "headers": [{"name": "A", "value": "b"}, header]},
            }
        ],
    }
    return parse_object(tree).spec


def test_every_reference_is_found_with_its_path(spec: AgentRunSpec) -> None:
    assert [(path, ref.name, ref.key) for path, ref in secret_refs(spec)] == [
        ("spec.agent.model.apiKeyFrom.secretKeyRef", "keys", "openai"),
        ("spec.agent.model.fallbacks[0].apiKeyFrom.secretKeyRef", "keys", "anthropic"),
        ("spec.agent.tools[0].http.headers[1].valueFrom.secretKeyRef", "tool-keys", "search.token"),
    ]


def test_a_variable_is_named_after_secret_and_key() -> None:
    assert secret_env_name("tool-keys", "search.token") == "AGENTRUN_SECRET_TOOL_KEYS__SEARCH_TOKEN"


def test_secrets_come_from_the_environment(spec: AgentRunSpec) -> None:
    environ = {
        "AGENTRUN_SECRET_KEYS__OPENAI": "a",
        "AGENTRUN_SECRET_KEYS__ANTHROPIC": "b",
        "AGENTRUN_SECRET_TOOL_KEYS__SEARCH_TOKEN": "c",
    }
    values = resolve_secrets(spec, environ)
    assert values == {("keys", "openai"): "a", ("keys", "anthropic"): "b", ("tool-keys", "search.token"): "c"}


def test_each_missing_secret_is_named_with_the_variable_to_set(spec: AgentRunSpec) -> None:
    environ = {"AGENTRUN_SECRET_KEYS__OPENAI": "sesame", "AGENTRUN_SECRET_KEYS__ANTHROPIC": ""}
    with pytest.raises(ManifestError) as caught:
        resolve_secrets(spec, environ, source="x.yaml")
    assert str(caught.value).split("\n") == [
        "x.yaml: spec.agent.model.fallbacks[0].apiKeyFrom.secretKeyRef: key 'anthropic' of Secret 'keys' "
        "has no value: set AGENTRUN_SECRET_KEYS__ANTHROPIC, which is empty",
        "x.yaml: spec.agent.tools[0].http.headers[1].valueFrom.secretKeyRef: key 'search.token' of Secret "
        "'tool-keys' has no value: set AGENTRUN_SECRET_TOOL_KEYS__SEARCH_TOKEN, which is not set",
    ]
    assert "sesame" not in str(caught.value)


def test_two_secrets_never_share_a_variable(tree: dict[str, Any]) -> None:
    model = tree["spec"]["agent"]["model"]
    model["apiKeyFrom"] = secret("a-b", "k")
    model["fallbacks"] = [{"name": "openai:x", "apiKeyFrom": secret("a.b", "k")}]
    with pytest.raises(ManifestError) as caught:
        parse_object(tree)
    assert str(caught.value) == (
        "spec.agent.model.fallbacks[0].apiKeyFrom.secretKeyRef: has the same environment variable, "
        "AGENTRUN_SECRET_A_B__K, as key 'k' of Secret 'a-b'; rename one of them"
    )


# Texts


@pytest.fixture
def referring(tree: dict[str, Any]) -> AgentRunSpec:
    del tree["spec"]["prompt"]
    tree["spec"]["promptFrom"] = text("texts", "prompt.txt")
    tree["spec"]["agent"]["instructionsFrom"] = text("texts", "system.txt")
    tree["spec"]["agents"] = [
        {"name": "bob", "model": {"name": "openai:x"}, "instructionsFrom": text("texts", "bob.txt")}
    ]
    return parse_object(tree).spec


def test_texts_are_read_from_the_folder_and_inlined(referring: AgentRunSpec, tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    for name in ("prompt", "system", "bob"):
        (tmp_path / "texts" / f"{name}.txt").write_text(f"{name}\n")
    spec = resolve_texts(referring, tmp_path)
    assert (spec.prompt, spec.prompt_from) == ("prompt\n", None)
    assert spec.agent is not None
    assert (spec.agent.instructions, spec.agent.instructions_from) == ("system\n", None)
    assert spec.agents[0].instructions == "bob\n"
    assert referring.prompt is None


def test_each_text_that_cannot_be_used_is_named(referring: AgentRunSpec, tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "system.txt").write_bytes(b"a\xff")
    (folder / "bob.txt").write_text("x" * 65537)
    with pytest.raises(ManifestError) as caught:
        resolve_texts(referring, tmp_path)
    assert str(caught.value).split("\n") == [
        "spec.promptFrom.configMapKeyRef: key 'prompt.txt' of ConfigMap 'texts' cannot be read: "
        f"{folder / 'prompt.txt'}: No such file or directory",
        "spec.agent.instructionsFrom.configMapKeyRef: key 'system.txt' of ConfigMap 'texts' must be UTF-8, "
        f"and byte 2 of {folder / 'system.txt'} is not",
        "spec.agents[0].instructionsFrom.configMapKeyRef: key 'bob.txt' of ConfigMap 'texts' must be at most "
        f"65536 bytes of UTF-8, and {folder / 'bob.txt'} has more",
    ]


def test_without_a_folder_the_variable_to_set_is_named(referring: AgentRunSpec) -> None:
    with pytest.raises(
        ManifestError, match=r"set AGENTRUN_CONFIG_DIR to the folder that holds texts/prompt\.txt"
    ):
        resolve_texts(referring, None)


def test_a_spec_without_references_comes_back_equal(spec: AgentRunSpec) -> None:
    assert resolve_texts(spec, None) == spec
