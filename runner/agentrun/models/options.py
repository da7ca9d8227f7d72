"""Fields of a request's body that not every server understands, each behind a name.

Who calls: `providers` to build a request, `transport` to read a refusal. What holds: an
option that a server has refused (`ModelRequest.without`) is not sent to it again; the
fields depend on the agent and its model alone, so that they are the same in each turn.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from agentrun.models.base import ModelRequest

STREAM, STREAM_USAGE, ANSWER_SCHEMA, CACHE = "stream", "streamUsage", "answerSchema", "cache"

_REFUSALS = (400, 404, 405, 415, 422, 501)
# What a server says of an option that it does not know; the first that fits counts.
_WORDS: Mapping[str, re.Pattern[bytes]] = {
    STREAM_USAGE: re.compile(rb"stream_options|include_usage"),
    ANSWER_SCHEMA: re.compile(
        rb"response_?format|json_?schema|structured.?output|output_config|output_format|text\.format"
        rb"|response_?mime_?type|response mime type|response_?schema|grammar",
        re.IGNORECASE,
    ),
    CACHE: re.compile(rb"cache_control"),
    STREAM: re.compile(rb"\bstream(?:ing|ed)?\b", re.IGNORECASE),
}

# What a schema may hold for a provider to promise that an answer fits it.
_STRICT_KEYS = {
    *("type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf"),
    *("$ref", "$defs", "definitions", "description", "title"),
}
_NAMED = ("properties", "$defs", "definitions")
"""Keywords whose value is a mapping from names to schemas."""


def fields_of(
    provider: str, request: ModelRequest, *, stream: bool, own_host: bool, native_schemas: bool
) -> dict[str, dict[str, Any]]:
    """Option → fields of the body. `stream`: the manifest wants one. `own_host`: the provider's own
    server is asked, and not one that imitates it; `native_schemas`: the library says that the model
    takes a schema of its answer."""
    found: dict[str, dict[str, Any]] = {}
    if stream and STREAM not in request.without:
        found[STREAM] = {} if provider == "google" else {"stream": True}
        if provider == "openai":
            found[STREAM_USAGE] = {"stream_options": {"include_usage": True}}
    if provider == "anthropic":
        # The server moves its own mark to the end of each request. One that `providers` puts behind
        # tools and instructions is found again however much has come since.
        found[CACHE] = {"cache_control": {"type": "ephemeral"}} if own_host else {}
    if request.output_schema is not None:
        schema = dict(request.output_schema)
        # With tools, servers of one's own bind each turn to the schema, and no tool is called any more.
        if own_host or not request.tools:
            fields = _answer_schema(provider, schema, bool(request.tools), native_schemas)
            if fields is not None:
                found[ANSWER_SCHEMA] = fields
    return {option: fields for option, fields in found.items() if option not in request.without}


def refused_option(status: int, data: bytes, options: Collection[str]) -> str:
    """The one of `options` that a refusal is about; "" where it is about none of them."""
    if status not in _REFUSALS:
        return ""
    return next((option for option, words in _WORDS.items() if option in options and words.search(data)), "")


def _answer_schema(provider: str, schema: dict[str, Any], tools: bool, native: bool) -> dict[str, Any] | None:
    strict = is_strict(schema)
    if provider == "openai":
        shape = {"name": "answer", "schema": schema, "strict": strict}
        return {"response_format": {"type": "json_schema", "json_schema": shape}}
    if provider == "openai-responses":
        shape = {"type": "json_schema", "name": "answer", "schema": schema, "strict": strict}
        return {"text": {"format": shape}}
    if provider == "anthropic" and strict and native:
        return {"output_config": {"format": {"type": "json_schema", "schema": schema}}}
    if provider == "google" and not tools:
        shape = {"responseMimeType": "application/json", "responseJsonSchema": schema}
        return {"generationConfig": shape}
    return None


def is_strict(schema: Any) -> bool:
    """Every object is closed and all of its properties are required; no keyword is out of the common."""
    if not isinstance(schema, dict) or not set(schema) <= _STRICT_KEYS:
        return False
    if "properties" in schema or schema.get("type") == "object":
        names = set(schema.get("properties") or ())
        if schema.get("additionalProperties") is not False or names != set(schema.get("required") or ()):
            return False
    inner = [entry for key in _NAMED for entry in dict(schema.get(key) or {}).values()]
    inner += [schema["items"]] if "items" in schema else []
    return all(is_strict(entry) for entry in [*inner, *(schema.get("anyOf") or ())])
