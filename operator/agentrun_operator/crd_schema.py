"""From the typed models to a structural schema, as the API server takes it.

Used by `crd`. Invariants: every reference is written out, nothing has a default
(what runs never depends on the server's filling in), and every field keeps its
description and its bound. Unknown fields are pruned by the server, or refused
when the client asks it to (`kubectl` does).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

Schema = dict[str, Any]
Rules = Mapping[str, Sequence[Mapping[str, str]]]
"""CEL rules by the name of the model that they hold for, or `Model.field` for one field."""

KEPT = (
    "description",
    "type",
    "format",
    "enum",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-validations",
)
"""In the order in which they are written."""

_INT64_MAX = 2**63 - 1


def structural(model: type[BaseModel], rules: Rules) -> Schema:
    """The schema of one model, with every model inside it and their rules."""
    source = model.model_json_schema(by_alias=True)
    return _Flattener(source.get("$defs", {}), rules).model(source, model.__name__)


class _Flattener:
    """Writes references out; knows the definitions that they lead to."""

    def __init__(self, definitions: Mapping[str, Schema], rules: Rules) -> None:
        self._definitions = definitions
        self._rules = rules

    def model(self, source: Schema, name: str) -> Schema:
        result = self._node(source)
        if "properties" in source:
            result["properties"] = {
                field: self._field(name, field, schema) for field, schema in source["properties"].items()
            }
            if required := source.get("required"):
                result["required"] = list(required)
        return self._with_rules(result, name)

    def _field(self, model: str, field: str, source: Schema) -> Schema:
        return self._with_rules(self._value(source), f"{model}.{field}")

    def _with_rules(self, schema: Schema, name: str) -> Schema:
        rules = [dict(rule) for rule in self._rules.get(name, ())]
        if rules:
            schema["x-kubernetes-validations"] = [*schema.get("x-kubernetes-validations", ()), *rules]
        return schema

    def _value(self, source: Schema) -> Schema:
        """One value: a reference, an optional one, or a plain schema."""
        if "anyOf" in source:
            wanted = [part for part in source["anyOf"] if part != {"type": "null"}]
            if len(wanted) != 1:
                raise ValueError(f"a field of several types has no structural schema: {source}")
            rest = {key: value for key, value in source.items() if key != "anyOf"}
            return self._value({**wanted[0], **rest})
        if "$ref" in source:
            name = source["$ref"].rpartition("/")[2]
            result = self.model(self._definitions[name], name)
            # What the field says of itself is nearer than what its type says.
            if "description" in source:
                result["description"] = source["description"]
            return result
        return self._node(source)

    def _node(self, source: Schema) -> Schema:
        if "const" in source:
            source = {**source, "enum": [source["const"]]}
        result = {key: source[key] for key in KEPT if key in source}
        if "exclusiveMinimum" in source:
            result |= {"minimum": source["exclusiveMinimum"], "exclusiveMinimum": True}
        if result.get("type") == "integer":
            # That type has these bounds by itself; the server computes with them as floats,
            # and 2^63 - 1 overflows there to the least integer of all.
            result["format"] = "int64"
            if result.get("maximum") == _INT64_MAX:
                del result["maximum"]
            if result.get("minimum") == -_INT64_MAX - 1:
                del result["minimum"]
        if result.get("format") == "uuid":
            del result["format"]  # the server's takes more than ours, so the pattern stands alone
        if result.get("type") == "object" and result.pop("x-kubernetes-preserve-unknown-fields", False):
            # As a map of anything, and not as an object with unknown fields: of two such objects
            # CEL's == sees no difference when a key is renamed, and what runs must not change.
            result |= {
                "x-kubernetes-map-type": "atomic",
                "additionalProperties": {"x-kubernetes-preserve-unknown-fields": True},
            }
        if "items" in source:
            result["items"] = self._value(source["items"])
        extra = source.get("additionalProperties")
        if isinstance(extra, dict):
            result["additionalProperties"] = self._value(extra)
        return result
