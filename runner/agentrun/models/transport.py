"""The last step before a request leaves, and the first after its answer came.

Providers' SDKs are given a `GuardedClient` in place of their own HTTP client.
Each call of a provider sets one `Exchange`, and the client keeps these rules,
whatever the SDK would like to do:

- one request an exchange: a second one (a retry, a recovery) never leaves;
- `before_send` is awaited when the connection stands, just before the first byte;
- no redirect is followed, for the key would follow it;
- an answer is bounded in size, and read whole before anybody acts on it.

The SDK never sees the answer: `Answered` ends its call. Its parser would raise
errors of its own, round numbers and drop what it does not know.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import httpx2

from agentrun.models.answer import read_failure
from agentrun.models.base import ModelError
from agentrun.models.errors import clip
from agentrun.models.streams.reader import BODY_MAX_BYTES, Reader

FAILURE_MAX_BYTES = 64 * 1024
CONNECT_TIMEOUT_SECONDS = 30.0
CONNECTIONS_MAX = 1000


_TOLD_BY_SDKS = ("x-stainless-timeout", "x-stainless-read-timeout")
"""Times that are not the ones that hold."""


class Answered(BaseException):
    """The exchange is over. Not an Exception, so that no SDK catches it and tries again."""


@dataclass(kw_only=True)
class Exchange:
    """One call of a provider: what goes out is rewritten, and what came back is kept.

    `options` are fields of ours, by the names that a refusal of them is told under; `extra`
    the manifest's, which win. `reader`: the answer is asked for as a stream."""

    provider: str
    before_send: Callable[[], Awaitable[None]]
    rewrite: Callable[[bytes], bytes]
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    reader: Reader | None = None
    left: bool = False
    answer: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    failure: Exception | None = None

    def body(self, content: bytes) -> bytes:
        """What is sent in place of `content`."""
        more = [fields for fields in (*self.options.values(), self.extra) if fields]
        if more:
            body = json.loads(content)
            for fields in more:
                body = _merge(body, fields)
            content = json.dumps(body).encode()
        return self.rewrite(content)

    async def on_trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Called by the HTTP library at each of its steps."""
        if not event.endswith("send_request_headers.started"):
            return
        if info["request"].method == b"CONNECT":  # to a proxy: nothing of ours leaves yet
            return
        try:
            await self.before_send()
        except Exception as e:
            self.failure = e
            raise Answered from e
        self.left = True


current: ContextVar[Exchange] = ContextVar("exchange")


class GuardedClient(httpx2.AsyncClient):
    """An HTTP client that keeps the rules above. Proxies of the environment are honoured.

    `wire`: what carries requests in place of the network; it has to tell `trace` of its steps."""

    def __init__(self, wire: httpx2.AsyncBaseTransport | None = None) -> None:
        super().__init__(
            transport=wire,
            limits=httpx2.Limits(max_connections=CONNECTIONS_MAX),
            timeout=httpx2.Timeout(None, connect=CONNECT_TIMEOUT_SECONDS),
            follow_redirects=False,
        )

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        exchange = current.get()
        if exchange.left or exchange.failure is not None or exchange.answer is not None:
            raise Answered
        try:
            await self._exchange(exchange, request, options.get("auth"))
        except httpx2.TimeoutException as e:
            exchange.failure = _transport_error("Timeout", exchange, request, e)
        except httpx2.DecodingError as e:
            exchange.failure = _transport_error("InvalidResponse", exchange, request, e)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as e:
            exchange.failure = _transport_error("ConnectionError", exchange, request, e)
        except ModelError as e:
            exchange.failure = e
        raise Answered

    async def _exchange(self, exchange: Exchange, request: httpx2.Request, auth: Any) -> None:
        response = await super().send(
            _outgoing(exchange, request, await request.aread()),
            stream=True,
            follow_redirects=False,
            auth=auth,
        )
        try:
            if not exchange.left:
                raise RuntimeError("the HTTP library sent a request without asking")
            exchange.headers = {name.lower(): value for name, value in response.headers.items()}
            if response.is_redirect or 300 <= response.status_code < 400:
                raise _redirect(exchange, response)
            if not response.is_success:
                data = await _read(response, FAILURE_MAX_BYTES)
                raise read_failure(
                    response.status_code,
                    data[:FAILURE_MAX_BYTES],
                    exchange.headers,
                    provider=exchange.provider,
                    options=exchange.options,
                )
            if exchange.reader is not None:
                exchange.answer = await exchange.reader.read(response.aiter_bytes())
                return
            data = await _read(response, BODY_MAX_BYTES)
            if len(data) > BODY_MAX_BYTES:
                message = f"{exchange.provider}: an answer of more than {BODY_MAX_BYTES} bytes"
                raise ModelError("InvalidResponse", message, retryable=False)
            exchange.answer = data
        finally:
            await response.aclose()


def _outgoing(exchange: Exchange, request: httpx2.Request, content: bytes) -> httpx2.Request:
    headers = request.headers.copy()
    for name in ("content-length", "transfer-encoding", *_TOLD_BY_SDKS):
        headers.pop(name, None)
    # What is compressed can be small on the wire and huge in memory.
    headers["accept-encoding"] = "identity"
    timeout = {"connect": CONNECT_TIMEOUT_SECONDS, "read": None, "write": None, "pool": None}
    return httpx2.Request(
        request.method,
        _address(exchange, request.url),
        headers=headers,
        content=exchange.body(content),
        extensions={**request.extensions, "timeout": timeout, "trace": exchange.on_trace},
    )


def _address(exchange: Exchange, url: httpx2.URL) -> httpx2.URL:
    """Google streams at an address of its own; the others are told in the body."""
    if exchange.reader is None or exchange.provider != "google":
        return url
    path = url.path.replace(":generateContent", ":streamGenerateContent")
    return url.copy_with(path=path).copy_merge_params({"alt": "sse"})


async def _read(response: httpx2.Response, max_bytes: int) -> bytes:
    """The body, or a little more than its first `max_bytes`."""
    data = bytearray()
    async for chunk in response.aiter_bytes():
        data += chunk
        if len(data) > max_bytes:
            break
    return bytes(data)


def _redirect(exchange: Exchange, response: httpx2.Response) -> ModelError:
    target = response.headers.get("location", "")
    return ModelError(
        "InvalidResponse",
        clip(f"{exchange.provider} answered {response.status_code}: no redirect is followed, to {target}"),
        retryable=False,
    )


def _transport_error(
    reason: str, exchange: Exchange, request: httpx2.Request, error: Exception
) -> ModelError:
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return ModelError(reason, clip(f"{exchange.provider} at {request.url.host}: {what}"), retryable=True)


def _merge(body: Any, extra: Mapping[str, Any]) -> Any:
    """`extra` over `body`, level by level where both are objects."""
    if not isinstance(body, dict):
        return body
    for key, value in extra.items():
        known = body.get(key)
        body[key] = _merge(known, value) if isinstance(known, dict) and isinstance(value, Mapping) else value
    return body
