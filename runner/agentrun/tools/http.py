"""Tools that are HTTP endpoints. One call is one attempt.

Built by `build_tool` at an agent's set-up, called by the agent loop. Invariants:

- `before_send` is awaited when the connection stands and nothing of the request is
  sent; an error before that point says `started=False`, one behind it True.
- The deadline is on the whole response: bytes that trickle in do not extend it. The
  time that `before_send` takes is not the tool's.
- A request never goes to another origin than the manifest's, for its headers may
  hold secrets. Only a GET follows redirects, within its origin.
- Of the arguments, a JSON body is the model's own text, byte for byte.

httpx2 is imported with the first call: importing this module must stay cheap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from agentrun.log.text import safe_text
from agentrun.models.base import ToolDefinition
from agentrun.tools.arguments import parse_arguments
from agentrun.tools.base import Effect, OnUnknown, ToolCall, ToolError, ToolOutput
from agentrun.tools.errors import ArgumentsError, ToolSetupError
from agentrun.tools.gate import Gate
from agentrun.tools.response import read_response
from agentrun.tools.results import cut_text, render_error
from agentrun.tools.url import UrlTemplate

if TYPE_CHECKING:
    import httpx2

    from agentrun.spec.approval import ApprovalRule

RESPONSE_BYTES_MAX = 1024 * 1024
CONNECT_SECONDS_MAX = 10.0
CONNECTIONS_MAX = 256
REDIRECTS_MAX = 5
USER_AGENT = "agentrun"
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


@dataclass(frozen=True, kw_only=True)
class HttpEndpoint:
    """Where and how. Values of `headers` are resolved, so they may be secrets: not in the repr.

    `arguments`: as a JSON `body`, or in the `query`; None is the query for GET and
    DELETE and the body else. Arguments that fill parts of the URL are not repeated
    in the query; a body is always whole.
    """

    url: str
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    arguments: Literal["body", "query"] | None = None


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


class HttpTool:
    """One endpoint as a tool. Raises ToolSetupError when it cannot be called as given."""

    def __init__(
        self,
        *,
        name: str,
        endpoint: HttpEndpoint,
        session: HttpSession,
        description: str = "",
        parameters: Mapping[str, Any] | None = None,
        effect: Effect = Effect.UNSAFE,
        on_unknown: OnUnknown = OnUnknown.REPORT,
        timeout_seconds: float = 60.0,
        approval: ApprovalRule | None = None,
    ) -> None:
        self._method = endpoint.method.upper()
        if self._method not in _METHODS:
            raise ToolSetupError(f"the method must be one of {', '.join(_METHODS)}")
        self._url = UrlTemplate.parse(endpoint.url)
        default = "query" if self._method in ("GET", "DELETE") else "body"
        self._in_query = (endpoint.arguments or default) == "query"
        self._headers = checked_headers(endpoint.headers)
        self._session = session
        self.definition = ToolDefinition(
            name=name, description=description, parameters=parameters or _parameters(self._url.names)
        )
        self.effect = effect
        self.on_unknown = on_unknown
        self.approval = approval
        self.timeout_seconds = timeout_seconds

    async def call(self, call: ToolCall) -> ToolOutput:
        """One request (and, for a GET, the redirects within its origin)."""
        try:
            arguments = parse_arguments(call.arguments, literal_numbers=True)
            url = self._url.fill(arguments, rest_in_query=self._in_query)
        except ArgumentsError as error:
            return ToolOutput(content=cut_text(f"Invalid arguments: {error}"), is_error=True)
        body = None if self._in_query else _json_body(call.arguments)
        client = self._session.client()
        gate = Gate(call.before_send)
        try:
            async with asyncio.timeout(self.timeout_seconds) as deadline:
                gate.deadline = deadline
                answer = await self._exchange(client, url, body, self._call_headers(call, body), gate)
        except TimeoutError:
            if not gate.expired:
                raise  # before_send's own
            effect = "may have taken effect" if gate.passed else "was not sent"
            raise ToolError(
                "Timeout",
                f"timed out after {self.timeout_seconds:g} s, {effect}",
                retryable=True,
                started=gate.passed,
            ) from None
        return read_response(self._what, *answer[:3], cut=answer[3])

    async def close(self) -> None:
        """Closes the session, which the other tools of the set share."""
        await self._session.close()

    @property
    def _what(self) -> str:
        return f"{self._method} {self._url.shown}"

    def _call_headers(self, call: ToolCall, body: bytes | None) -> dict[str, str]:
        headers = dict(self._headers)
        if body is not None:
            headers.setdefault("content-type", "application/json")
        headers["idempotency-key"] = call.idempotency_key
        return headers

    async def _exchange(
        self, client: httpx2.AsyncClient, url: str, body: bytes | None, headers: dict[str, str], gate: Gate
    ) -> tuple[int, dict[str, str], bytes, bool]:
        import httpx2

        try:
            for _ in range(REDIRECTS_MAX + 1):
                request = client.build_request(
                    self._method, url, content=body, headers=headers, extensions={"trace": gate.trace}
                )
                response = await client.send(request, stream=True)
                try:
                    onward = _redirect(request, response)
                    if onward is None:
                        content, cut = await _read(response)
                        return response.status_code, _lower(response.headers), content, cut
                    url = onward
                finally:
                    await response.aclose()
        except (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError, httpx2.InvalidURL) as error:
            raise self._error("BadRequest", error, gate, retryable=False) from error
        except httpx2.DecodingError as error:
            raise self._error("InvalidResponse", error, gate, retryable=True) from error
        except httpx2.TransportError as error:
            reason = "ConnectionLost" if gate.passed else "ConnectionError"
            raise self._error(reason, error, gate, retryable=True) from error
        raise ToolError("TooManyRedirects", f"{self._what}: more than {REDIRECTS_MAX}", retryable=False)

    def _error(self, reason: str, error: Exception, gate: Gate, *, retryable: bool) -> ToolError:
        message = cut_text(f"{self._what}: {render_error(error)}", bytes_max=600)
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


def _json_body(text: str) -> bytes:
    return safe_text(text).encode() if text.strip() else b"{}"


def _redirect(request: httpx2.Request, response: httpx2.Response) -> str | None:
    """Where to go on, or None where the response is the answer."""
    if request.method != "GET" or not response.has_redirect_location:
        return None
    onward = request.url.join(response.headers["location"])
    here, there = request.url, onward
    same = (here.scheme, here.host, here.port) == (there.scheme, there.host, there.port)
    return str(onward.copy_with(username=here.username, password=here.password)) if same else None


async def _read(response: httpx2.Response) -> tuple[bytes, bool]:
    content = bytearray()
    async for chunk in response.aiter_bytes():
        content += chunk
        if len(content) > RESPONSE_BYTES_MAX:
            return bytes(content[:RESPONSE_BYTES_MAX]), True
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


def _parameters(names: tuple[str, ...]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: {"type": "string"} for name in names},
        "required": list(names),
    }
