"""Tells whoever watches an executor what happens.

Who calls: the executor, and nodes with what they have of a result that is on its way.
What holds: whoever watches cannot change what happens: not even by failing, and not by
being slow (`Mailbox`). What is shown of a result is never in the log, and a try that
fails takes it back.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

logger = logging.getLogger(__name__)

Observer = Callable[[str, str, Mapping[str, Any]], None]
"""Called as observer(event, node_id, fields); events: launched, finished, failed, parked,
stopping; and those of PASSING."""

PARTIAL, DISCARD = "partial", "discard"
PASSING = frozenset({PARTIAL, DISCARD})
"""Events of a result that is on its way, with the attempt and the try that they belong to: `partial`
has a `kind` and a `text`, `discard` says that nothing will come of what the try has shown."""

MAILBOX_EVENTS_MAX = 1024


def watched_by(observer: Observer | None) -> Observer:
    """An observer that never raises."""

    def observe(event: str, node_id: str, fields: Mapping[str, Any]) -> None:
        if observer is not None:
            try:
                observer(event, node_id, fields)
            except Exception:
                logger.exception("an observer failed on %s of %s", event, node_id)

    return observe


class Pieces:
    """What one try shows of its result on the way; around its handler."""

    def __init__(self, tell: Callable[..., None]) -> None:
        self._tell = tell
        self._shown = False

    def show(self, kind: str, text: str) -> None:
        """Shows a piece."""
        self._shown = True
        self._tell(PARTIAL, kind=kind, text=text)

    def __enter__(self) -> None:
        return None

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        if failed is not None:
            self.take_back()

    def take_back(self) -> None:
        """The try has failed. Safe to repeat."""
        if self._shown:
            self._shown = False
            self._tell(DISCARD)


@dataclass(frozen=True)
class Passing:
    """An event of PASSING, as a reader gets it. `lost`: so many before it were dropped."""

    event: str
    node_id: str
    fields: Mapping[str, Any]
    lost: int


class Mailbox:
    """Passes these events on to one reader that may be slow: `observe` never waits, the oldest go
    when there are too many, and the reader is told how many it has missed."""

    def __init__(self, events_max: int = MAILBOX_EVENTS_MAX) -> None:
        self._events: deque[tuple[str, str, Mapping[str, Any]]] = deque(maxlen=events_max)
        self._lost = 0
        self._there = asyncio.Event()

    def observe(self, event: str, node_id: str, fields: Mapping[str, Any]) -> None:
        """An Observer, in the reader's own loop; takes only the events that are for it."""
        if event in PASSING:
            self._lost += len(self._events) == self._events.maxlen
            self._events.append((event, node_id, fields))
            self._there.set()

    async def next(self) -> Passing:
        """The oldest that is still there; waits for one."""
        while not self._events:
            self._there.clear()
            await self._there.wait()
        event, node_id, fields = self._events.popleft()
        lost, self._lost = self._lost, 0
        return Passing(event, node_id, fields, lost)
