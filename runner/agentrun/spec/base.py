"""The building blocks of the manifest's models: bounds, names, strict scalars.

Used by the other modules of this package only. Invariants: scalars are strict
(`true` is no number, `12` no text), every string and list has a bound, unknown
fields are refused, models are frozen. A field's default is part of the format of
stored definitions, which leave defaults out: it never changes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict, model_validator
from pydantic.alias_generators import to_camel

NAME_CHARACTERS_MAX = 253
SHORT_CHARACTERS_MAX = 1024
TEXT_BYTES_MAX = 65536
VALUE_CHARACTERS_MAX = 8192
URL_CHARACTERS_MAX = 2048
JSON_BYTES_MAX = 65536
JSON_DEPTH_MAX = 32
INTEGER_MAX = 2**63 - 1

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN = rf"^{_LABEL}(\.{_LABEL})*$"
NAME_PREFIX = r"^[a-z0-9]([-a-z0-9.]*[-a-z0-9])?$"
TOOL_NAME = r"^[a-zA-Z_][a-zA-Z0-9_-]{0,63}$"
REFERENCE_KEY = r"^[-._a-zA-Z0-9]+$"
ENTRYPOINT = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*$"
HEADER_NAME = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"
ARGUMENT = r"^[^.\s]+(\.[^.\s]+)*$"
VARIABLE_NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"
UUID_TEXT = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"

PATTERN_RULES: Mapping[str, str] = {
    SUBDOMAIN: "must be lower-case letters, digits, '-' and '.', and begin and end with a letter or digit",
    NAME_PREFIX: "must be lower-case letters, digits, '-' and '.', and begin with a letter or digit",
    TOOL_NAME: "must be at most 64 letters, digits, '_' and '-', and begin with a letter or '_'",
    REFERENCE_KEY: "must be letters, digits, '-', '_' and '.'",
    ENTRYPOINT: "must be a Python function as package.module:function",
    HEADER_NAME: "must be the name of an HTTP header",
    ARGUMENT: "must be an argument's name, with dots for what is inside it, such as order.amount",
    VARIABLE_NAME: "must be letters, digits and '_', and begin with a letter or '_'",
    UUID_TEXT: "must be a UUID such as 0b0e6a52-6f0f-4a8e-9f53-0b7c5a3f5e11",
}
"""What a pattern asks for, in words."""

_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class ManifestModel(BaseModel):
    """Base of every object in a manifest. An empty value (null) counts as left out."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        protected_namespaces=(),
        allow_inf_nan=False,
    )

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        # The API server prunes nulls likewise, so both ways in agree.
        if isinstance(data, dict):
            return {key: value for key, value in data.items() if value is not None}
        return data


def unprintable(text: str) -> str | None:
    """Says which character text may not hold, and where; None when it is fine."""
    found = _UNPRINTABLE.search(text)
    if found is None:
        return None
    code = ord(found.group())
    if 0xD800 <= code <= 0xDFFF:
        kind = "half of a surrogate pair"
    else:
        kind = "NUL" if code == 0 else "a control character"
    return f"character {found.start() + 1} is U+{code:04X} ({kind}), which text may not hold; remove it"


def check_text(value: str) -> str:
    """Not blank, nothing unprintable, at most 64 KiB of UTF-8."""
    if problem := unprintable(value):
        raise ValueError(problem)
    if not value.strip():
        raise ValueError("must not be empty" if not value else "must not be blank: it is white space only")
    size_bytes = len(value.encode())
    if size_bytes > TEXT_BYTES_MAX:
        raise ValueError(f"must be at most {TEXT_BYTES_MAX} bytes of UTF-8, and has {size_bytes}")
    return value


def check_url(value: str) -> str:
    """An absolute http or https URL without credentials."""
    try:
        parts = urlsplit(value)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    if parts.scheme not in ("http", "https") or not host or re.search(r"\s", value):
        raise ValueError("must be a URL that begins with http:// or https:// and names a host")
    if "@" in parts.netloc:
        raise ValueError("must not hold credentials; name a Secret instead")
    if parts.fragment:
        raise ValueError("must have no #fragment")
    return value


