"""A ledger behind an HTTP client, without a socket: what carries requests in simulated time.

It plays the network and the provider's troubles too: connections that fail before or behind the
request, refusals for load, errors inside a body of status 200, bodies that end early.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

import httpx2

from tests.support.strict.ledger import Ledger, Refused
from tests.support.strict.streams import Pieces, streamed

TROUBLES = ("connect", "lost", "429", "529", "500", "in body", "cut body", "no body", "slow")


@dataclass(frozen=True)
class _Outgoing:
    """As much of the HTTP library's own request as a trace looks at."""

    method: bytes


@dataclass
class Wire:
    """The network between a run's processes and one provider. `trouble`: how often there is any."""

    ledger: Ledger
    rng: random.Random
    trouble: float = 0.2
    requests: int = 0
    on_request: Any = None
    bodies: list[bytes] = field(default_factory=list)

    def carrier(self) -> httpx2.AsyncBaseTransport:
        """One for each client; a client closes its own."""
        return _Carrier(self)

    async def exchange(self, request: httpx2.Request) -> httpx2.Response:
        rng = self.rng
        trouble = rng.choice(TROUBLES) if rng.random() < self.trouble else ""
        await asyncio.sleep(rng.choice([0.0, 0.01]))
        if trouble == "connect":
            raise httpx2.ConnectError("nobody listens")
        outgoing = _Outgoing(request.method.encode())
        await request.extensions["trace"]("http11.send_request_headers.started", {"request": outgoing})
        data = await request.aread()
        self.requests += 1
        self.bodies.append(data)
        try:
            led = self.ledger.take(data)
        except Refused as refused:
            body = self.ledger.shape.error(400, "invalid_request_error", str(refused))
            return httpx2.Response(400, content=body.encode())
        await asyncio.sleep(rng.choice([0.0, 0.02, 1.0, 4.0]) * rng.random())
        if trouble in ("429", "529", "500"):
            return self._refusal(int(trouble))
        if trouble == "in body":
            body = self.ledger.shape.error(529, "overloaded_error", "Overloaded")
            return httpx2.Response(200, content=body.encode())
        given = self.ledger.answer(led, data)
        body = self.ledger.shape.body(given)
        if trouble == "lost":
            raise httpx2.ReadError("the connection went away")
        if trouble == "slow":
            await asyncio.sleep(900)
        if _wants_stream(request, data) and rng.random() < 0.8:
            return self._stream(body, trouble)
        content = body.encode()
        if trouble == "cut body":
            content = content[: rng.randrange(len(content))]
        elif trouble == "no body":
            content = b""
        return httpx2.Response(200, content=content)

    def _stream(self, body: str, trouble: str) -> httpx2.Response:
        data = streamed(self.ledger.shape.name, body, self.rng)
        cut = None
        if trouble == "cut body":
            cut = self.rng.randrange(len(data) // 2)
        elif trouble == "no body":
            data = b""
        headers = {"content-type": "text/event-stream"}
        return httpx2.Response(200, headers=headers, stream=Pieces(data, self.rng, cut))

    def _refusal(self, status: int) -> httpx2.Response:
        code = {429: "rate_limit_error", 529: "overloaded_error", 500: "api_error"}[status]
        headers = {"retry-after": self.rng.choice(["0", "3", "0.5", "soon"])} if status != 500 else {}
        body = self.ledger.shape.error(status, code, "later")
        return httpx2.Response(status, content=body.encode(), headers=headers)


def _wants_stream(request: httpx2.Request, data: bytes) -> bool:
    return b'"stream":true' in data.replace(b" ", b"") or "streamGenerateContent" in str(request.url)


class _Carrier(httpx2.AsyncBaseTransport):
    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return await self._wire.exchange(request)
