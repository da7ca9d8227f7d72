"""Server-sent events: how they are written, and how a stream is sent.

Who calls: the events route. What holds: a stream ends when its source ends, when the client is
gone, when this process is about to stop, or when the client takes nothing for so long that it is
better off reconnecting; and never holds more than a small piece of what it sends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 15.0
RECONNECT_MS = 1000
"""What a client is told to wait before it reconnects."""

PIECE_BYTES = 64 * 1024
SEND_SECONDS_MAX = 30.0
"""How long a client may take for one piece."""

CLOSE_SECONDS_MAX = 1.0

HEARTBEAT = b":\n\n"
HELLO = f"retry: {RECONNECT_MS}\n\n".encode()


def event(kind: str, data: bytes, seq: int | None = None) -> bytes:
    """One event. `data` is JSON of one line."""
    assert b"\n" not in data and b"\r" not in data
    name = f"id: {seq}\n".encode() if seq is not None else b""
    return b"%sevent: %s\ndata: %s\n\n" % (name, kind.encode(), data)


class EventStream(Response):
    """See the module's docstring. `source` gives what is sent, in pieces of any size."""

    media_type = "text/event-stream"

    def __init__(self, source: AsyncIterator[bytes], *, until: asyncio.Event) -> None:
        super().__init__(
            headers={"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"},
            media_type=self.media_type,
        )
        del self.headers["content-length"]
        self._source = source
        self._until = until

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        parts = [
            asyncio.create_task(self._send(send)),
            asyncio.create_task(_gone(receive)),
            asyncio.create_task(self._until.wait()),
        ]
        try:
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for part in parts:
                part.cancel()
            await asyncio.wait(parts)
        if parts[0] in done and (error := parts[0].exception()) is not None:
            # Its client has had no end event, and so comes again for the rest.
            log.info("a stream ends early: %s", str(error) or type(error).__name__)
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS_MAX):
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send) -> None:
        await _put(send, HELLO)
        async for data in self._source:
            for start in range(0, len(data), PIECE_BYTES):
                await _put(send, data[start : start + PIECE_BYTES])


async def _put(send: Send, piece: bytes) -> None:
    async with asyncio.timeout(SEND_SECONDS_MAX):
        await send({"type": "http.response.body", "body": piece, "more_body": True})


async def _gone(receive: Receive) -> None:
    while True:
        message: Any = await receive()
        if message["type"] == "http.disconnect":
            return
