"""The definition: what is stored once, compared by digest, and read by later releases."""

from __future__ import annotations

from typing import Any

import pytest

from agentrun.spec import (
    AgentRunSpec,
    ManifestError,
    definition_bytes,
    definition_digest,
    definition_from_bytes,
    parse_object,
    same_definition,
)

FULL: dict[str, Any] = {
    "prompt": "Grüße",
    "agent": {
        "instructionsFrom": {"configMapKeyRef": {"name": "texts", "key": "system.txt"}},
        "model": {
            "name": "openai:gpt-5",
            "apiKeyFrom": {"secretKeyRef": {"name": "keys", "key": "openai"}},
            "settings": {"temperature": 1, "stop": ["END"], "extra": {"b": 1, "a": 0.1}},
            "fallbacks": [{"name": "anthropic:claude"}],
        },
        "tools": [
            {"name": "t", "python": {"entrypoint": "a.b:c"}, "effect": "read_only"},
            {"agent": "bob"},
        ],
    },
    "agents": [{"name": "bob", "model": {"name": "scripted:b", "script": {"turns": [{"text": "x"}]}}}],
    "podTemplate": {"metadata": {"labels": {"a.b/c": "d"}}, "spec": {"nodeSelector": {"x": "y"}}},
}

GOLDEN = (
    '{"agent":{"instructionsFrom":{"configMapKeyRef":{"key":"system.txt","name":"texts"}},'
    '"model":{"apiKeyFrom":{"secretKeyRef":{"key":"openai","name":"keys"}},"fallbacks":[{"name":"anthropic:claude"}],'
    '"name":"openai:gpt-5","settings":{"extra":{"a":0.1,"b":1},"stop":["END"],"temperature":1}},'
    '"tools":[{"effect":"read_only","name":"t","python":{"entrypoint":"a.b:c"}},{"agent":"bob"}]},'
    '"agents":[{"model":{"name":"scripted:b","script":{"turns":[{"text":"x"}]}},"name":"bob"}],'
    '"podTemplate":{"metadata":{"labels":{"a.b/c":"d"}},"spec":{"nodeSelector":{"x":"y"}}},"prompt":"Grüße"}'
)
"""As it is written. Stored definitions are compared with it: what changes it leaves runs without heirs."""

BEFORE = GOLDEN.replace('"temperature":1}', '"temperature":1.0}')
"""As it was written before whole numbers became integers."""


def definition(tree: dict[str, Any], **changes: Any) -> bytes:
    return definition_bytes(parse_object(tree | {"spec": FULL | changes}))


def test_a_definition_reads_back_as_the_same_spec(tree: dict[str, Any]) -> None:
    run = parse_object(tree | {"spec": FULL})
    assert definition_from_bytes(definition_bytes(run)) == run.spec


def test_the_bytes_are_the_same_in_every_release(tree: dict[str, Any]) -> None:
    assert definition(tree).decode() == GOLDEN


def test_a_definition_that_was_stored_before_is_still_the_same(tree: dict[str, Any]) -> None:
    assert BEFORE != GOLDEN
    assert same_definition(BEFORE.encode(), definition(tree))
    assert same_definition(GOLDEN.encode(), definition(tree))


@pytest.mark.parametrize(
    "stored", ["", "no JSON", "{}", "NaN", "[" * 100_000, BEFORE.replace("1.0", "1.5"), BEFORE + " x"]
)
def test_another_definition_is_not_the_same(tree: dict[str, Any], stored: str) -> None:
    assert not same_definition(stored.encode(), definition(tree))


NUMBERS = {
    "whole": (1.0, "1"),
    "nothing": (0.0, "0"),
    "nothing, below": (-0.0, "0"),
    "negative": (-3.0, "-3"),
    "with an exponent": (1e3, "1000"),
    "the largest that is exact": (2.0**53 - 1, "9007199254740991"),
    "beyond what is exact": (2.0**53, "9007199254740992.0"),
    "a large integer": (2**53 + 1, "9007199254740993"),
    "a part": (0.5, "0.5"),
    "yes": (True, "true"),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_whole_numbers_are_written_as_the_api_server_gives_them_back(tree: dict[str, Any], name: str) -> None:
    number, text = NUMBERS[name]
    model = {"name": "openai:gpt-5", "settings": {"extra": {"deep": [{"n": number}]}}}
    assert f'"n":{text}}}' in definition(tree, agent={"model": model}).decode()


def test_what_may_change_and_the_run_id_are_no_part_of_it(tree: dict[str, Any]) -> None:
    changes: dict[str, Any] = {
        "runID": "0b0e6a52-6f0f-4a8e-9f53-0b7c5a3f5e11",
        "budget": {"tokens": 5},
        "suspend": True,
        "shutdown": "Stop",
        "retryToken": "a",
        "ttlSecondsAfterFinished": 5,
    }
    assert definition(tree, **changes) == definition(tree)


def test_a_default_that_is_written_out_changes_nothing(tree: dict[str, Any]) -> None:
    assert definition(tree, concurrency=16, podRetentionPolicy="OnFailure") == definition(tree)


@pytest.mark.parametrize(
    "change", [{"prompt": "x"}, {"concurrency": 2}, {"terminationGracePeriodSeconds": 5}]
)
def test_what_runs_changes_the_digest(tree: dict[str, Any], change: dict[str, Any]) -> None:
    assert definition_digest(definition(tree, **change)) != definition_digest(definition(tree))


def test_the_digest_is_sha_256_in_hex() -> None:
    assert definition_digest(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_a_definition_of_a_later_release_is_refused_by_name() -> None:
    with pytest.raises(ManifestError) as caught:
        definition_from_bytes(b'{"prompt":"a","agent":{"model":{"name":"openai:x"},"hovercraft":1}}')
    assert str(caught.value).startswith("the stored definition: spec.agent.hovercraft: unknown field")
    with pytest.raises(ManifestError, match="the stored definition: is not JSON"):
        definition_from_bytes(b"\x00")


def test_it_is_bounded_also_when_several_scripts_are_inlined(tree: dict[str, Any]) -> None:
    script = {"turns": [{"text": "x" * 60000}] * 8}
    agents = [{"name": f"a{n}", "model": {"name": "scripted:a", "script": script}} for n in range(3)]
    with pytest.raises(ManifestError, match="spec: must be at most 1048576 bytes with its scripts"):
        parse_object(tree | {"spec": FULL | {"agents": [*FULL["agents"], *agents]}})


def test_every_field_of_the_spec_is_either_fixed_or_known_to_change() -> None:
    mutable = {"run_id", "budget", "suspend", "shutdown", "retry_token", "ttl_seconds_after_finished"}
    assert mutable < set(AgentRunSpec.model_fields)
