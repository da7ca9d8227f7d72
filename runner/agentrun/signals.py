"""What SIGTERM, SIGINT and SIGHUP do to a process that runs a run, from first to last.

Who calls: the command and the runner pod, each before anything that takes time to
import. What holds: the first signal asks for a pause, the second for an end at once.
Before a process is ended for good, by its second signal or the end of its grace, it
says its last words: that its attempt is paused, lest that be taken for a crash. They
go over a connection, and a loop, of their own, for the run's may be what does not get
on. What does not come in time is cut: the bounds nest, each within the next.
Imports next to nothing: what it imports delays the moment from which a signal is heard.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import asyncio
    from threading import Event, Timer
    from uuid import UUID

    from agentrun.log.store import LogStore

EXIT_PAUSED = 75

AT_ONCE_SECONDS_MAX = 6.0
"""How long the second signal's clean end may take: longer than nodes may take to notice, and the
attempt, the program and the store to be closed."""

LAST_WORDS_SECONDS_MAX = 1.0
"""How long the last words may take where the process waits for nothing else."""

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal came before there was a run to pause."""


def interrupt() -> None:
    """For `on_early`, in a process that has something to clean up."""
    raise Interrupted


def _nothing() -> None:
    pass


class Signals:
    """Made once a process, in its main thread; `install` it first of all, or use it in a `with`."""

    def __init__(self, on_early: Callable[[], None]) -> None:
        self.count = 0
        self.on_early = on_early
        """Called for a signal that comes before `watch`: raises, or ends the process."""
        self.last_words: Callable[[], None] = _nothing
        """Called once, in a thread of its own. See `close_attempt_apart`."""
        self.on_hard_end: Callable[[], None] = _nothing
        """Called before a process is cut: leaves the terminal in order."""
        self._before: dict[int, Any] = {}
        self._timers: list[Timer] = []
        self._said = False
        self._words_are_over: Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._first = self._second = _nothing
        self._words_seconds = self._end_seconds = 0.0

    def install(self) -> None:
        """Hears the signals from now on, also those that came while the entry point had them blocked."""
        for number in SIGNALS:
            # Whoever has one ignored (nohup, a shell's background jobs) wants it so.
            if number == signal.SIGTERM or signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._received)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def __enter__(self) -> Self:
        self.install()
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        for timer in self._timers:
            timer.cancel()

    def watch(
        self,
        first: Callable[[], None],
        second: Callable[[], None],
        *,
        words_seconds: float,
        end_seconds: float,
    ) -> None:
        """From now on signals call these, in the running loop. So long after the first of them the
        last words are said, and the process is cut: both only if it still lives then."""
        import asyncio
        import threading

        self._words_are_over = self._words_are_over or threading.Event()
        self._loop, self._first, self._second = asyncio.get_running_loop(), first, second
        self._words_seconds, self._end_seconds = words_seconds, end_seconds

    def _received(self, number: int, frame: object) -> None:
        self.count += 1
        if self._loop is None:
            if self.count == 1:
                self.on_early()
            self._cut()
        elif self.count == 1:
            self._later(self._words_seconds, self._say)
            self._later(self._end_seconds, self._cut)
            self._call(self._first)
        elif self.count == 2:
            self._later(0.0, self._say)
            self._later(AT_ONCE_SECONDS_MAX, self._cut)
            self._call(self._second)
        else:  # whoever cannot wait waits for the last words alone
            self._later(0.0, self._say_and_cut)
            self._later(LAST_WORDS_SECONDS_MAX, self._cut)

    def _call(self, action: Callable[[], None]) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(action)
        except RuntimeError:
            pass  # the loop has ended, and with it the run

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        # A thread, for the loop may be what does not get on.
        import threading

        timer = threading.Timer(max(0.0, seconds), action)
        timer.daemon = True
        self._timers.append(timer)
        timer.start()

    def _say(self) -> None:
        if self._said:
            return
        self._said = True
        try:
            self.last_words()
        except Exception:  # noqa: S110  nobody is left to be told
            pass
        if self._words_are_over is not None:
            self._words_are_over.set()

    def _say_and_cut(self) -> None:
        self._say()
        if self._words_are_over is not None:  # another thread may be about to say them
            self._words_are_over.wait()
        self._cut()

    def _cut(self) -> None:
        try:
            self.on_hard_end()
        finally:
            os._exit(EXIT_PAUSED)


def close_attempt_apart(open_store: Callable[[], LogStore], run_id: UUID, attempt: int) -> None:
    """Writes that the attempt is paused, unless it has an outcome. `open_store` makes a store that
    connects when it is used. For `Signals.last_words`."""
    import asyncio

    from agentrun.log.store import AttemptOutcome

    async def close() -> None:
        store = open_store()
        try:
            if await store.close_attempt(run_id, attempt, AttemptOutcome.PAUSED, "Terminated"):
                await store.notify([run_id])
        finally:
            await store.close()

    asyncio.run(close())
