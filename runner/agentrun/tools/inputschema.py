"""Makes the JSON schema of a server's tool one that every provider takes. Pure; called by `offer`.

Servers send schemas that are no JSON schemas, or that one provider or another refuses,
and with one of them a provider refuses the whole request. Invariant: what comes out has
the type object and properties, at its top no `oneOf` and the like, and below nothing
whose form is wrong; what cannot be made so raises `Unusable`. Nothing that a schema
requires is lost without a word: where it cannot be said, it is said in the description.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

SCHEMA_BYTES_MAX = 64 * 1024
DEPTH_MAX = 50
ALTERNATIVES_CHARACTERS_MAX = 2000
ALTERNATIVES_MAX = 500
"""Schemas that are put together at the top; each may refer to two of the next kind, and so on."""

TYPES = frozenset(("object", "array", "string", "number", "integer", "boolean", "null"))
_INDEX = re.compile(r"\d{1,9}")
_PROPERTY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_OF_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = ("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else")
_BOUNDS = ("exclusiveMinimum", "exclusiveMaximum")
_TEXTS = ("title", "description", "pattern", "format")
_LEFT_OUT = ("$schema", "$id", "$anchor", "$comment", "$vocabulary", "id")
_ALTERNATIVES = ("oneOf", "anyOf")
_NOT_AT_TOP = ("oneOf", "anyOf", "allOf", "not", "enum", "const", "if", "then", "else", "nullable", "default")


class Unusable(ValueError):
    """No provider would take this; the text says why."""


def normalised(schema: Any) -> tuple[dict[str, Any], list[str]]:
    """The schema of an object, and what was left out of it (a few words each). Raises Unusable."""
    if schema is None or schema is True:
        schema = {}
    if not isinstance(schema, Mapping):
        raise Unusable("its schema is no JSON object")
    clean = _Cleaner(schema).schema(schema, 0)
    merged = _Merger(clean).merged(clean, frozenset())
    kind = merged.pop("type", "object")
    if kind != "object" and "object" not in kind:
        raise Unusable(f"its arguments are of type {json.dumps(kind)[:60]}, and not an object")
    merged["required"] = [name for name in merged["required"] if name in merged["properties"]]
    merged = _Cleaner(merged).schema({"type": "object", **merged}, 0)  # references may lead nowhere now
    left_out = _odd_properties(merged)
    try:
        size = len(json.dumps(merged, allow_nan=False, ensure_ascii=False).encode())
    except (TypeError, ValueError):
        raise Unusable("its schema holds what JSON does not know") from None
    if size > SCHEMA_BYTES_MAX:
        raise Unusable(f"its schema has {size} bytes, and may have {SCHEMA_BYTES_MAX}")
    return merged, left_out


class _Cleaner:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root

    def schema(self, value: Any, depth: int) -> dict[str, Any]:
        """One schema, and those below it."""
        if depth > DEPTH_MAX:
            raise Unusable(f"its schema is nested deeper than {DEPTH_MAX} levels")
        if value is False:
            return {"not": {}}
        if not isinstance(value, Mapping):
            return {}
        found = {key: item for key, item in value.items() if isinstance(key, str) and key not in _LEFT_OUT}
        for key in [key for key in found if key in _KEEPERS]:
            kept = _KEEPERS[key](self, found[key], depth)
            if kept is None:
                del found[key]
            else:
                found[key] = kept
        types = found.get("type", ())
        if "object" in ((types,) if isinstance(types, str) else types):
            found.setdefault("properties", {})
        if "array" in ((types,) if isinstance(types, str) else types):
            found.setdefault("items", {})
        return found

    def _type(self, value: Any, _depth: int) -> Any:
        if isinstance(value, list):
            known = [item for item in value if isinstance(item, str) and item in TYPES]
            return known or None
        return value if isinstance(value, str) and value in TYPES else None

    def _map(self, value: Any, depth: int) -> Any:
        if not isinstance(value, Mapping):
            return None
        return {key: self.schema(item, depth + 1) for key, item in value.items() if isinstance(key, str)}

    def _list(self, value: Any, depth: int) -> Any:
        found = [self.schema(item, depth + 1) for item in value] if isinstance(value, list) else []
        return found or None

    def _single(self, value: Any, depth: int) -> Any:
        if isinstance(value, list):  # of the drafts before 2020-12: one schema a place
            return {"anyOf": found} if (found := self._list(value, depth)) else {}
        if isinstance(value, bool):
            return value
        return self.schema(value, depth + 1) if isinstance(value, Mapping) else None

    def _required(self, value: Any, _depth: int) -> Any:
        if not isinstance(value, list):
            return None
        return list(dict.fromkeys(item for item in value if isinstance(item, str))) or None

    def _enum(self, value: Any, _depth: int) -> Any:
        return value if isinstance(value, list) and value else None

    def _text(self, value: Any, _depth: int) -> Any:
        return value if isinstance(value, str) else None

    def _bound(self, value: Any, _depth: int) -> Any:
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None

    def _ref(self, value: Any, _depth: int) -> Any:
        """A reference that leads nowhere says nothing, and is left out."""
        return value if isinstance(value, str) and _target(self._root, value) is not None else None


_KEEPERS = {
    "type": _Cleaner._type,
    "required": _Cleaner._required,
    "enum": _Cleaner._enum,
    "$ref": _Cleaner._ref,
    **dict.fromkeys(_OF_SCHEMAS, _Cleaner._map),
    **dict.fromkeys(_LISTS, _Cleaner._list),
    **dict.fromkeys(_SINGLE, _Cleaner._single),
    **dict.fromkeys(_TEXTS, _Cleaner._text),
    **dict.fromkeys(_BOUNDS, _Cleaner._bound),
}


def _target(root: Mapping[str, Any], ref: str) -> Mapping[str, Any] | None:
    """The schema within `root` that a reference names."""
    if ref == "#":
        return root
    if not ref.startswith("#/"):
        return None
    found: Any = root
    for part in ref[2:].split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping) and key in found:
            found = found[key]
        elif isinstance(found, list) and _INDEX.fullmatch(key) and int(key) < len(found):
            found = found[int(key)]
        else:
            return None
    return found if isinstance(found, Mapping) else None


class _Merger:
    """Puts alternatives at the top of a schema together. What refers to itself adds nothing more."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._count = 0

    def merged(self, schema: Mapping[str, Any], seen: frozenset[str]) -> dict[str, Any]:
        """One object with the properties of all alternatives: what all of them require is required,
        and what more each of them asks for is said in words."""
        self._count += 1
        if self._count > ALTERNATIVES_MAX:
            raise Unusable(f"its arguments have more than {ALTERNATIVES_MAX} alternatives")
        schema, seen = self._resolved(schema, seen)
        properties: dict[str, Any] = dict(schema.get("properties") or {})
        required: list[str] = list(schema.get("required") or [])
        words = []
        for keyword in ("allOf", *_ALTERNATIVES):
            inner = [self.merged(part, seen) for part in schema.get(keyword, ())]
            asked = [part["required"] for part in inner]
            for part in inner:
                _add(properties, part["properties"])
            if keyword == "allOf":
                required += [name for names in asked for name in names]
            elif asked:
                required += [name for name in asked[0] if all(name in names for names in asked)]
                words.append(_in_words(keyword, asked))
        found = {key: item for key, item in schema.items() if key not in _NOT_AT_TOP}
        found["properties"] = properties
        found["required"] = list(dict.fromkeys(required))
        if said := [word for word in (found.get("description", ""), *words) if word]:
            found["description"] = "\n".join(said)
        return found

    def _resolved(
        self, schema: Mapping[str, Any], seen: frozenset[str]
    ) -> tuple[Mapping[str, Any], frozenset[str]]:
        """Without a reference at its top."""
        while isinstance(ref := schema.get("$ref"), str):
            own = {key: item for key, item in schema.items() if key != "$ref"}
            target = None if ref in seen else _target(self._root, ref)
            schema, seen = {**(target or {}), **own}, seen | {ref}
        return schema, seen


def _add(properties: dict[str, Any], more: Mapping[str, Any]) -> None:
    for name, item in more.items():
        known = properties.setdefault(name, item)
        if known != item:
            alternatives = known["anyOf"] if set(known) == {"anyOf"} else [known]
            properties[name] = {"anyOf": [*alternatives, item]} if item not in alternatives else known


def _in_words(keyword: str, asked: list[list[str]]) -> str:
    sets = list(dict.fromkeys(", ".join(names) for names in asked if names))
    if len(sets) < 2:
        return ""
    begin = "Exactly one" if keyword == "oneOf" else "At least one"
    return f"{begin} of these sets of arguments: {'; or '.join(sets)}."[:ALTERNATIVES_CHARACTERS_MAX]


def _odd_properties(schema: dict[str, Any]) -> list[str]:
    """Takes out arguments whose names a provider refuses; Unusable where one of them is required."""
    odd = [name for name in schema["properties"] if not _PROPERTY.fullmatch(name)]
    for name in odd:
        if name in schema.get("required", ()):
            raise Unusable(f"it requires an argument named {name[:60]!r}, which providers refuse")
        del schema["properties"][name]
    return [f"the argument {name[:60]!r}" for name in odd]
