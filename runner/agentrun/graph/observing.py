"""Tells whoever watches an executor what happens.

Who calls: the executor, and nodes with what they have of a result that is on its way.
What holds: whoever watches cannot change what happens, not even by failing. What is
shown of a result is never in the log, and a try that fails takes it back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

logger = logging.getLogger(__name__)

Observer = Callable[[str, str, Mapping[str, Any]], None]
"""Called as observer(event, node_id, fields); events: launched, finished, failed, parked,
stopping; and those of PASSING."""

PARTIAL, DISCARD = "partial", "discard"
PASSING = frozenset({PARTIAL, DISCARD})
"""Events of a result that is on its way, with the attempt and the try that they belong to: `partial`
has a `kind` and a `text`, `discard` says that nothing will come of what the try has shown."""


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
