"""An MCP server on the official SDK that counts its calls itself.

    python -m tests.support.counting_mcp FILE           # over its pipes
    python -m tests.support.counting_mcp FILE PORT      # over streamable HTTP, at /mcp

Tools: `charge` (unsafe) and `look` (read-only). Each call appends `start NAME KEY N` to FILE before it
does anything and `end NAME KEY N` when it is done; KEY is the call's idempotency key.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ToolAnnotations

KEY = "agentrun.dev/idempotencyKey"


def server(file: str) -> MCPServer:
    found = MCPServer("counting")

    def count(event: str, name: str, context: Context[Any], n: int) -> None:
        meta = context.request_context.meta or {}
        line = f"{event} {name} {meta.get(KEY)} {n}\n"
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.write(handle, line.encode())
        os.close(handle)

    @found.tool(annotations=ToolAnnotations(readOnlyHint=False))
    async def charge(n: int, context: Context[Any], seconds: float = 0.0) -> str:
        """Charges a card, which cannot be taken back."""
        count("start", "charge", context, n)
        await asyncio.sleep(seconds)
        count("end", "charge", context, n)
        return f"charged {n}"

    @found.tool(annotations=ToolAnnotations(readOnlyHint=True))
    async def look(n: int, context: Context[Any], seconds: float = 0.0) -> dict[str, int]:
        """Looks at a number."""
        count("start", "look", context, n)
        await asyncio.sleep(seconds)
        count("end", "look", context, n)
        return {"seen": n}

    return found


def main(file: str, port: int = 0) -> None:
    made = server(file)
    if port:
        made.run(transport="streamable-http", host="127.0.0.1", port=port)
    else:
        made.run(transport="stdio")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
