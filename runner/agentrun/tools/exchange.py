"""One HTTP request of a tool, and what its answer means.

Called by the tools that make requests: HTTP endpoints, operations of OpenAPI documents.
Invariants:

- `before_send` is awaited when the connection stands and nothing of the request is
  sent; an error before that point says `started=False`, one behind it True.
- The deadline is on the whole response: bytes that trickle in do not extend it. The
  time that `before_send` takes is not the tool's.
- A request never goes to another origin than its own, for its headers may hold
  secrets. Only a GET follows redirects, within its origin.

httpx2 is imported with the first call: importing this module must stay cheap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentrun.tools.base import ToolError, ToolOutput
from agentrun.tools.errors import ToolSetupError
from agentrun.tools.gate import Gate
from agentrun.tools.response import read_response
from agentrun.tools.results import cut_text, render_error

if TYPE_CHECKING:
    import httpx2

RESPONSE_BYTES_MAX = 1024 * 1024
CONNECT_SECONDS_MAX = 10.0
CONNECTIONS_MAX = 256
REDIRECTS_MAX = 5
USER_AGENT = "agentrun"

Answer = tuple[int, dict[str, str], bytes, bool]
"""Status, headers with lower-case names, body, and whether it went on behind the bound."""


@dataclass(frozen=True, kw_only=True)
class HttpRequest:
    """`headers` have lower-case names and may be secrets; `shown` names it in messages, without any."""

    method: str
    url: str = field(repr=False)
    shown: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | None = field(default=None, repr=False)


class HttpSession:
    """The one client of a tool set: opened by the first call, closed by any tool's close()."""

    def __init__(self) -> None:
        self._client: httpx2.AsyncClient | None = None
        self._closed = False

    def client(self) -> httpx2.AsyncClient:
        """The client; raises ToolError once closed."""
        if self._closed:
            raise ToolError("Closed", "the tools are closed", retryable=False, started=False)
        if self._client is None:
            self._client = _open_client()
        return self._client

    async def close(self) -> None:
        """Closes the connections; may be called again."""
        self._closed = True
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def send(
        self, request: HttpRequest, before_send: Callable[[], Awaitable[None]], timeout_seconds: float
    ) -> ToolOutput:
        """One attempt, to its output. Raises ToolError."""
        status, headers, body, cut = await self.fetch(request, before_send, timeout_seconds)
        return read_response(request.shown, status, headers, body, cut=cut)

    async def fetch(
        self,
        request: HttpRequest,
        before_send: Callable[[], Awaitable[None]],
        timeout_seconds: float,
        *,
        bytes_max: int = RESPONSE_BYTES_MAX,
    ) -> Answer:
        """One attempt, to its answer, whatever that is. Raises ToolError where there is none."""
        client = self.client()
        gate = Gate(before_send)
        try:
            async with asyncio.timeout(timeout_seconds) as deadline:
                gate.deadline = deadline
                return await _exchange(client, request, gate, bytes_max)
        except TimeoutError:
            if not gate.expired:
                raise  # before_send's own
            effect = "may have taken effect" if gate.passed else "was not sent"
            raise ToolError(
                "Timeout",
                f"timed out after {timeout_seconds:g} s, {effect}",
                retryable=True,
                started=gate.passed,
            ) from None


async def _exchange(client: httpx2.AsyncClient, asked: HttpRequest, gate: Gate, bytes_max: int) -> Answer:
    import httpx2

    url = asked.url
    try:
        for _ in range(REDIRECTS_MAX + 1):
            request = client.build_request(
                asked.method,
                url,
                content=asked.body,
                headers=dict(asked.headers),
                extensions={"trace": gate.trace},
            )
            response = await client.send(request, stream=True)
            try:
                onward = _redirect(request, response)
                if onward is None:
                    content, cut = await _read(response, bytes_max)
                    return response.status_code, _lower(response.headers), content, cut
                url = onward
            finally:
                await response.aclose()
    except (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError, httpx2.InvalidURL) as error:
        raise _error("BadRequest", asked, error, gate, retryable=False) from error
    except httpx2.DecodingError as error:
        raise _error("InvalidResponse", asked, error, gate, retryable=True) from error
    except httpx2.TransportError as error:
        reason = "ConnectionLost" if gate.passed else "ConnectionError"
        raise _error(reason, asked, error, gate, retryable=True) from error
    raise ToolError("TooManyRedirects", f"{asked.shown}: more than {REDIRECTS_MAX}", retryable=False)


def _error(reason: str, asked: HttpRequest, error: Exception, gate: Gate, *, retryable: bool) -> ToolError:
    message = cut_text(f"{asked.shown}: {render_error(error)}", bytes_max=600)
    return ToolError(reason, message, retryable=retryable, started=gate.passed)


def _open_client() -> httpx2.AsyncClient:
    from http.cookiejar import CookieJar, DefaultCookiePolicy

    import httpx2

    return httpx2.AsyncClient(
        # No read timeout: the deadline of the call is the one bound.
        timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS_MAX),
        limits=httpx2.Limits(max_connections=CONNECTIONS_MAX, max_keepalive_connections=20),
        # Unpacked, a small body could be a very large one.
        headers={"user-agent": USER_AGENT, "accept": "*/*", "accept-encoding": "identity"},
        # A cookie would be memory that the log knows nothing of.
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        follow_redirects=False,
    )


def _redirect(request: httpx2.Request, response: httpx2.Response) -> str | None:
    """Where to go on, or None where the response is the answer."""
    if request.method != "GET" or not response.has_redirect_location:
        return None
    onward = request.url.join(response.headers["location"])
    here, there = request.url, onward
    same = (here.scheme, here.host, here.port) == (there.scheme, there.host, there.port)
    return str(onward.copy_with(username=here.username, password=here.password)) if same else None


async def _read(response: httpx2.Response, bytes_max: int) -> tuple[bytes, bool]:
    content = bytearray()
    async for chunk in response.aiter_bytes():
        content += chunk
        if len(content) > bytes_max:
            return bytes(content[:bytes_max]), True
    return bytes(content), False


def _lower(headers: httpx2.Headers) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Lower-case names; a value loses white space around it, such as a secret's last newline."""
    checked = {}
    for name, value in headers.items():
        stripped = value.strip()
        if not (stripped.isascii() and stripped.replace("\t", " ").isprintable()):
            raise ToolSetupError(f"header {name}: its value has characters that a header cannot hold")
        if not name or not all(char.isalnum() or char in "!#$%&'*+-.^_`|~" for char in name):
            raise ToolSetupError(f"header {name!r}: this is no name of a header")
        checked[name.lower()] = stripped
    return checked
