"""An MCP server as a `ToolServer`.

Built by the agent layer, one an entry and agent; called by its steps. Invariants:

- One connection, made when it is first needed. A session that the server has forgotten is
  made anew once a call, and shared by all calls that have lost it; only a request that
  certainly did not run is sent once more. No session outlives this object, and so none
  its process.
- A call's deadline is on its result. Progress gives it its time anew, up to a hard cap.
- What a server or its connection does is told as a `ToolError`, an output, or
  `ToolServerUnavailable`, and never holds a secret of its entry.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from agentrun.log.masks import Masks
from agentrun.tools.arguments import parse_arguments
from agentrun.tools.base import ServerTool, ToolCall, ToolError, ToolOutput, ToolServerUnavailable
from agentrun.tools.errors import ArgumentsError, ToolSetupError
from agentrun.tools.exchange import checked_headers
from agentrun.tools.mcp.exchange import Exchange, Fault
from agentrun.tools.mcp.link import Carrier, Link, RpcError
from agentrun.tools.mcp.listing import cursor_of, tools_of
from agentrun.tools.mcp.results import output_of
from agentrun.tools.results import ERROR_BYTES_MAX, cut_text

IDEMPOTENCY_KEY = "agentrun.dev/idempotencyKey"
"""In `_meta` of each call: the same for every try of it."""

PAGES_MAX = 200
LISTED_MAX = 5000
WAIT_SECONDS = 0.2
WAIT_SECONDS_MAX = 2.0
"""Between two tries to connect, doubling."""

AWAY = frozenset(("ConnectionError", "Unavailable"))
"""Reasons that say of a request that a server, which may be back soon, did not take it on."""

SECRET_CHARACTERS_MIN = 6
"""Shorter values of `secrets` stand in every other word."""

BeforeSend = Callable[[], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class McpEndpoint:
    """A server behind streamable HTTP. Values of `headers` may be secrets: not in the repr."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, kw_only=True)
class McpCommand:
    """A server that is a process of ours. Values of `env` may be secrets: not in the repr."""

    command: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict, repr=False)


