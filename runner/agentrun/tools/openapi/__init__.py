"""HTTP APIs that an OpenAPI document describes, as tool servers: an operation is a tool."""

from agentrun.tools.openapi.server import DOCUMENT_BYTES_MAX, OpenApiServer, OpenApiSource

__all__ = ["DOCUMENT_BYTES_MAX", "OpenApiServer", "OpenApiSource"]
