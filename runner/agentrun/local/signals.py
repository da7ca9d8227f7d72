"""What SIGINT, SIGTERM and SIGHUP do to a process that runs a run.

Who calls: the command, and whatever else is a run's process. The first signal asks
for a pause, the second for an end at once; if that does not come, or a third signal
does, the process ends where it stands. Nothing is lost by it: what is not recorded
runs again.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, Self

EXIT_PAUSED = 75

AT_ONCE_SECONDS_MAX = 1.0
"""How long the second signal's clean end may take before it becomes a hard one."""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal came before there was a run to pause."""


class Signals:
    """Handles the signals from `with` on; before `watch`, they raise Interrupted."""

    def __init__(self) -> None:
        self.count = 0
        self.on_hard_end: Callable[[], None] = lambda: None
        """Called before a hard end: leaves the terminal in order."""
        self._before: dict[int, Any] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._first: Callable[[], None] = lambda: None
        self._second: Callable[[], None] = lambda: None

    def __enter__(self) -> Self:
        for number in SIGNALS:
            # Whoever has a signal ignored (nohup, a shell's background jobs) wants it so.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._received)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def watch(self, first: Callable[[], None], second: Callable[[], None]) -> None:
        """From now on signals call these, in the running loop."""
        self._loop, self._first, self._second = asyncio.get_running_loop(), first, second

    def _received(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self._loop is None and self.count == 1:
            raise Interrupted
        if self._loop is None or self.count > 2:
            self._end_hard()
        elif self.count == 1:
            self._call(self._first)
        else:
            self._call(self._second)
            # A thread, for the loop may be what does not get on.
            timer = threading.Timer(AT_ONCE_SECONDS_MAX, self._end_hard)
            timer.daemon = True
            timer.start()

    def _call(self, action: Callable[[], None]) -> None:
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop has ended, and with it the run
            self._loop.call_soon_threadsafe(action)

    def _end_hard(self) -> None:
        with suppress(Exception):
            self.on_hard_end()
        os._exit(EXIT_PAUSED)