class McpServer:
    """See the module's docstring. `secrets`: values that nothing that is told may hold.

    Raises ToolSetupError where it cannot be called as given."""

    def __init__(
        self,
        where: McpEndpoint | McpCommand,
        *,
        start_timeout_seconds: float = 30.0,
        secrets: Sequence[str] = (),
    ) -> None:
        if find_spec("mcp") is None:
            raise ToolSetupError("it needs a package that is missing: pip install 'agentrun[mcp]'")
        self._masks = Masks(secrets, characters_min=SECRET_CHARACTERS_MIN)
        self._carrier = _carrier(where, self._masks)
        self._start_timeout_seconds = start_timeout_seconds
        self._link: Link | None = None
        self._opening: asyncio.Task[Link] | None = None
        self._leaving: dict[asyncio.Task[None], Link] = {}
        self._closed = False
        self._trouble: Fault | None = None  # why the last try to connect failed

    # --- what a ToolServer does

    async def list_tools(self, before_send: BeforeSend) -> Sequence[ServerTool]:
        """Waits for a server that is not up yet, within the time to start."""
        last = self._trouble = None
        try:
            async with asyncio.timeout(self._start_timeout_seconds) as deadline:
                for wait in _waits():
                    try:
                        return await self._list(before_send, deadline)
                    except Fault as fault:
                        last = fault
                        if fault.refused:
                            break
                    await self._leave(self._link)
                    await asyncio.sleep(wait)
        except TimeoutError:
            if not deadline.expired():
                raise
        last = last or self._trouble
        why = last.message if last is not None else "no answer"
        if last is None or not last.refused:
            why = f"{why} (waited {self._start_timeout_seconds:g} s)"
        raise ToolServerUnavailable(why, retryable=last is None or not last.refused)

    async def call_tool(self, tool: ServerTool, call: ToolCall, timeout_seconds: float) -> ToolOutput:
        """One call; sent a second time only where it is certain that the first did not run."""
        try:
            arguments = parse_arguments(call.arguments, literal_numbers=True)
        except ArgumentsError as error:
            return ToolOutput(content=cut_text(f"Invalid arguments: {error}"), is_error=True)
        exchange = Exchange.of(call.before_send)
        exchange.arguments = arguments
        params = {"name": tool.name, "_meta": {IDEMPOTENCY_KEY: call.idempotency_key}}
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(timeout_seconds) as deadline:
                exchange.start(deadline, timeout_seconds)
                result = await self._request("tools/call", params, exchange)
        except TimeoutError:
            if not deadline.expired():
                raise  # before_send's own
            took = asyncio.get_running_loop().time() - began
            raise _timed_out(exchange, round(took, 1) if exchange.extended else timeout_seconds) from None
        except RpcError as error:
            text = self._masks.text(f"Error {error.code}: {error.message}")
            return ToolOutput(content=cut_text(text, bytes_max=ERROR_BYTES_MAX), is_error=True)
        except Fault as fault:
            raise ToolError(
                fault.reason,
                fault.message,
                retryable=fault.retryable,
                started=fault.started,
                retry_after_seconds=fault.retry_after_seconds,
            ) from fault
        return output_of(result, self._masks)

    async def close(self) -> None:
        """Ends the session, and the process where it is one of ours."""
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait({self._opening})
        links = [*self._leaving.values(), *filter(None, [self._link])]
        self._link = None
        for leaving in self._leaving:
            leaving.cancel()
        await asyncio.gather(*(link.close() for link in links))

    # --- requests

    async def _list(self, before_send: BeforeSend, deadline: asyncio.Timeout) -> list[ServerTool]:
        found: list[ServerTool] = []
        cursor, seen = None, set()
        for _ in range(PAGES_MAX):
            exchange = Exchange.of(before_send)
            exchange.gate.deadline = deadline
            try:
                page = await self._request("tools/list", {"cursor": cursor} if cursor else {}, exchange)
            except RpcError as error:
                text = self._masks.text(f"tools/list: error {error.code}: {error.message}")[:300]
                raise Fault("ListFailed", text, retryable=True, started=False) from error
            found += tools_of(page, self._masks)
            cursor = cursor_of(page)
            if cursor is None or cursor in seen or len(found) > LISTED_MAX:
                break
            seen.add(cursor)
        return found

    async def _request(self, method: str, params: dict[str, Any], exchange: Exchange) -> dict[str, Any]:
        """Over the connection that there is, or a new one.

        Sent again is only what certainly did not run: once over a new session or process where
        the old one was gone; and to a server that is away, until its time to start is over."""
        loop = asyncio.get_running_loop()
        renewed, until, waits = False, loop.time() + self._start_timeout_seconds, _waits()
        while True:
            link = await self._connected(exchange)
            exchange.gate.passed = False
            try:
                return await link.request(method, params, exchange)
            except Fault as fault:
                gone = fault.session or not link.alive
                if gone:
                    self._drop(link)
                if fault.started or (gone and renewed):
                    fault.retryable = fault.retryable and not fault.session
                    raise
                wait = next(waits) if fault.retry_after_seconds is None else fault.retry_after_seconds
                if not gone and (fault.reason not in AWAY or loop.time() + wait > until):
                    raise
                renewed = renewed or gone
                if not gone:
                    await asyncio.sleep(wait)

    # --- the connection

    async def _connected(self, exchange: Exchange) -> Link:
        """The connection; all who need a new one wait for the same."""
        if self._closed:
            raise Fault("Closed", "the tools are closed", retryable=False, started=False)
        if self._link is not None and self._link.alive:
            return self._link
        self._drop(self._link)
        if self._opening is None:
            opening = asyncio.get_running_loop().create_task(self._open(exchange), name="mcp open")
            self._opening = opening
            opening.add_done_callback(self._opened)
        return await asyncio.shield(self._opening)

    def _opened(self, opening: asyncio.Task[Link]) -> None:
        self._opening = None
        if not opening.cancelled() and opening.exception() is None:
            self._link = opening.result()

    async def _open(self, first: Exchange) -> Link:
        """A new connection, waiting for a server that is away, within the time to start."""
        gate = Exchange.of(first.gate.before_send)
        self._trouble = None
        try:
            async with asyncio.timeout(self._start_timeout_seconds) as deadline:
                gate.gate.deadline = deadline
                for wait in _waits():
                    link = Link(self._carrier)
                    try:
                        await link.open(gate)
                        return link
                    except Fault as fault:
                        self._trouble = fault
                        if fault.refused:
                            break
                    await asyncio.sleep(wait)
        except TimeoutError:
            if not deadline.expired():
                raise
        last = self._trouble or Fault("Timeout", "no answer to the handshake", retryable=False, started=False)
        raise Fault(last.reason, last.message, retryable=False, started=False, refused=last.refused)

    def _drop(self, link: Link | None) -> None:
        """Nobody new uses it; it is closed when the requests that are under way over it are done."""
        if link is None or link is not self._link:
            return
        self._link = None
        task = asyncio.get_running_loop().create_task(link.retire())
        self._leaving[task] = link
        task.add_done_callback(self._leaving.pop)

    async def _leave(self, link: Link | None) -> None:
        if link is not None and link is self._link:
            self._link = None
            await link.close()


def _timed_out(exchange: Exchange, seconds: float) -> ToolError:
    started = exchange.gate.passed
    effect = "may have taken effect" if started else "was not sent"
    message = f"timed out after {seconds:g} s, {effect}"
    return ToolError("Timeout", message, retryable=started, started=started)


def _waits() -> Iterator[float]:
    wait = WAIT_SECONDS
    while True:
        yield wait * random.uniform(0.75, 1.0)
        wait = min(2 * wait, WAIT_SECONDS_MAX)


def _carrier(where: McpEndpoint | McpCommand, masks: Masks) -> Carrier:
    """The SDK is imported when the first connection is opened."""
    if isinstance(where, McpEndpoint):
        url, headers = where.url, checked_headers(where.headers)

        def over_http() -> Any:
            from agentrun.tools.mcp.http import dispatcher

            return dispatcher(url, headers, masks)

        return over_http
    command, env = list(where.command), dict(where.env)

    def over_pipes() -> Any:
        from agentrun.tools.mcp.stdio import dispatcher

        return dispatcher(command, env, masks)

    return over_pipes
