"""Odd schemas of servers' tools, and what providers are sent in their place."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest

from agentrun.tools.inputschema import SCHEMA_BYTES_MAX, TYPES, Unusable, normalised

STRING = {"type": "string"}
EMPTY = {"type": "object", "properties": {}}


def obj(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


CASES: dict[str, tuple[Any, Any]] = {
    "none": (None, EMPTY),
    "empty": ({}, EMPTY),
    "true": (True, EMPTY),
    "object without properties": ({"type": "object"}, EMPTY),
    "properties are null": ({"type": "object", "properties": None}, EMPTY),
    "required is null": ({**obj(a=STRING), "required": None}, obj(a=STRING)),
    "required is empty": ({**obj(a=STRING), "required": []}, obj(a=STRING)),
    "required twice": ({**obj(a=STRING), "required": ["a", "a"]}, {**obj(a=STRING), "required": ["a"]}),
    "required and not there": ({**obj(a=STRING), "required": ["b"]}, obj(a=STRING)),
    "additionalProperties": (
        {"type": "object", "additionalProperties": {}},
        {**EMPTY, "additionalProperties": {}},
    ),
    "additionalProperties with a schema": (
        {"type": "object", "additionalProperties": {"type": "object"}},
        {**EMPTY, "additionalProperties": EMPTY},
    ),
    "additionalProperties is false": (
        {"type": "object", "additionalProperties": False},
        {**EMPTY, "additionalProperties": False},
    ),
    "an object below": ({"type": "object", "properties": {"a": {"type": "object"}}}, obj(a=EMPTY)),
    "may be null": (obj(a={"type": ["string", "null"]}), obj(a={"type": ["string", "null"]})),
    "array without items": (obj(a={"type": "array"}), obj(a={"type": "array", "items": {}})),
    "array or null": (
        obj(a={"type": ["array", "null"]}),
        obj(a={"type": ["array", "null"], "items": {}}),
    ),
    "items in a list": (
        obj(a={"type": "array", "items": [STRING, {"type": "number"}]}),
        obj(a={"type": "array", "items": {"anyOf": [STRING, {"type": "number"}]}}),
    ),
    "object or null at the top": ({"type": ["object", "null"]}, EMPTY),
    "no type at the top": ({"properties": {"a": STRING}}, obj(a=STRING)),
    "property named type": (obj(type=STRING), obj(type=STRING)),
    "property with a dot": (obj(**{"a.b": STRING}), obj(**{"a.b": STRING})),
    "enum of mixed types": (obj(a={"enum": [1, "x", None]}), obj(a={"enum": [1, "x", None]})),
    "empty enum": (obj(a={"type": "string", "enum": []}), obj(a=STRING)),
    "an unknown type": (obj(a={"type": "date"}), obj(a={})),
    "a boolean bound": (
        obj(a={"type": "number", "exclusiveMinimum": True}),
        obj(a={"type": "number"}),
    ),
    "$schema and $id": ({"$schema": "x", "$id": "y", **obj(a=STRING)}, obj(a=STRING)),
    "a boolean schema": (obj(a=True, b=False), obj(a={}, b={"not": {}})),
    "reference at the top": (
        {"$ref": "#/$defs/A", "$defs": {"A": obj(a=STRING)}},
        {**obj(a=STRING), "$defs": {"A": obj(a=STRING)}},
    ),
    "reference that leads nowhere": (obj(a={"$ref": "#/$defs/B"}), obj(a={})),
    "reference to a place in a list with very many digits": (
        {**obj(a=STRING), "allOf": [{"$ref": f"#/allOf/{'9' * 5000}"}]},
        obj(a=STRING),
    ),
    "reference to somewhere else": (obj(a={"$ref": "other.json"}), obj(a={})),
    "recursive reference": (
        {**obj(a={"$ref": "#/$defs/N"}), "$defs": {"N": obj(next={"$ref": "#/$defs/N"})}},
        {**obj(a={"$ref": "#/$defs/N"}), "$defs": {"N": obj(next={"$ref": "#/$defs/N"})}},
    ),
    "it refers to itself": ({"$ref": "#"}, EMPTY),
    "it is part of itself": ({"allOf": [{"$ref": "#"}, obj(a=STRING)]}, obj(a=STRING)),
    "allOf": (
        {"allOf": [{**obj(a=STRING), "required": ["a"]}, obj(b=STRING)]},
        {**obj(a=STRING, b=STRING), "required": ["a"]},
    ),
    "oneOf": (
        {"oneOf": [{**obj(a=STRING), "required": ["a"]}, {**obj(b=STRING), "required": ["b"]}]},
        {**obj(a=STRING, b=STRING), "description": "Exactly one of these sets of arguments: a; or b."},
    ),
    "oneOf with something in common": (
        {
            "type": "object",
            "oneOf": [
                {**obj(k={"const": "x"}, a=STRING), "required": ["k", "a"]},
                {**obj(k={"const": "y"}), "required": ["k"]},
            ],
        },
        {
            **obj(k={"anyOf": [{"const": "x"}, {"const": "y"}]}, a=STRING),
            "required": ["k"],
            "description": "Exactly one of these sets of arguments: k, a; or k.",
        },
    ),
    "anyOf of what is required": (
        {**obj(a=STRING, b=STRING), "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {
            **obj(a=STRING, b=STRING),
            "description": "At least one of these sets of arguments: a; or b.",
        },
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_an_odd_schema_becomes_one_that_providers_take(name: str) -> None:
    given, expected = CASES[name]
    before = json.dumps(given)
    found, left_out = normalised(given)
    assert found == expected
    assert not left_out
    assert json.dumps(given) == before, "what the server gave was changed"
    assert normalised(found)[0] == found


DEEP: dict[str, Any] = {}
for _ in range(100):
    DEEP = {"type": "object", "properties": {"a": DEEP}}


def twice(name: str) -> dict[str, Any]:
    return {"anyOf": [{"$ref": f"#/$defs/{name}"}, {"$ref": f"#/$defs/{name}"}]}


FORKS = {
    "$defs": {"A0": obj(a=STRING), **{f"A{n}": twice(f"A{n - 1}") for n in range(1, 40)}},
    **twice("A39"),
}
"""Small, and a million million alternatives when they are put together."""

UNUSABLE = {
    "alternatives of alternatives": (FORKS, "more than 500 alternatives"),
    "a list": ([], "no JSON object"),
    "a text": ("object", "no JSON object"),
    "a string": ({"type": "string"}, 'of type "string"'),
    "deep": (DEEP, "nested deeper"),
    "large": (obj(a={"description": "x" * SCHEMA_BYTES_MAX}), "bytes"),
    "not JSON": (obj(a={"default": float("nan")}), "JSON does not know"),
    "a required name that is refused": ({**obj(**{"$schema": STRING}), "required": ["$schema"]}, "'$schema'"),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_what_no_provider_takes_is_refused_with_a_reason(name: str) -> None:
    given, reason = UNUSABLE[name]
    with pytest.raises(Unusable, match=re.escape(reason)):
        normalised(given)


def test_an_argument_whose_name_is_refused_is_left_out_and_told() -> None:
    found, left_out = normalised(obj(**{"$schema": STRING, "a": STRING, "x" * 65: STRING}))
    assert found == obj(a=STRING)
    assert left_out == ["the argument '$schema'", f"the argument '{'x' * 60}'"]


def well_formed(schema: Any, path: str = "") -> None:
    """What a strict provider checks."""
    assert isinstance(schema, dict | bool), path
    if isinstance(schema, bool):
        return
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    assert set(types) <= TYPES, path
    assert "object" not in types or isinstance(schema.get("properties"), dict), path
    assert "array" not in types or "items" in schema, path
    assert schema.get("required", ["x"]), path
    for key in ("properties", "$defs", "definitions", "patternProperties"):
        for name, item in schema.get(key, {}).items():
            well_formed(item, f"{path}/{key}/{name}")
    for key in ("anyOf", "oneOf", "allOf"):
        for item in schema.get(key, ()):
            well_formed(item, f"{path}/{key}")
    for key in ("items", "additionalProperties", "not"):
        well_formed(schema.get(key, True), f"{path}/{key}")


KEYS = [
    "type", "properties", "required", "items", "anyOf", "oneOf", "allOf", "enum", "not", "$ref", "$defs",
    "additionalProperties", "description", "const", "exclusiveMinimum", "definitions", "default",
]  # fmt: skip
LEAVES: list[Any] = [
    None,
    True,
    False,
    0,
    1.5,
    "object",
    "array",
    "#",
    "#/$defs/a",
    "#/properties/a",
    "x",
    [],
    {},
    ["a"],
]


def anything(rng: random.Random, depth: int) -> Any:
    choice = rng.random()
    if depth == 0 or choice < 0.25:
        return rng.choice(LEAVES)
    if choice < 0.4:
        return [anything(rng, depth - 1) for _ in range(rng.randrange(3))]
    names = KEYS if rng.random() < 0.7 else ["a", "b", "$c"]
    return {rng.choice(names): anything(rng, depth - 1) for _ in range(rng.randrange(5))}


@pytest.mark.parametrize("seed", range(200))
def test_whatever_a_server_sends_the_outcome_is_a_good_schema_or_a_reason(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(20):
        given = anything(rng, 6)
        try:
            found, _ = normalised(given)
        except Unusable:
            continue
        assert found["type"] == "object"
        well_formed(found)
        assert normalised(found)[0] == found
