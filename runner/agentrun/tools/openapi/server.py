"""An HTTP API as a tool server: its document says what there is, a call is one request.

Built by `program` for an entry of a manifest, called by the agent layer. Invariants: a
document is read once a run, and each call is made from what was recorded then; requests
go to one origin, which the document alone can set only where it comes from there itself,
for the manifest's headers may hold secrets.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

from agentrun.spec.document import read_document
from agentrun.spec.errors import ManifestError
from agentrun.tools.arguments import parse_arguments
from agentrun.tools.base import Effect, ServerTool, ToolCall, ToolError, ToolOutput, ToolServerUnavailable
from agentrun.tools.errors import ArgumentsError, ToolSetupError
from agentrun.tools.exchange import HttpRequest, HttpSession, checked_headers
from agentrun.tools.openapi.document import BadDocument, BadOperation, Document
from agentrun.tools.openapi.plan import plan
from agentrun.tools.openapi.request import request
from agentrun.tools.response import RETRYABLE
from agentrun.tools.results import cut_text

DOCUMENT_BYTES_MAX = 4 * 1024 * 1024
FETCH_SECONDS_MAX = 30.0

EFFECTS = {
    "GET": Effect.READ_ONLY,
    "HEAD": Effect.READ_ONLY,
    "PUT": Effect.IDEMPOTENT,
    "DELETE": Effect.IDEMPOTENT,
}
"""By the meaning that HTTP gives to a method; POST and PATCH are unsafe."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class OpenApiSource:
    """Where the document is: a `url`, a `file`, or the `document` itself."""

    url: str = ""
    file: Path | None = None
    document: Mapping[str, Any] | None = None

    @property
    def shown(self) -> str:
        """For messages, without a query."""
        if self.url:
            return self.url.partition("?")[0]
        return str(self.file) if self.file is not None else "the document"


@dataclass(frozen=True, kw_only=True)
class OpenApiServer:
    """See the module's docstring. `base_url` "": the document's first server. Raises ToolSetupError."""

    source: OpenApiSource
    session: HttpSession
    base_url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "headers", checked_headers(self.headers))
        if self.source.document is not None:
            try:
                self._base(Document(self.source.document))
            except BadDocument as error:
                raise ToolSetupError(f"the document: {error}") from error

    async def list_tools(self, before_send: Callable[[], Awaitable[None]]) -> Sequence[ServerTool]:
        """All operations, in the order of the document."""
        try:
            value = await self._read(before_send)
            document = Document(value)
            base = self._base(document)
        except (BadDocument, ManifestError) as error:
            line = " ".join(str(error).split())
            raise ToolServerUnavailable(f"{self.source.shown}: {line}", retryable=False) from error
        found = []
        for tool in self._tools(document, base):
            found.append(tool)
            await asyncio.sleep(0)  # thousands of operations take seconds, in which others go on
        return found

    async def call_tool(self, tool: ServerTool, call: ToolCall, timeout_seconds: float) -> ToolOutput:
        """One request, by what was recorded of the operation."""
        what = json.loads(tool.binding)
        try:
            asked = request(what, parse_arguments(call.arguments, literal_numbers=True))
        except ArgumentsError as error:
            return ToolOutput(content=cut_text(f"Invalid arguments: {error}"), is_error=True)
        base = self.base_url or what["base"]
        sent = HttpRequest(
            method=asked.method,
            url=base.rstrip("/") + asked.path,
            shown=f"{asked.method} {base.rstrip('/')}{what['path']}",
            headers={**asked.headers, **self.headers, "idempotency-key": call.idempotency_key},
            body=asked.body,
        )
        return await self.session.send(sent, call.before_send, timeout_seconds)

    async def close(self) -> None:
        await self.session.close()

    def _tools(self, document: Document, base: str) -> Iterator[ServerTool]:
        for operation in document.operations():
            if isinstance(operation, tuple):
                self._warn(*operation)
                continue
            try:
                parameters, what = plan(operation, document, self.headers)
            except BadOperation as error:
                self._warn(operation.name, str(error))
                continue
            yield ServerTool(
                name=operation.name,
                description=operation.description,
                parameters=parameters,
                effect=EFFECTS.get(operation.method, Effect.UNSAFE),
                binding=json.dumps({**json.loads(what), "base": base}, separators=(",", ":")).encode(),
            )

    def _warn(self, name: str, why: str) -> None:
        logger.warning("%s: the operation %r is left out: %s", self.source.shown, name[:100], why)

    async def _read(self, before_send: Callable[[], Awaitable[None]]) -> Any:
        """The document's value. Raises ToolServerUnavailable, ManifestError."""
        if self.source.document is not None:
            return self.source.document
        if self.source.file is not None:
            data = await asyncio.to_thread(_file, self.source.file)
        else:
            data = await self._fetched(before_send)
        if not data.strip():
            raise BadDocument("it is empty")
        return await asyncio.to_thread(read_document, data, source="")

    async def _fetched(self, before_send: Callable[[], Awaitable[None]]) -> bytes:
        # Headers, which may be secrets, go where the calls go, and nowhere else.
        own = not self.base_url or _origin(self.base_url) == _origin(self.source.url)
        asked = HttpRequest(
            method="GET",
            url=self.source.url,
            shown=f"GET {self.source.shown}",
            headers=self.headers if own else {},
        )
        try:
            status, _, body, cut = await self.session.fetch(
                asked, before_send, FETCH_SECONDS_MAX, bytes_max=DOCUMENT_BYTES_MAX
            )
        except ToolError as error:
            raise ToolServerUnavailable(error.message, retryable=error.retryable) from error
        if status != 200:
            again = status in RETRYABLE or status >= 500
            raise ToolServerUnavailable(f"{asked.shown}: status {status}", retryable=again)
        if cut:
            raise ToolServerUnavailable(
                f"{asked.shown}: it has more than {DOCUMENT_BYTES_MAX} bytes", retryable=False
            )
        return body

    def _base(self, document: Document) -> str:
        """Where calls go. Raises BadDocument."""
        if self.base_url:
            return self.base_url
        base = urljoin(self.source.url, document.server or ("/" if self.source.url else ""))
        parts = urlsplit(base)
        if parts.scheme not in ("http", "https") or not parts.netloc or "@" in parts.netloc:
            raise BadDocument("it names no server with an address of its own: set baseURL")
        if self.source.url and _origin(base) != _origin(self.source.url):
            raise BadDocument(
                f"its server {parts.scheme}://{parts.netloc} is not where it comes from: set baseURL"
            )
        return base


def _file(path: Path) -> bytes:
    try:
        with path.open("rb") as opened:
            data = opened.read(DOCUMENT_BYTES_MAX + 1)
    except OSError as error:
        raise ToolServerUnavailable(f"{path}: {error.strerror or error}", retryable=False) from error
    if len(data) > DOCUMENT_BYTES_MAX:
        raise ToolServerUnavailable(f"{path}: it has more than {DOCUMENT_BYTES_MAX} bytes", retryable=False)
    return data


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
