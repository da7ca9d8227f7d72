"""Streamable HTTP: one POST a request, whose answer is JSON or a stream of events.

Used by `link`, below the SDK's session, as its dispatcher. Invariants:

- A request's fate is its own: whatever becomes of one connection, other requests go on.
- The answer is the message with the request's id, on the request's own stream or on what
  goes on with that stream; anything else there is never an answer to anything.
- Nothing is sent to another origin than the server's, for the headers may hold secrets.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import anyio
import httpx2
from mcp.shared.exceptions import MCPError

from agentrun.log.masks import Masks
from agentrun.tools.arguments import write_exact
from agentrun.tools.exchange import CONNECT_SECONDS_MAX, USER_AGENT
from agentrun.tools.mcp.exchange import CURRENT, Exchange, Fault, current, params_of
from agentrun.tools.mcp.wire import (
    ERROR_TEXT_BYTES_MAX,
    answers,
    parsed,
    read_bounded,
    redirect,
    refusal,
    result_of,
)
from agentrun.tools.results import cut_text

ANSWER_BYTES_MAX = 64 * 1024 * 1024
ERROR_BYTES_READ_MAX = 64 * 1024
REDIRECTS_MAX = 5
RESUMES_MAX = 5
"""How often in a row a stream that broke off is taken up again without a word of it."""
RESUME_SECONDS = 1.0
RESUME_SECONDS_MAX = 30.0
NOTE_SECONDS_MAX = 2.0
"""How long what is sent without an answer (a notification, our own answers) may take."""

SESSION = "mcp-session-id"
VERSION = "mcp-protocol-version"
_ACCEPT = "application/json, text/event-stream"

logger = logging.getLogger(__name__)


@asynccontextmanager
async def dispatcher(url: str, headers: Mapping[str, str], masks: Masks) -> AsyncIterator[HttpDispatcher]:
    """A connection pool of its own, and at the end a word to the server that the session is over."""
    async with httpx2.AsyncClient(
        # No read timeout: a call's deadline is the one bound, and is not on bytes.
        timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS_MAX),
        limits=httpx2.Limits(max_connections=256, max_keepalive_connections=20),
        headers={"user-agent": USER_AGENT, "accept-encoding": "identity", **headers},
        follow_redirects=False,
    ) as client:
        made = HttpDispatcher(client, url, masks)
        try:
            yield made
        finally:
            await made.end()


@dataclass(frozen=True)
class _Inbound:
    """What the SDK is given with a message of the server's."""

    request_id: Any
    transport: Any = None
    can_send_request: bool = False
    message_metadata: Any = None
    cancel_requested: Any = None


