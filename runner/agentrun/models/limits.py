"""Models that have asked for a pause, so that nobody of a run asks them before it is over.

Who calls: the agent loop, before each request and behind each refusal. What holds: a
pause is only ever made longer. It lives in this process alone; the wait of the try
that was refused is in the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

PAUSE_SECONDS_MAX = 7 * 86400.0


class RateLimits:
    """The pauses of one run. `model`: whatever tells models apart (name, address, key)."""

    def __init__(self) -> None:
        self._until: dict[Hashable, float] = {}

    def pause(self, model: Hashable, seconds: float) -> None:
        """From now on `model` is not asked for so long."""
        until = asyncio.get_running_loop().time() + min(max(seconds, 0.0), PAUSE_SECONDS_MAX)
        self._until[model] = max(until, self._until.get(model, until))

    def left(self, model: Hashable) -> float:
        """Seconds for which `model` is not to be asked; 0 when it may be."""
        until = self._until.get(model)
        if until is None:
            return 0.0
        left = until - asyncio.get_running_loop().time()
        if left <= 0:
            del self._until[model]
            return 0.0
        return left
