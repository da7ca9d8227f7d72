"""Reads the reply to a request for a stream, whatever the server makes of it.

Who calls: `transport`, with the reply's bytes. What holds: what comes out is a whole
body, or a ModelError; a stream without its end marker, or with an error in it, is never
a body. A server that answers in one piece is understood too, whatever it calls it. What
is kept is bounded; comments are not kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress

import httpx2

from agentrun.log.text import safe_text
from agentrun.models.answer import stream_error
from agentrun.models.base import Delta, ModelError
from agentrun.models.errors import clip
from agentrun.models.streams import Assembler, new_assembler
from agentrun.models.streams.sse import Decoder, Event, EventTooLong
from agentrun.models.wire.rawjson import BadAnswer, parse, raw

BODY_MAX_BYTES = 32 * 1024 * 1024
STREAM_MAX_BYTES = 512 * 1024 * 1024
"""Of a stream on the wire: each piece of an answer has some hundred bytes around it."""
END_SECONDS = 3.0
"""How long usage, or the end of the reply, may take behind the end marker."""

_BLANK = b" \t\r\n\xef\xbb\xbf"
_DONE = "[DONE]"


class Reader:
    """One reply. `said_bytes`: of the answer's text, so far."""

    def __init__(self, provider: str, on_delta: Callable[[Delta], None]) -> None:
        self.said_bytes = 0
        self.assembler: Assembler = new_assembler(provider)
        self._provider = provider
        self._on_delta = on_delta
        self._decoder = Decoder(BODY_MAX_BYTES)
        self._first = b""
        self._plain: bytearray | None = None
        self._streams = False
        self._received = 0

    async def read(self, pieces: AsyncIterator[bytes]) -> bytes:
        """The body. Raises ModelError, and what `pieces` raises."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as bound:
                async for piece in pieces:
                    self._take(piece)
                    if self.assembler.whole and bound.when() is None:
                        bound.reschedule(loop.time() + END_SECONDS)
        except TimeoutError:
            if not bound.expired():
                raise
        except httpx2.HTTPError:
            if not self.assembler.whole:
                raise
        except BadAnswer as error:
            raise self._invalid(str(error), retryable=error.retryable) from error
        return self._end()

    def _take(self, piece: bytes) -> None:
        self._received += len(piece)
        if self._plain is not None:
            self._plain += piece
            if len(self._plain) > BODY_MAX_BYTES:
                raise self._too_long(BODY_MAX_BYTES)
            return
        if not self._streams:
            self._first += piece
            mark = self._first[:4096].lstrip(_BLANK)[:1]
            if not mark and len(self._first) < 4096:
                return
            piece, self._first = self._first, b""
            if mark in (b"{", b"[", b"<"):  # no field of an event begins so
                self._plain = bytearray()
                self._take(piece)
                return
            self._streams = True
        if self._received > STREAM_MAX_BYTES:
            raise self._too_long(STREAM_MAX_BYTES)
        try:
            for event in self._decoder.feed(piece):
                self._event(event)
        except EventTooLong as error:
            raise self._invalid(str(error), retryable=False) from error

    def _event(self, event: Event) -> None:
        if event.data.strip() == _DONE:
            self._show(self.assembler.done())
            return
        try:
            body = parse(event.data)
        except BadAnswer:
            if event.name == "error":
                body = {"error": event.data}
            elif event.name in ("", "message") and event.data.strip():
                raise
            else:
                return  # an event of the server's own
        failure = stream_error(body, provider=self._provider, failed=event.name == "error")
        if failure is not None:
            raise failure
        if isinstance(body, dict):
            self._show(self.assembler.feed(event.data, body))

    def _show(self, deltas: Iterable[Delta]) -> None:
        for delta in deltas:
            self.said_bytes += len(delta.text.encode("utf-8", "replace"))
            if self.said_bytes > BODY_MAX_BYTES:
                raise self._too_long(BODY_MAX_BYTES)
            if delta.text:
                self._on_delta(Delta(kind=delta.kind, text=safe_text(delta.text)))

    def _end(self) -> bytes:
        if self._plain is not None:
            return self._one_piece(bytes(self._plain))
        if not self._streams:
            return b""
        try:
            for event in self._decoder.end():
                self._event(event)
        except BadAnswer as error:
            if not self.assembler.whole:
                raise self._invalid(str(error), retryable=True) from error
        if not self.assembler.whole:
            raise self._invalid("the stream ended without its end marker", retryable=True)
        return self.assembler.body().encode()

    def _one_piece(self, data: bytes) -> bytes:
        """A body; Google's servers may answer with a list of what would have been the events."""
        if self._provider != "google" or not data.lstrip(_BLANK).startswith(b"["):
            return data
        text = data.decode("utf-8-sig", "replace")
        with suppress(BadAnswer):
            for place, item in enumerate(parse(text)):
                self._event(Event(name="", data=raw(text, place) or "" if item else ""))
            if self.assembler.whole:
                return self.assembler.body().encode()
        return data

    def _invalid(self, what: str, *, retryable: bool) -> ModelError:
        return ModelError("InvalidResponse", clip(f"{self._provider}: {what}"), retryable=retryable)

    def _too_long(self, max_bytes: int) -> ModelError:
        return self._invalid(f"an answer of more than {max_bytes} bytes", retryable=False)
