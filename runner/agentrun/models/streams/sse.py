"""Server-sent events out of bytes, as they come.

Used by `reader`, one decoder a stream. What holds: the same events however the bytes
are cut into pieces; a line ends at LF, CR or CRLF and at nothing else, so that U+2028
and the like stay in the data; a comment leaves nothing behind. Beyond the standard, what
stands at the end of the stream without a blank line is an event too: many servers end so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class EventTooLong(ValueError):
    """More bytes without the end of an event than may be kept."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """`name` is empty where the server gave none; `data` are its lines, joined by LF."""

    name: str
    data: str


class Decoder:
    """`feed` the pieces, then `end`."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._rest = bytearray()  # a line that has not ended
        self._started = False
        self._skip_lf = False  # the piece before ended with CR, which ended a line
        self._name = ""
        self._data: list[str] = []
        self._held = 0

    def feed(self, piece: bytes) -> Iterator[Event]:
        """The events that end in this piece."""
        if self._skip_lf and piece:
            self._skip_lf = False
            piece = piece.removeprefix(b"\n")
        start = 0
        for match in _LINE_END.finditer(piece):
            self._rest += piece[start : match.start()]
            start = match.end()
            event = self._line()
            if event is not None:
                yield event
        self._skip_lf = piece.endswith(b"\r")
        self._rest += piece[start:]
        if len(self._rest) + self._held > self._max_bytes:
            raise EventTooLong(f"an event of more than {self._max_bytes} bytes")

    def end(self) -> Iterator[Event]:
        """What the stream has ended with."""
        for event in (self._line(), self._line()):
            if event is not None:
                yield event

    def _line(self) -> Event | None:
        """Takes the line that has ended; an event where it was blank."""
        line = bytes(self._rest)
        self._rest.clear()
        if not self._started:
            self._started = True
            line = line.removeprefix(_BOM)
        if not line:
            return self._event()
        field, _, value = line.partition(b":")
        if field in (b"data", b"event"):  # a comment has an empty field
            text = value.removeprefix(b" ").decode("utf-8", "replace")
            if field == b"data":
                self._data.append(text)
                self._held += len(value) + 1  # an empty line is kept, too
            else:
                self._name = text
        return None

    def _event(self) -> Event | None:
        name, data = self._name, self._data
        self._name, self._data, self._held = "", [], 0
        return Event(name=name, data="\n".join(data)) if data else None
