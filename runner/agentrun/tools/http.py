"""Tools that are HTTP endpoints. One call is one attempt.

Built by `build_tool` at an agent's set-up, called by the agent loop. Invariant: of the
arguments, a JSON body is the model's own text, byte for byte. What holds of the request
itself is in `exchange`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from agentrun.log.text import safe_text
from agentrun.models.base import ToolDefinition
from agentrun.tools.arguments import parse_arguments
from agentrun.tools.base import Effect, OnUnknown, ToolCall, ToolOutput
from agentrun.tools.errors import ArgumentsError, ToolSetupError
from agentrun.tools.exchange import HttpRequest, HttpSession, checked_headers
from agentrun.tools.results import cut_text
from agentrun.tools.url import UrlTemplate

if TYPE_CHECKING:
    from agentrun.spec.approval import ApprovalRule

_ELSEWHERE = ("$ref", "allOf", "anyOf", "oneOf", "patternProperties", "additionalProperties")
"""Keywords of a schema that may tell of further properties."""

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
        _check_parts(self._url.names, parameters)
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
        request = HttpRequest(
            method=self._method,
            url=url,
            shown=f"{self._method} {self._url.shown}",
            headers=self._call_headers(call, body),
            body=body,
        )
        return await self._session.send(request, call.before_send, self.timeout_seconds)

    async def close(self) -> None:
        """Closes the session, which the other tools of the set share."""
        await self._session.close()

    def _call_headers(self, call: ToolCall, body: bytes | None) -> dict[str, str]:
        headers = dict(self._headers)
        if body is not None:
            headers.setdefault("content-type", "application/json")
        headers["idempotency-key"] = call.idempotency_key
        return headers


def _json_body(text: str) -> bytes:
    return safe_text(text).encode() if text.strip() else b"{}"


def _check_parts(names: tuple[str, ...], parameters: Mapping[str, Any] | None) -> None:
    """ToolSetupError for a part of the URL that no model would know of: each call would be refused."""
    if not parameters or any(key in parameters for key in _ELSEWHERE):
        return
    told = parameters.get("properties", {})
    missing = [name for name in names if isinstance(told, Mapping) and name not in told]
    if missing:
        raise ToolSetupError(f"the URL names {{{missing[0]}}}, which is not in the properties of parameters")


def _parameters(names: tuple[str, ...]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: {"type": "string"} for name in names},
        "required": list(names),
    }