def check_json(value: dict[str, Any]) -> dict[str, Any]:
    """Free-form data that JSON can hold, within 64 KiB and 32 levels."""
    _check_depth(value, 1)
    try:
        size_bytes = len(json.dumps(value, allow_nan=False, ensure_ascii=False).encode())
    except (TypeError, ValueError) as error:
        raise ValueError(
            "must be plain JSON: text, finite numbers, true, false, lists and mappings"
        ) from error
    if size_bytes > JSON_BYTES_MAX:
        raise ValueError(f"must be at most {JSON_BYTES_MAX} bytes as JSON, and has {size_bytes}")
    return value


def _check_depth(value: object, depth: int) -> None:
    if depth > JSON_DEPTH_MAX:
        raise ValueError(f"must be nested at most {JSON_DEPTH_MAX} levels deep")
    if isinstance(value, dict | list | tuple):
        for child in value.values() if isinstance(value, dict) else value:
            _check_depth(child, depth + 1)


def check_object_schema(value: dict[str, Any]) -> dict[str, Any]:
    """A JSON schema that describes an object, which is what providers take."""
    if value.get("type") != "object":
        raise ValueError("must be a JSON schema whose type is object")
    return value


def _check_key(value: str) -> str:
    # Kubernetes refuses these too: the key becomes the name of a file.
    if value == "." or value.startswith(".."):
        raise ValueError("must not be '.' and must not begin with '..'")
    return value


Bool = Annotated[bool, Strict()]
Int = Annotated[int, Strict()]
Number = Annotated[float, Strict()]
Str = Annotated[str, Strict()]

Subdomain = Annotated[Str, Field(min_length=1, max_length=NAME_CHARACTERS_MAX, pattern=SUBDOMAIN)]
ToolName = Annotated[Str, Field(max_length=64, pattern=TOOL_NAME)]
ReferenceKey = Annotated[
    Str,
    Field(min_length=1, max_length=NAME_CHARACTERS_MAX, pattern=REFERENCE_KEY),
    AfterValidator(_check_key),
]
Entrypoint = Annotated[Str, Field(max_length=512, pattern=ENTRYPOINT)]
ShortText = Annotated[Str, Field(max_length=SHORT_CHARACTERS_MAX)]
Description = Annotated[Str, Field(max_length=VALUE_CHARACTERS_MAX)]
LongText = Annotated[
    Str, AfterValidator(check_text), Field(json_schema_extra={"minLength": 1, "maxLength": TEXT_BYTES_MAX})
]
"""A prompt or instructions. The bound is told to JSON schema and checked in bytes, which it cannot say."""
Url = Annotated[
    Str,
    Field(
        min_length=1,
        max_length=URL_CHARACTERS_MAX,
        json_schema_extra={"pattern": r"^https?://[^/?#\s@]+([/?][^#\s]*)?$"},
    ),
    AfterValidator(check_url),
]
"""What JSON schema is told is a little narrower than a URL can be, and as good for an endpoint."""
JsonObject = Annotated[
    dict[str, Any],
    Field(max_length=1024, json_schema_extra={"x-kubernetes-preserve-unknown-fields": True}),
    AfterValidator(check_json),
]
"""Free-form: any fields, checked for depth and size only."""
ObjectSchema = Annotated[JsonObject, AfterValidator(check_object_schema)]


class SecretKeyRef(ManifestModel):
    """Names one key of a Secret in the run's namespace."""

    name: Subdomain = Field(description="Name of the Secret, in the run's own namespace.")
    key: ReferenceKey = Field(description="Key inside the Secret.")


class SecretSource(ManifestModel):
    """A value that is kept in a Secret; only this reference is ever stored."""

    secret_key_ref: SecretKeyRef = Field(description="The Secret and its key.")


class ConfigMapKeyRef(ManifestModel):
    """Names one key of a ConfigMap in the run's namespace."""

    name: Subdomain = Field(description="Name of the ConfigMap, in the run's own namespace.")
    key: ReferenceKey = Field(description="Key inside the ConfigMap.")


class TextSource(ManifestModel):
    """A text that is kept in a ConfigMap; it is read once, when the run first starts."""

    config_map_key_ref: ConfigMapKeyRef = Field(description="The ConfigMap and its key.")