class HttpDispatcher:
    """The SDK's `Dispatcher`, over requests. What it raises is a `Fault` or an `MCPError`."""

    lost = False
    """A server is asked anew for each request: only its session can be lost."""

    def __init__(self, client: httpx2.AsyncClient, url: str, masks: Masks) -> None:
        self.session_id: str | None = None
        self._client = client
        self._url = httpx2.URL(url)
        self._masks = masks
        self._version: str | None = None
        self._ids = count(1)
        self._on_request: Any = None
        self._notes: set[asyncio.Task[None]] = set()

    # --- what the SDK's session asks for

    async def run(
        self, on_request: Any, on_notify: Any, on_notify_intercept: Any = None, *, task_status: Any = None
    ) -> None:
        """Until it is cancelled. There is nothing to read but the answers to requests."""
        self._on_request = on_request
        (task_status or anyio.TASK_STATUS_IGNORED).started()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            for note in self._notes:
                note.cancel()

    async def send_raw_request(self, method: str, params: Any, opts: Any = None) -> dict[str, Any]:
        """One request, one result."""
        exchange, request_id = current(), next(self._ids)
        self._heed(opts)
        message = {
            "jsonrpc": "2.0",
            "id": request_id,
            "method": method,
            "params": params_of(params, exchange, request_id),
        }
        headers = {**self._headers(method), **((opts or {}).get("headers") or {})}
        try:
            answer = await self._post(message, headers, exchange, request_id)
        except asyncio.CancelledError:
            if exchange.gate.passed and method not in ("initialize", "server/discover"):
                why = {"requestId": request_id, "reason": "no longer waited for"}
                self._note({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": why})
            raise
        exchange.raw = result_of(answer)
        return exchange.raw

    async def notify(self, method: str, params: Any, opts: Any = None) -> None:
        """Sent as far as that goes."""
        self._heed(opts)
        await self._send_note(
            {"jsonrpc": "2.0", "method": method, **({"params": dict(params)} if params else {})}
        )

    async def end(self) -> None:
        """Tells the server that the session is over, if that goes quickly."""
        if self.session_id is None:
            return
        try:
            async with asyncio.timeout(0.3):
                await self._client.delete(self._url, headers=self._headers(""))
        except (TimeoutError, httpx2.HTTPError):
            pass

    # --- requests

    def _heed(self, opts: Any) -> None:
        """The session says with each message which version of the protocol was agreed on."""
        self._version = ((opts or {}).get("headers") or {}).get(VERSION, self._version)

    def _headers(self, method: str) -> dict[str, str]:
        found = {"accept": _ACCEPT, "content-type": "application/json"}
        if method != "initialize":
            found |= {SESSION: self.session_id} if self.session_id else {}
            found |= {VERSION: self._version} if self._version else {}
        return found

    async def _post(
        self, message: dict[str, Any], headers: dict[str, str], exchange: Exchange, request_id: int
    ) -> dict[str, Any]:
        url, body = self._url, write_exact(message).encode()
        try:
            for _ in range(REDIRECTS_MAX + 1):
                request = self._client.build_request(
                    "POST", url, content=body, headers=headers, extensions={"trace": exchange.gate.trace}
                )
                response = await self._client.send(request, stream=True)
                try:
                    onward = redirect(request, response)
                    if onward is None:
                        return await self._read(response, message["method"], exchange, request_id)
                    url, exchange.gate.passed = onward, False
                finally:
                    await response.aclose()
        except httpx2.ConnectError as error:
            raise self._lost("ConnectionError", error, exchange) from error
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol, httpx2.LocalProtocolError) as error:
            raise self._fault("BadRequest", error, exchange, retryable=False) from error
        except httpx2.SSEError as error:
            raise self._fault("InvalidResponse", error, exchange, retryable=False) from error
        except httpx2.HTTPError as error:
            raise self._lost("ConnectionLost", error, exchange) from error
        raise Fault("TooManyRedirects", f"more than {REDIRECTS_MAX}", retryable=False, started=False)

    def _lost(self, reason: str, error: Exception, exchange: Exchange) -> Fault:
        return self._fault(reason, error, exchange, retryable=True)

    def _fault(self, reason: str, error: Exception, exchange: Exchange, *, retryable: bool) -> Fault:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        message = cut_text(self._masks.text(text), bytes_max=ERROR_TEXT_BYTES_MAX)
        return Fault(reason, message, retryable=retryable, started=exchange.gate.passed)

    async def _read(
        self, response: httpx2.Response, method: str, exchange: Exchange, request_id: int
    ) -> dict[str, Any]:
        if response.status_code == 202:
            raise Fault("InvalidResponse", "202 Accepted, and no answer", retryable=False, started=True)
        if response.status_code >= 300:
            body = await read_bounded(response, ERROR_BYTES_READ_MAX, cut=True)
            known = self.session_id is not None
            return refusal(response, body, request_id, known_session=known, masks=self._masks)
        if method == "initialize":
            self.session_id = response.headers.get(SESSION)
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "text/event-stream":
            return await self._stream(response, exchange, request_id)
        body = await read_bounded(response, ANSWER_BYTES_MAX)
        message = parsed(body)
        if not answers(message, request_id):
            raise Fault(
                "InvalidResponse", f"what came back ({kind or 'no media type'}) is no answer to the request",
                retryable=False, started=True,
            )  # fmt: skip
        assert message is not None
        return message

    # --- streams

    async def _stream(self, response: httpx2.Response, exchange: Exchange, request_id: int) -> dict[str, Any]:
        """The answer out of a stream, which may break off and be taken up again."""
        last: str | None = None
        wait, fruitless = RESUME_SECONDS, 0
        opened: httpx2.Response | None = response
        error: Exception | None = None
        while True:
            try:
                if opened is None:
                    opened = await self._take_up(last or "")
                async for event in httpx2.EventSource(opened, max_event_size=ANSWER_BYTES_MAX):
                    if event.id:
                        last, fruitless = event.id, 0
                    if event.retry is not None:
                        wait = min(event.retry / 1000, RESUME_SECONDS_MAX)
                    if event.data and (found := self._heard(event.data, exchange, request_id)) is not None:
                        return found
            except httpx2.SSEError:
                raise
            except httpx2.HTTPError as broken:
                error = broken
            finally:
                if opened is not None and opened is not response:
                    await opened.aclose()
            opened, fruitless = None, fruitless + 1
            if last is None or fruitless > RESUMES_MAX:
                told = f": {type(error).__name__}" if error is not None else ""
                message = f"the stream ended without an answer{told}"
                raise Fault("ConnectionLost", message, retryable=True, started=True)
            await asyncio.sleep(wait)

    async def _take_up(self, last: str) -> httpx2.Response:
        headers = {**self._headers(""), "accept": "text/event-stream", "last-event-id": last}
        request = self._client.build_request("GET", self._url, headers=headers)
        response = await self._client.send(request, stream=True)
        if response.status_code != 200:
            status = response.status_code
            await response.aclose()
            message = f"the stream ended without an answer, and cannot be taken up again ({status})"
            raise Fault("ConnectionLost", message, retryable=True, started=True)
        return response

    def _heard(self, data: str, exchange: Exchange, request_id: int) -> dict[str, Any] | None:
        """A message on the request's stream; returns the answer."""
        message = parsed(data.encode())
        if message is None:
            logger.warning("an MCP server sent an event that is no message; it is left aside")
        elif "method" not in message:
            if answers(message, request_id):
                return message
            logger.warning("an MCP server sent an answer to another request; it is left aside")
        elif message.get("id") is not None:
            self._notes_add(self._answer(message))
        elif message["method"] == "notifications/progress":
            token = (message.get("params") or {}).get("progressToken")
            if token in (request_id, str(request_id)):
                exchange.progressed()
        return None

    # --- what has no answer

    async def _answer(self, message: dict[str, Any]) -> None:
        """What the server asks of us: a ping gets its answer, the rest a refusal."""
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            found = await self._on_request(_Inbound(message["id"]), message["method"], message.get("params"))
            reply["result"] = found
        except MCPError as error:
            reply["error"] = {"code": error.code, "message": error.message}
        except Exception as error:
            reply["error"] = {"code": -32603, "message": type(error).__name__}
        await self._send_note(reply)

    def _note(self, message: dict[str, Any]) -> None:
        self._notes_add(self._send_note(message))

    def _notes_add(self, sending: Any) -> None:
        task = asyncio.get_running_loop().create_task(sending)
        self._notes.add(task)
        task.add_done_callback(self._notes.discard)

    async def _send_note(self, message: dict[str, Any]) -> None:
        exchange = CURRENT.get()
        try:
            if exchange is not None and message.get("method") == "notifications/initialized":
                await exchange.gate.open()
            async with asyncio.timeout(NOTE_SECONDS_MAX):
                await self._client.post(self._url, content=json.dumps(message), headers=self._headers(""))
        except (TimeoutError, httpx2.HTTPError) as error:
            logger.debug("a note to an MCP server was not sent: %s", type(error).__name__)
