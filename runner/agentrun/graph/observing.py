"""Tells whoever watches an executor what happens.

Who calls: the executor. What holds: whoever watches cannot change what happens: not
even by failing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

logger = logging.getLogger(__name__)

Observer = Callable[[str, str, Mapping[str, Any]], None]
"""Called as observer(event, node_id, fields); events: launched, finished, failed, parked,
stopping."""


def watched_by(observer: Observer | None) -> Observer:
    """An observer that never raises."""

    def observe(event: str, node_id: str, fields: Mapping[str, Any]) -> None:
        if observer is not None:
            try:
                observer(event, node_id, fields)
            except Exception:
                logger.exception("an observer failed on %s of %s", event, node_id)

    return observe
