"""How much one request, and one caller, may ask for.

Who calls: the app. What holds: a body over the bound is refused before more of it is read; a
caller over the rate is told when to come again, and costs nobody else anything.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agentrun_api.problems import Problem

BODY_BYTES_MAX = 4 * 1024 * 1024
CALLERS_MAX = 10_000
"""Callers whose rate is remembered; the one who was quiet for longest is forgotten first."""


class BodyLimit:
    """An ASGI layer that refuses bodies of more than BODY_BYTES_MAX."""

    def __init__(self, app: ASGIApp, bytes_max: int = BODY_BYTES_MAX) -> None:
        self._app = app
        self._max = bytes_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if length.isdigit() and int(length) > self._max:
            await self._refuse(scope, receive, send)
            return
        read = 0
        begun = False

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._max:
                raise _TooLarge
            return message

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, counted, watched)
        except _TooLarge:
            if begun:
                raise
            await self._refuse(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        problem = Problem(413, "TooLarge", f"a request's body may have {self._max} bytes")
        await problem.response()(scope, receive, send)


class _TooLarge(Exception):
    pass


@dataclass
class _Bucket:
    tokens: float
    at: float


class RateLimit:
    """So many requests a second a caller, and `burst` at once. `now`: seconds, monotonic."""

    def __init__(self, per_second: float, burst: int, now: Callable[[], float]) -> None:
        self._per_second = per_second
        self._burst = burst
        self._now = now
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, caller: str) -> None:
        """Problem 429 for one who asks too often."""
        now = self._now()
        bucket = self._buckets.setdefault(caller, _Bucket(float(self._burst), now))
        self._buckets.move_to_end(caller)
        while len(self._buckets) > CALLERS_MAX:
            self._buckets.popitem(last=False)
        bucket.tokens = min(self._burst, bucket.tokens + (now - bucket.at) * self._per_second)
        bucket.at = now
        if bucket.tokens < 1:
            seconds = math.ceil((1 - bucket.tokens) / self._per_second)
            raise Problem(
                429,
                "TooManyRequests",
                f"at most {self._per_second:g} requests a second",
                headers={"Retry-After": str(seconds)},
            )
        bucket.tokens -= 1
