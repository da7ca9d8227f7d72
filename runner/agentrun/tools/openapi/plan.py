"""From an operation to a tool: its arguments' schema, and where each argument goes. Pure.

Called by `server` once an operation; what it gives is recorded, and `request` makes each
call from it. Invariants: an argument has a name that every provider takes, and two never
share one; a plan holds all that a call needs, so that a document that changes meanwhile
changes nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from agentrun.tools.openapi.document import BadOperation, Document, Operation
from agentrun.tools.openapi.schemas import Schemas

SCHEMA_BYTES_MAX = 48 * 1024
"""A body whose schema is larger is described in words only."""

_PLACES = ("path", "query", "header", "cookie")
_STYLES = {
    "path": ("simple",),
    "header": ("simple",),
    "cookie": ("form",),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
}
_OURS = {"accept", "content-type", "authorization", "idempotency-key", "host", "content-length"}
"""Header parameters that the standard ignores, or that are not a model's business."""


def plan(operation: Operation, document: Document, headers: Collection[str]) -> tuple[dict[str, Any], bytes]:
    """The schema of the arguments, and the plan as JSON. `headers`: those that the manifest sets, in
    lower case, which are no arguments. Raises BadOperation."""
    schemas = Schemas(document)
    properties: dict[str, Any] = {}
    required: list[str] = []
    places: list[dict[str, Any]] = []
    for parameter in operation.parameters:
        place = _place(parameter)
        if place["in"] == "header" and place["name"].lower() in _OURS | set(headers):
            continue
        name = _argument(place["name"], place["in"], properties)
        properties[name] = _described(schemas.converted(_schema(parameter)), parameter)
        if place["required"]:
            required.append(name)
        places.append({**place, "argument": name})
    _check_path(operation.path, places)
    if not schemas.complete(SCHEMA_BYTES_MAX):
        raise BadOperation(f"the schemas of its parameters have more than {SCHEMA_BYTES_MAX} bytes")
    of_parameters = dict(schemas.definitions)
    body = _body(operation, schemas, properties, required)
    whole = schemas.complete(SCHEMA_BYTES_MAX)
    schema = _schema_of(properties, required, schemas.definitions)
    if body is not None and not (whole and len(json.dumps(schema, default=str)) <= SCHEMA_BYTES_MAX):
        properties[body["argument"]] = {"description": "The body. Its schema is too long to be told here."}
        schema = _schema_of(properties, required, of_parameters)
    what = {"method": operation.method, "path": operation.path, "parameters": places, "body": body}
    return schema, json.dumps(what, separators=(",", ":")).encode()


def _schema_of(
    properties: Mapping[str, Any], required: list[str], definitions: Mapping[str, Any]
) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        found["required"] = required
    return {**found, "$defs": definitions} if definitions else found


def _place(parameter: Mapping[str, Any]) -> dict[str, Any]:
    """Where a parameter goes, and in what form."""
    where, name = parameter.get("in"), parameter["name"]
    if where not in _PLACES:
        raise BadOperation(f"the parameter {name[:60]!r} is in {str(where)[:20]!r}")
    if "content" in parameter:
        return {"name": name, "in": where, "style": "json", "explode": False, "required": _needed(parameter)}
    style = parameter.get("style", _STYLES[where][0])
    if style not in _STYLES[where]:
        raise BadOperation(f"the parameter {name[:60]!r} has the style {str(style)[:20]!r}")
    explode = parameter.get("explode", style == "form")
    return {
        "name": name,
        "in": where,
        "style": style,
        "explode": bool(explode),
        "required": _needed(parameter),
    }


def _needed(parameter: Mapping[str, Any]) -> bool:
    return parameter["in"] == "path" or parameter.get("required") is True


def _schema(parameter: Mapping[str, Any]) -> Any:
    content = parameter.get("content")
    if isinstance(content, Mapping) and content:
        media = next(iter(content.values()))
        return media.get("schema", {}) if isinstance(media, Mapping) else {}
    return parameter.get("schema", {})


def _described(schema: Any, parameter: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(schema) if isinstance(schema, Mapping) else {}
    text = parameter.get("description")
    if isinstance(text, str) and text.strip():
        if "$ref" in found:
            found = {"allOf": [found]}  # beside a reference some providers take nothing
        found["description"] = text
    return found


def _argument(name: str, where: str, taken: Collection[str]) -> str:
    """What the model calls it: the name itself, where every provider takes it and it is free."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:60] or "argument"
    for candidate in (plain, f"{where}_{plain}"[:64], *(f"{plain}_{n}" for n in range(2, 100))):
        if candidate not in taken:
            return candidate
    raise BadOperation(f"too many parameters are named {name[:60]!r}")


def _check_path(path: str, places: list[dict[str, Any]]) -> None:
    named = set(re.findall(r"\{([^{}]+)\}", path))
    missing = named - {place["name"] for place in places if place["in"] == "path"}
    if missing:
        raise BadOperation(f"its path names {{{sorted(missing)[0][:60]}}}, which is no parameter of it")


def _body(
    operation: Operation, schemas: Schemas, properties: dict[str, Any], required: list[str]
) -> dict[str, Any] | None:
    """The body's argument and form, which are added to the schema; None for no body."""
    if operation.body is None:
        return None
    content = operation.body.get("content")
    chosen = _media_type(content) if isinstance(content, Mapping) else None
    needed = operation.body.get("required") is True
    if chosen is None:
        if needed:
            raise BadOperation("its body has no form that can be sent (JSON, a form, or text)")
        return None
    kind, media_type = chosen
    assert isinstance(content, Mapping)
    media = content[media_type]
    name = _argument("body", "request", properties)
    schema = schemas.converted(media.get("schema", {}) if isinstance(media, Mapping) else {})
    properties[name] = _described(schema, operation.body)
    if needed:
        required.append(name)
    files = _files(media.get("schema", {}), schemas) if kind == "multipart" else []
    return {"argument": name, "kind": kind, "type": media_type, "required": needed, "files": files}


def _media_type(content: Mapping[str, Any]) -> tuple[str, str] | None:
    def kind(media_type: str) -> str:
        plain = media_type.partition(";")[0].strip().lower()
        if plain in ("application/json", "*/*") or plain.endswith("+json"):
            return "json"
        if plain == "application/x-www-form-urlencoded":
            return "form"
        if plain == "multipart/form-data":
            return "multipart"
        return "text" if plain.startswith("text/") else ""

    kinds = {media_type: kind(str(media_type)) for media_type in content}
    for wanted in ("json", "form", "multipart", "text"):
        for media_type, found in kinds.items():
            if found == wanted:
                return wanted, media_type
    return None


def _files(schema: Any, schemas: Schemas) -> list[str]:
    """The fields of a form that are files."""
    found = schemas.followed(schema)
    properties = found.get("properties", {})

    def is_file(item: Any) -> bool:
        item = schemas.followed(item)
        if item.get("type") == "array":
            return is_file(item.get("items", {}))
        return item.get("format") == "binary" or "contentMediaType" in item

    return [name for name, item in properties.items() if is_file(item)]
