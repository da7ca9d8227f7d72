"""MCP servers whose tools a manifest gives to an agent.

Used by `tools`. Invariants: a server is reached in exactly one way, over HTTP or as a
process of the runner's image; what belongs to the other way is refused.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from agentrun.spec.base import (
    VALUE_CHARACTERS_MAX,
    VARIABLE_NAME,
    Bool,
    Int,
    ManifestModel,
    SecretSource,
    Str,
    Url,
    unprintable,
)
from agentrun.spec.errors import Path, RuleError
from agentrun.spec.header import HttpHeaders

NAMES_MAX = 512


def _check_word(value: str) -> str:
    if problem := unprintable(value):
        raise ValueError(problem)
    return value


ServersName = Annotated[Str, Field(min_length=1, max_length=NAMES_MAX), AfterValidator(_check_word)]
"""A tool's name as its server says it."""


class EnvVar(ManifestModel):
    """One variable of a process: a plain value, or one from a Secret."""

    name: Annotated[Str, Field(min_length=1, max_length=256, pattern=VARIABLE_NAME)] = Field(
        description="Name of the variable."
    )
    value: Annotated[Str, Field(max_length=VALUE_CHARACTERS_MAX), AfterValidator(_check_word)] | None = Field(
        default=None, description="Value, for what is no secret."
    )
    value_from: SecretSource | None = Field(default=None, description="The Secret that holds the value.")

    @model_validator(mode="after")
    def _one_value(self) -> EnvVar:
        if (self.value is None) == (self.value_from is None):
            raise ValueError("must have exactly one of value and valueFrom")
        return self


class McpServer(ManifestModel):
    """An MCP server. Exactly one of url and command says where it is."""

    url: Url | None = Field(
        default=None, description="Its address, for streamable HTTP; http or https, without credentials."
    )
    headers: HttpHeaders = Field(default=(), description="Headers of each request. Only with url.")
    command: (
        Annotated[
            tuple[
                Annotated[
                    Str, Field(min_length=1, max_length=VALUE_CHARACTERS_MAX), AfterValidator(_check_word)
                ],
                ...,
            ],
            Field(min_length=1, max_length=64),
        ]
        | None
    ) = Field(
        default=None, description="The program of the runner's image to start, and its arguments, for stdio."
    )
    env: Annotated[tuple[EnvVar, ...], Field(max_length=64)] = Field(
        default=(), description="Variables of the program beside a few of the system's. Only with command."
    )
    allow: Annotated[tuple[ServersName, ...], Field(max_length=NAMES_MAX)] = Field(
        default=(), description="Only these of its tools, by the server's own names. Default: all."
    )
    deny: Annotated[tuple[ServersName, ...], Field(max_length=NAMES_MAX)] = Field(
        default=(), description="Not these of its tools, by the server's own names."
    )
    start_timeout_seconds: Annotated[Int, Field(ge=1, le=3600)] = Field(
        default=30,
        description="How long a server that is not up is waited for, in seconds. Default 30; after three "
        "tries the run pauses as ToolServerUnavailable.",
    )
    optional: Bool = Field(
        default=False,
        description="true goes on without its tools where it cannot be reached at the start.",
    )

    @model_validator(mode="after")
    def _one_way(self) -> McpServer:
        if (self.url is None) == (self.command is None):
            raise ValueError("must have exactly one of url and command")
        found: list[tuple[Path, str]] = []
        if self.headers and self.url is None:
            found.append((("headers",), "has a meaning only with url; a program takes env"))
        if self.env and self.command is None:
            found.append((("env",), "has a meaning only with command; a server at a url takes headers"))
        names = [variable.name for variable in self.env]
        found += [
            (("env", index, "name"), f"'{name}' stands there twice")
            for index, name in enumerate(names)
            if name in names[:index]
        ]
        if found:
            raise RuleError(found)
        return self
