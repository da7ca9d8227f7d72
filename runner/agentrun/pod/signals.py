"""What SIGTERM does to a runner pod, from its first moment to its last.

Who calls: `__main__`, before anything that takes time to import, and `main`, once
there is a run to pause. What holds: whenever the signal comes the process ends with
exit code 75, in time: at once while there is nothing to lose, else when what is in
flight is recorded, and before the kubelet's grace is over in any case. Imports next
to nothing: what it imports delays the moment from which a signal is heard.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

EXIT_PAUSED = 75

AT_ONCE_SECONDS_MAX = 1.0
"""How long a second signal's clean end may take."""

HARD_END_SECONDS_MAX = 0.5
HARD_END_SHARE = 0.1
"""The process ends itself this long before the kubelet does: 10 % of the grace, at most 0.5 s."""

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopSignals:
    """Made once a process, by its main thread; `install` it first of all."""

    def __init__(self) -> None:
        self.count = 0
        self.on_early_end: Callable[[], None] = lambda: None
        """Called before the process ends because of a signal that came before `watch`."""
        self._first: Callable[[], None] | None = None
        self._second: Callable[[], None] = lambda: None
        self._grace_seconds = 0.0

    def install(self) -> None:
        """Hears the signals from now on, also those that came while the entry point had them blocked."""
        for number in SIGNALS:
            signal.signal(number, self._received)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def watch(self, first: Callable[[], None], second: Callable[[], None], *, grace_seconds: float) -> None:
        """From now on the first signal calls `first` and another one `second`, in the running loop."""
        import asyncio

        loop = asyncio.get_running_loop()
        self._grace_seconds = grace_seconds
        self._second = lambda: _call(loop.call_soon_threadsafe, second)
        self._first = lambda: _call(loop.call_soon_threadsafe, first)

    def _received(self, number: int, frame: object) -> None:
        self.count += 1
        if self._first is None:
            try:
                self.on_early_end()
            finally:
                os._exit(EXIT_PAUSED)
        if self.count == 1:
            margin = min(HARD_END_SECONDS_MAX, HARD_END_SHARE * self._grace_seconds)
            self._end_within(self._grace_seconds - margin)
            self._first()
        elif self.count == 2:
            self._end_within(AT_ONCE_SECONDS_MAX)
            self._second()
        else:
            os._exit(EXIT_PAUSED)

    def _end_within(self, seconds: float) -> None:
        # A thread, for the loop may be what does not get on.
        import threading

        timer = threading.Timer(seconds, os._exit, (EXIT_PAUSED,))
        timer.daemon = True
        timer.start()


def _call(schedule: Callable[[Callable[[], None]], object], action: Callable[[], None]) -> None:
    try:
        schedule(action)
    except RuntimeError:
        pass  # the loop has ended, and with it the run
