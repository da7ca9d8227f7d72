"""One connection to a server: a task that holds the SDK's session open until it is closed.

Used by `server`. Invariant: the session's task groups are entered and left in one task,
whoever asks for something and whoever is cancelled; what is raised here is a `Fault` or
what `before_send` raises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from agentrun.tools.exchange import USER_AGENT
from agentrun.tools.mcp.exchange import CURRENT, Exchange, Fault

if TYPE_CHECKING:
    from mcp.client.session import ClientSession

Carrier = Callable[[], AbstractAsyncContextManager[Any]]
"""Opens what carries a connection."""

_NO_HANDSHAKE = (-32022, -32601)
"""Errors of servers that speak only versions of the protocol without `initialize`."""

CLOSE_SECONDS_MAX = 0.9


class RpcError(Exception):
    """The server has answered with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Link:
    """Open from `open` to `close`, or until what carries it is lost."""

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self._closing = asyncio.Event()
        self._users = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._ready: asyncio.Future[tuple[ClientSession, Any]] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        """Requests may be sent, as far as is known."""
        return (
            self._task is not None
            and not self._task.done()
            and self._ready.done()
            and not self._closing.is_set()
            and not self._ready.result()[1].lost
        )

    async def open(self, exchange: Exchange) -> None:
        """Connects and shakes hands."""
        self._task = asyncio.get_running_loop().create_task(self._hold(exchange), name="mcp link")
        try:
            await asyncio.shield(self._ready)
        except BaseException:
            await self.close()
            raise

    async def _hold(self, exchange: Exchange) -> None:
        try:
            await asyncio.to_thread(_load_sdk)  # half a second, in which other calls go on
            from mcp.client.session import ClientSession
            from mcp_types import Implementation

            CURRENT.set(exchange)
            name = Implementation(name=USER_AGENT, version="1")
            async with (
                self._carrier() as dispatcher,
                ClientSession(dispatcher=dispatcher, client_info=name) as session,
            ):
                try:
                    await _shake_hands(session)
                except Exception as error:  # told as it is, and not as a group of one
                    self._fail(error)
                    return
                if not self._ready.done():
                    self._ready.set_result((session, dispatcher))
                await self._closing.wait()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if not self._ready.done():
            self._ready.set_exception(_as_fault(error))
            self._ready.exception()  # it may be that nobody waits any more

    async def request(self, method: str, params: dict[str, Any], exchange: Exchange) -> dict[str, Any]:
        """The result as the server sent it, whatever the SDK thinks of its form.

        Raises Fault, RpcError, and what `before_send` raises."""
        from mcp.shared.exceptions import MCPError

        session, dispatcher = self._ready.result()
        if self._closing.is_set() or self._task is None or self._task.done():
            raise Fault("ConnectionLost", "the connection is closed", retryable=True, started=False)
        token = CURRENT.set(exchange)
        self._users += 1
        self._idle.clear()
        try:
            await _send(session, method, params)
        except MCPError as error:
            raise RpcError(error.code, error.message) from error
        except ValueError as error:  # the SDK's judgement of what came
            if exchange.raw is None:
                raise Fault("InvalidResponse", str(error)[:200], retryable=False, started=True) from error
        finally:
            CURRENT.reset(token)
            self._users -= 1
            if not self._users:
                self._idle.set()
        assert exchange.raw is not None, dispatcher
        return exchange.raw

    async def retire(self) -> None:
        """Ends it when the requests that are under way have their answers."""
        await self._idle.wait()
        await self.close()

    async def close(self) -> None:
        """Ends it, within CLOSE_SECONDS_MAX."""
        self._closing.set()
        if self._task is None:
            return
        if not self._ready.done():
            self._task.cancel()  # nobody waits for the handshake any more
        done, _ = await asyncio.wait({self._task}, timeout=CLOSE_SECONDS_MAX)
        if not done:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=CLOSE_SECONDS_MAX)


def _load_sdk() -> None:
    import mcp.client.session  # noqa: F401


async def _shake_hands(session: ClientSession) -> None:
    """`initialize`, or what newer servers have in its place."""
    from mcp.shared.exceptions import MCPError

    try:
        await session.initialize()
    except MCPError as error:
        if error.code not in _NO_HANDSHAKE:
            raise
        await session.discover()


async def _send(session: ClientSession, method: str, params: dict[str, Any]) -> None:
    import mcp_types as types

    request: Any
    if method == "tools/list":
        page = types.PaginatedRequestParams.model_validate(params) if params else None
        request = types.ListToolsRequest(params=page)
        await session.send_request(request, types.ListToolsResult)
    else:
        request = types.CallToolRequest(params=types.CallToolRequestParams.model_validate(params))
        await session.send_request(request, types.CallToolResult)


def _as_fault(error: Exception) -> Exception:
    """What a handshake has met: an error of the server's is a fault of the connection's."""
    from mcp.shared.exceptions import MCPError

    if isinstance(error, MCPError):
        message = f"the handshake failed: {error.message}"[:300]
        return Fault("HandshakeFailed", message, retryable=True, started=False)
    if isinstance(error, ValueError | RuntimeError):
        message = f"the handshake failed: {type(error).__name__}: {error}"[:300]
        return Fault("HandshakeFailed", " ".join(message.split()), retryable=True, started=False)
    return error
