"""The bound on a statement: one timer for many statements.

Who calls: `links`. The driver's own bound makes and cancels a timer for each statement,
which costs more than all else that a link does. Here a statement only writes down until
when it may take; a timer that is armed while statements come looks at that, and goes to
sleep when there are none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Deadline:
    """Calls `cut` when what was started is not stopped in time. `expired` says that it was."""

    def __init__(self, cut: Callable[[], None]) -> None:
        self.expired = False
        self._cut = cut
        self._until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._clock: Callable[[], float] | None = None

    def start(self, seconds: float) -> None:
        """From now on `cut` is called after `seconds`, in place of what was started before."""
        self.expired = False
        clock = self._clock or self._find_clock()
        until = self._until = clock() + seconds
        timer = self._timer
        if timer is None or timer.when() > until:
            self._arm(until)

    def stop(self) -> None:
        """What was started is done."""
        self._until = 0.0

    def close(self) -> None:
        """Ends the timer."""
        self.stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _find_clock(self) -> Callable[[], float]:
        self._clock = asyncio.get_running_loop().time
        return self._clock

    def _arm(self, until: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(until, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if not self._until:
            return
        if self._until > asyncio.get_running_loop().time():
            self._arm(self._until)
            return
        self.stop()
        self.expired = True
        self._cut()
