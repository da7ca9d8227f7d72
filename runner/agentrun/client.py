"""The API's client: runs on a server, from anywhere.

Who calls: the command (`--server`), and people's programs. What holds: `events` gives each record
once and in order, however often the connection is lost; a start with a key is repeated until it is
answered, for the key makes that safe; nothing else is sent twice.

    async with Client("http://127.0.0.1:8090", token) as client:
        run = await client.start(manifest)
        async for event in client.events(run["runID"]):
            print(event.data["what"])
"""

from __future__ import annotations

import asyncio
import json
import random
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import quote, urlsplit

import httpx2

RECORD, END = "record", "end"

REQUEST_SECONDS_MAX = 30.0
SILENT_SECONDS_MAX = 45.0
"""A stream says something every 15 s; one that does not is given up."""

AWAY_SECONDS_MAX = 300.0
"""How long a server may be away before its callers are told."""

WAIT_SECONDS_FIRST = 0.1
WAIT_SECONDS_MAX = 2.0
EVENT_BYTES_MAX = 4 * 1024 * 1024


class ApiError(Exception):
    """The server said no. `reason` as in docs/api.md; `errors`: field → what is wrong with it."""

    def __init__(self, status: int, reason: str, detail: str, errors: Mapping[str, str]) -> None:
        lines = [f"{field}: {wrong}" if field else wrong for field, wrong in errors.items()]
        super().__init__("\n".join(lines) or detail)
        self.status = status
        self.reason = reason
        self.detail = detail
        self.errors = dict(errors)


class ServerUnavailable(Exception):
    """The server gave no answer, or cannot now. One line."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """One event. `seq` is its place in the run's log; None for what is of the moment."""

    kind: str
    seq: int | None
    data: Mapping[str, Any]


