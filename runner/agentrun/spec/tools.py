"""The tools that a manifest gives to an agent.

Used by `agent`; the runner turns each `ToolSpec` into a tool. Invariants: an
entry is of exactly one kind, and a tool counts as unsafe to repeat unless its
entry says otherwise. Further kinds become further optional fields.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from agentrun.spec.approval import ApprovalRule
from agentrun.spec.base import (
    Description,
    Entrypoint,
    Int,
    ManifestModel,
    ObjectSchema,
    ToolName,
    Url,
)
from agentrun.spec.errors import Path, RuleError
from agentrun.spec.header import HttpHeaders
from agentrun.spec.mcp import McpServer
from agentrun.spec.openapi import OpenApiTools

TOOL_KINDS = ("python", "http", "agent", "mcp", "openapi")
SERVER_KINDS = ("mcp", "openapi")
"""Those whose entry gives many tools."""


class Effect(StrEnum):
    """What a call does to the world, and so whether it may be repeated."""

    READ_ONLY = "read_only"
    IDEMPOTENT = "idempotent"
    UNSAFE = "unsafe"


class OnUnknown(StrEnum):
    """What to do when an unsafe call was started and its result never came."""

    REPORT = "Report"
    RETRY = "Retry"
    ASK = "Ask"


class HttpArguments(StrEnum):
    """Where the arguments of a call go."""

    BODY = "Body"
    QUERY = "Query"


class PythonTool(ManifestModel):
    """A function of the runner's image."""

    entrypoint: Entrypoint = Field(description="The function, as package.module:function.")


class HttpTool(ManifestModel):
    """An HTTP endpoint: one request a call."""

    url: Url = Field(description="The endpoint, http or https, without credentials.")
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = Field(
        default="POST", description="GET, POST, PUT, PATCH or DELETE. Default POST."
    )
    headers: HttpHeaders = Field(default=(), description="Headers of each request.")
    arguments: HttpArguments = Field(
        default=HttpArguments.BODY,
        description="Body sends the arguments as a JSON body, Query as query parameters. Default Body.",
    )

    @model_validator(mode="after")
    def _method_takes_arguments(self) -> HttpTool:
        if self.method == "GET" and self.arguments is HttpArguments.BODY:
            raise ValueError("a GET request has no body: set arguments to Query, or another method")
        return self


class ToolSpec(ManifestModel):
    """One tool, or the tools of one server. Exactly one of python, http, agent, mcp and openapi
    says of what kind."""

    name: ToolName | None = Field(
        default=None,
        description="What the model calls it; of a server, what we call the server. Needed, but for a "
        "sub-agent, whose own name is the default.",
    )
    description: Description | None = Field(
        default=None,
        description="What it does, for the model. Needed for http; defaults to the function's docstring or "
        "the sub-agent's description.",
    )
    python: PythonTool | None = Field(default=None, description="A Python function of the runner's image.")
    http: HttpTool | None = Field(default=None, description="An HTTP endpoint.")
    agent: ToolName | None = Field(default=None, description="Name of a sub-agent in spec.agents.")
    mcp: McpServer | None = Field(default=None, description="An MCP server, which gives all of its tools.")
    openapi: OpenApiTools | None = Field(
        default=None, description="An HTTP API with an OpenAPI document, which gives a tool an operation."
    )
    parameters: ObjectSchema | None = Field(
        default=None,
        description="JSON schema (type object) of the arguments. Needed for http; for python it defaults to "
        "the function's signature; a sub-agent has none.",
    )
    effect: Effect | None = Field(
        default=None,
        description="read_only and idempotent calls may be repeated, unsafe ones not. Default unsafe; for an "
        "MCP server what it says of each of its tools, and unsafe where it says nothing; for an API with an "
        "OpenAPI document by the method: GET and HEAD read_only, PUT and DELETE idempotent, others unsafe.",
    )
    on_unknown: OnUnknown = Field(
        default=OnUnknown.REPORT,
        description="For an unsafe call whose result never came: Report tells the model that its outcome is "
        "unknown, Retry calls again, Ask pauses the run until a person says whether to call again. Default "
        "Report.",
    )
    require_approval: ApprovalRule | None = Field(
        default=None,
        description="Which calls wait until a person has approved them; the run pauses meanwhile, without a "
        "pod. Default: none.",
    )
    timeout_seconds: Annotated[Int, Field(ge=1, le=86400)] = Field(
        default=60,
        description="Longest time that one call may take, in seconds. Default 60; a sub-agent has none, the "
        "budget bounds it.",
    )

    @model_validator(mode="before")
    @classmethod
    def _unsafe_is_the_default(cls, data: Any) -> Any:
        # Stored definitions leave defaults out, and this was one: written or not, it is the same.
        if not isinstance(data, dict) or data.get("effect") != Effect.UNSAFE:
            return data
        if all(data.get(kind) is None for kind in (*SERVER_KINDS, "agent")):
            return {key: value for key, value in data.items() if key != "effect"}
        return data

    @property
    def tool_name(self) -> str:
        """The name that the model sees: its own, or the sub-agent's; of a server its own, for us."""
        return self.name or self.agent or ""

    @property
    def is_server(self) -> bool:
        """The entry gives many tools."""
        return any(getattr(self, kind) is not None for kind in SERVER_KINDS)

    @model_validator(mode="after")
    def _one_kind(self) -> ToolSpec:
        kinds = [kind for kind in TOOL_KINDS if getattr(self, kind) is not None]
        if len(kinds) != 1:
            has = f"has {' and '.join(kinds)}" if kinds else "has none"
            raise ValueError(f"must have exactly one of {', '.join(TOOL_KINDS)}; it {has}")
        if found := list(self._kind_problems(kinds[0])):
            raise RuleError(found)
        return self

    def _kind_problems(self, kind: str) -> list[tuple[Path, str]]:
        if kind == "agent":
            meaningless = {"parameters": "parameters", "effect": "effect", "on_unknown": "onUnknown"}
            meaningless["timeout_seconds"] = "timeoutSeconds"
            return [
                ((alias,), "has no meaning for a sub-agent; remove it")
                for field, alias in meaningless.items()
                if field in self.model_fields_set
            ]
        if kind in SERVER_KINDS:
            return self._server_problems()
        needed = ("name",) if kind == "python" else ("name", "description", "parameters")
        return [
            ((field,), f"is required for a tool of kind {kind}")
            for field in needed
            if not getattr(self, field)
        ]

    def _server_problems(self) -> list[tuple[Path, str]]:
        found: list[tuple[Path, str]] = []
        if not self.name:
            found.append((("name",), "is required for a server: a name for it"))
        found += [
            ((field,), "has no meaning for a server, which describes its tools itself; remove it")
            for field in ("description", "parameters")
            if getattr(self, field) is not None
        ]
        return found
