"""HTTP APIs with an OpenAPI document whose operations a manifest gives to an agent.

Used by `tools`. Invariant: the document is in exactly one place.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from agentrun.spec.base import Bool, JsonObject, ManifestModel, TextSource, Url
from agentrun.spec.header import HttpHeaders
from agentrun.spec.mcp import NAMES_MAX, ServersName


class OpenApiTools(ManifestModel):
    """An API whose operations become tools. Exactly one of url, documentFrom and document is its document."""

    url: Url | None = Field(
        default=None,
        description="Where its document is: OpenAPI 3.0 or 3.1, as JSON or YAML, at most 4 MiB.",
    )
    document_from: TextSource | None = Field(
        default=None, description="The ConfigMap that holds the document, instead of url."
    )
    document: JsonObject | None = Field(default=None, description="The document itself, at most 64 KiB.")
    base_url: Url | None = Field(
        default=None,
        alias="baseURL",
        description="Where the calls go. Default: the document's first server, which must be where url is.",
    )
    headers: HttpHeaders = Field(
        default=(),
        description="Headers of each request. Parameters of the same names are no arguments of the tools.",
    )
    allow: Annotated[tuple[ServersName, ...], Field(max_length=NAMES_MAX)] = Field(
        default=(), description="Only these operations, by their operationId. Default: all."
    )
    deny: Annotated[tuple[ServersName, ...], Field(max_length=NAMES_MAX)] = Field(
        default=(), description="Not these operations, by their operationId."
    )
    optional: Bool = Field(
        default=False,
        description="true goes on without the tools where the document cannot be read at the start.",
    )

    @model_validator(mode="after")
    def _one_place(self) -> OpenApiTools:
        if [self.url, self.document_from, self.document].count(None) != 2:
            raise ValueError("must have exactly one of url, documentFrom and document")
        return self