class Client:
    """See the module's docstring. `on_away` is told why, each time that the server is waited for."""

    def __init__(
        self,
        server: str,
        token: str,
        *,
        away_seconds_max: float = AWAY_SECONDS_MAX,
        on_away: Callable[[str], None] = lambda why: None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        parts = urlsplit(server)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"the server must be a URL that begins with http:// or https://, not {server!r}")
        self._away_seconds_max = away_seconds_max
        self._on_away = on_away
        self._client = httpx2.AsyncClient(
            base_url=server.rstrip("/"),
            headers={"Authorization": f"Bearer {token}", "User-Agent": "agentrun-client"},
            timeout=REQUEST_SECONDS_MAX,
            follow_redirects=False,
            transport=transport,
        )

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes its connections."""
        await self._client.aclose()

    # --- runs

    async def start(self, manifest: str | bytes, *, key: str = "") -> dict[str, Any]:
        """Begins the run of a manifest (YAML or JSON). `key` names this start: the same one gives
        the same run; without it this call's own. Raises ApiError, ServerUnavailable."""
        headers = {"Idempotency-Key": key or str(uuid.uuid4())}
        waits = _Waits(self._away_seconds_max)
        while True:
            try:
                return await self._json("POST", "/v1/runs", content=manifest, headers=headers)
            except ServerUnavailable as error:
                self._on_away(str(error))
                await waits.wait(error)

    async def runs(
        self, *, namespace: str = "", phase: str = "", name: str = "", limit: int = 100
    ) -> list[dict[str, Any]]:
        """The newest runs, up to `limit`."""
        found: list[dict[str, Any]] = []
        query = {"namespace": namespace, "phase": phase, "name": name}
        token: str | None = ""
        while token is not None and len(found) < limit:
            page = {"limit": str(min(limit - len(found), 500)), "continue": token}
            named = {key: value for key, value in {**query, **page}.items() if value}
            answer = await self._json("GET", "/v1/runs", params=named)
            found += answer["runs"]
            token = answer["continue"]
        return found

    async def run(self, run_id: str) -> dict[str, Any]:
        """How a run stands."""
        return await self._json("GET", _path(run_id))

    async def answer(self, run_id: str) -> str:
        """The whole answer of a run that has ended well."""
        return str((await self._json("GET", _path(run_id, "answer")))["text"])

    async def approvals(self, run_id: str) -> list[dict[str, Any]]:
        """Its calls that wait for a person."""
        found: list[dict[str, Any]] = (await self._json("GET", _path(run_id, "approvals")))["approvals"]
        return found

    async def decide(
        self,
        run_id: str,
        id_: str,
        *,
        approve: bool,
        reason: str = "",
        arguments: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Answers one of them; the first answer stands."""
        body = {"id": id_, "approve": approve, "reason": reason, "arguments": arguments}
        return await self._json("POST", _path(run_id, "approvals"), json=body)

    async def suspend(self, run_id: str) -> dict[str, Any]:
        """Parks it."""
        return await self._json("POST", _path(run_id, "suspend"))

    async def resume(self, run_id: str, budget: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Lets it go on. `budget`: limits to change before, by the manifest's names."""
        body = {"budget": dict(budget)} if budget else {}
        return await self._json("POST", _path(run_id, "resume"), json=body)

    async def cancel(self, run_id: str, *, at_once: bool = False) -> dict[str, Any]:
        """Ends it."""
        return await self._json("POST", _path(run_id, "cancel"), json={"atOnce": at_once})

    async def _json(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        try:
            response = await self._client.request(method, path, **options)
        except (httpx2.HTTPError, OSError) as error:
            raise self._away(error) from error
        if not response.is_success:
            raise _refusal(response)
        try:
            value = response.json()
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise ApiError(response.status_code, "BadAnswer", "the server is no agentrun API", {})
        return value

    def _away(self, error: Exception) -> ServerUnavailable:
        return ServerUnavailable(f"{self._client.base_url}: {str(error) or type(error).__name__}")

    # --- events

    async def events(self, run_id: str, *, after: int = 0) -> AsyncGenerator[Event]:
        """The run's events behind `after`, as they come, until the run has ended; the last one is
        of kind `end`. Raises ApiError, and ServerUnavailable when the server is away for too long."""
        cursor = after
        waits = _Waits(self._away_seconds_max)
        while True:
            try:
                async for event in self._stream(run_id, cursor):
                    waits.begin_anew()
                    if event.seq is not None:
                        if event.seq <= cursor:
                            continue
                        cursor = event.seq
                    yield event
                    if event.kind == END:
                        return
                error: Exception = ServerUnavailable("the stream was closed")
            except (httpx2.HTTPError, OSError, TimeoutError) as caught:
                error = self._away(caught)
            except ServerUnavailable as caught:
                error = caught
            self._on_away(str(error))
            await waits.wait(error)

    async def _stream(self, run_id: str, cursor: int) -> AsyncGenerator[Event]:
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(cursor)}
        timeout = httpx2.Timeout(REQUEST_SECONDS_MAX, read=SILENT_SECONDS_MAX)
        async with self._client.stream(
            "GET", _path(run_id, "events"), headers=headers, timeout=timeout
        ) as response:
            if not response.is_success:
                await response.aread()
                raise _refusal(response)
            async for told in httpx2.EventSource(response, max_event_size=EVENT_BYTES_MAX):
                if not told.data:
                    continue
                seq = int(told.id) if told.event == RECORD and told.id.isdigit() else None
                yield Event(kind=told.event, seq=seq, data=json.loads(told.data))


class _Waits:
    """Waits that grow, with jitter, until the server has been away for too long."""

    def __init__(self, away_seconds_max: float) -> None:
        self._max = away_seconds_max
        self.begin_anew()

    def begin_anew(self) -> None:
        """It has answered."""
        self._since = time.monotonic()
        self._next = WAIT_SECONDS_FIRST

    async def wait(self, error: Exception) -> None:
        """Raises `error` at the bound."""
        if time.monotonic() - self._since > self._max:
            raise error
        await asyncio.sleep(self._next * random.uniform(0.5, 1))
        self._next = min(2 * self._next, WAIT_SECONDS_MAX)


def _path(run_id: str, what: str = "") -> str:
    return f"/v1/runs/{quote(run_id, safe='')}" + (f"/{what}" if what else "")


def _refusal(response: httpx2.Response) -> Exception:
    """ApiError, or ServerUnavailable for what may go well later."""
    problem: Any = None
    with suppress(ValueError):
        problem = response.json()
    if not isinstance(problem, dict):
        problem = {}
    detail = str(problem.get("detail") or f"the server answered {response.status_code}")
    if response.status_code in (429, 502, 503, 504):
        return ServerUnavailable(detail)
    errors = {
        str(each.get("field", "")): str(each.get("detail", ""))
        for each in problem.get("errors") or []
        if isinstance(each, dict)
    }
    return ApiError(response.status_code, str(problem.get("reason") or "Refused"), detail, errors)
