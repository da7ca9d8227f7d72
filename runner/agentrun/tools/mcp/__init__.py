"""MCP servers as tool servers, over streamable HTTP or a process's own pipes.

`McpServer` is what `agentrun.agent` builds of a manifest's entry. The SDK (`mcp`) types
the handshake and knows the protocol's versions; it is imported with the first connection,
for it takes half a second. Importing this package is cheap.

Modules: `server` the tool server; `link` one connection; `http` and `stdio` what carries
it; `exchange` one request on its way; `wire`, `listing` and `results` read what servers
say, and are forgiving. Secrets of the server are taken out of all that is told.
"""

from agentrun.tools.mcp.server import McpCommand, McpEndpoint, McpServer

__all__ = ["McpCommand", "McpEndpoint", "McpServer"]
