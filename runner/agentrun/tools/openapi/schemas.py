"""Schemas of an OpenAPI document as JSON schemas that stand by themselves. Pure.

Called by `plan` for each parameter and body. Invariants: what is referred to comes along
in `$defs`, each once, so that a schema that refers to itself ends; the dialect of 3.0
(`nullable`, a boolean `exclusiveMinimum`) becomes that of JSON schema.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Mapping
from typing import Any

from agentrun.tools.openapi.document import BadOperation, Document

DEPTH_MAX = 48
_SCHEMAS = ("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else")
_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_LEFT_OUT = ("discriminator", "xml", "externalDocs", "example", "examples", "readOnly", "writeOnly")
_BOUNDS = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}


class Schemas:
    """The schemas of one operation. `definitions`: what they refer to, whole after `complete`."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._names: dict[str, str] = {}
        self._waiting: deque[str] = deque()
        self.definitions: dict[str, Any] = {}

    def converted(self, schema: Any, depth: int = 0) -> Any:
        """One schema, as JSON schema."""
        if depth > DEPTH_MAX:
            raise BadOperation(f"a schema is nested deeper than {DEPTH_MAX} levels")
        if not isinstance(schema, Mapping):
            return schema if isinstance(schema, bool) else {}
        found = {key: value for key, value in schema.items() if key not in _LEFT_OUT and key != "nullable"}
        if isinstance(ref := found.get("$ref"), str):
            found["$ref"] = f"#/$defs/{self._defined(ref)}"
        for key in _SCHEMAS:
            if key in found:
                found[key] = self.converted(found[key], depth + 1)
        for key in _MAPS:
            if isinstance(inner := found.get(key), Mapping):
                found[key] = {name: self.converted(item, depth + 1) for name, item in inner.items()}
        for key in _LISTS:
            if isinstance(items := found.get(key), list):
                found[key] = [self.converted(item, depth + 1) for item in items]
        self._without_read_only(schema, found)
        if self._document.is_30:
            _from_30(schema, found)
        return found

    def complete(self, bytes_max: int) -> bool:
        """Brings along what the schemas refer to. False: it is more than that, and not all is there.

        One after the other, for a chain of references may be longer than Python's stack; and no further
        than to the bound, for each of a thousand operations may refer to all of a large document."""
        size = 0
        while self._waiting:
            ref = self._waiting.popleft()
            found = self.converted(self._document.target(ref))
            self.definitions[self._names[ref]] = found
            size += len(json.dumps(found, default=str))
            if size > bytes_max:
                return False
        return True

    def followed(self, schema: Any) -> Mapping[str, Any]:
        """A schema without a reference at its top; nothing where there is none."""
        return self._document.followed(schema) if isinstance(schema, Mapping) else {}

    def _defined(self, ref: str) -> str:
        """The name in `$defs` of what a reference names."""
        if ref not in self._names:
            base = re.sub(r"[^A-Za-z0-9_.-]", "_", ref.rpartition("/")[2])[:64] or "root"
            name = base
            number = 2
            while name in self.definitions:
                name, number = f"{base}_{number}", number + 1
            self._names[ref] = name
            self.definitions[name] = {}  # until it is complete
            self._waiting.append(ref)
        return self._names[ref]

    def _without_read_only(self, schema: Mapping[str, Any], found: dict[str, Any]) -> None:
        """What only an answer has is never sent."""
        properties = schema.get("properties")
        if not isinstance(properties, Mapping):
            return
        gone = {n for n, p in properties.items() if isinstance(p, Mapping) and p.get("readOnly") is True}
        if gone:
            found["properties"] = {n: p for n, p in found["properties"].items() if n not in gone}
            if isinstance(found.get("required"), list):
                found["required"] = [name for name in found["required"] if name not in gone]


def _from_30(schema: Mapping[str, Any], found: dict[str, Any]) -> None:
    for exclusive, bound in _BOUNDS.items():
        if isinstance(found.get(exclusive), bool) and found.pop(exclusive) and bound in found:
            found[exclusive] = found.pop(bound)
    if schema.get("nullable") is not True:
        return
    if isinstance(found.get("type"), str):
        found["type"] = [found["type"], "null"]
        if isinstance(found.get("enum"), list) and None not in found["enum"]:
            found["enum"] = [*found["enum"], None]
    elif "$ref" in found or any(key in found for key in _LISTS):
        inner = dict(found)
        found.clear()
        found["anyOf"] = [inner, {"type": "null"}]
