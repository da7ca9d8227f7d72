"""A header of HTTP requests: a plain value, or one from a Secret. Used by the tools that send some."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from agentrun.spec.base import HEADER_NAME, VALUE_CHARACTERS_MAX, ManifestModel, SecretSource, Str


def _check_header_value(value: str) -> str:
    if any(ord(c) < 32 or ord(c) == 127 for c in value.replace("\t", " ")):
        raise ValueError("must be one line without control characters")
    return value


class HttpHeader(ManifestModel):
    """One header of each request: a plain value, or one from a Secret."""

    name: Annotated[Str, Field(min_length=1, max_length=256, pattern=HEADER_NAME)] = Field(
        description="Name of the header."
    )
    value: (
        Annotated[Str, Field(max_length=VALUE_CHARACTERS_MAX), AfterValidator(_check_header_value)] | None
    ) = Field(default=None, description="Value, for what is no secret.")
    value_from: SecretSource | None = Field(default=None, description="The Secret that holds the value.")

    @model_validator(mode="after")
    def _one_value(self) -> HttpHeader:
        if (self.value is None) == (self.value_from is None):
            raise ValueError("must have exactly one of value and valueFrom")
        return self


def _each_once(headers: tuple[HttpHeader, ...]) -> tuple[HttpHeader, ...]:
    names = [header.name.lower() for header in headers]
    again = next((k for k, name in enumerate(names) if name in names[:k]), None)
    if again is not None:
        raise ValueError(f"'{headers[again].name}' stands there twice")
    return headers


HttpHeaders = Annotated[tuple[HttpHeader, ...], Field(max_length=64), AfterValidator(_each_once)]
"""Upper and lower case are one: of two that differ in nothing else, one would be lost."""
