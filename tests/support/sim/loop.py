"""An event loop with its own time, in which whole processes are stopped and killed.

A process is a value of the context variable `PROCESS`: every callback scheduled
under it belongs to it. A stopped process runs no callback until it is continued, as
under SIGSTOP; a killed one never again, not even a `finally`, as under SIGKILL.
Which process runs next is drawn from a seeded generator, so a history is its seed.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import heapq
import itertools
import random
import warnings
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

PROCESS: contextvars.ContextVar[str] = contextvars.ContextVar("PROCESS", default="network")


class Stalled(AssertionError):
    """Nothing is left that could happen."""


class SimLoop(asyncio.AbstractEventLoop):
    """As much of an event loop as tasks, futures, timeouts and sleeps need."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.steps = 0
        self.errors: list[dict[str, Any]] = []
        self.kill_at: dict[str, int] = {}
        self.on_kill: Callable[[str], None] = lambda process: None
        self._time = 1000.0
        self._queues: dict[str, deque[asyncio.Handle]] = {}
        self._timers: list[tuple[float, int, str, asyncio.TimerHandle]] = []
        self._order = itertools.count()
        self._stopped: set[str] = set()
        self._dead: set[str] = set()
        self._graveyard: list[Any] = []
        self._tasks: list[Any] = []
        self._owners: dict[Any, str] = {}
        self._steps_of: dict[str, int] = {}

    # --- processes

    def freeze(self, process: str) -> None:
        """SIGSTOP."""
        self._stopped.add(process)

    def thaw(self, process: str) -> None:
        """SIGCONT: timers that fell due meanwhile fire at once."""
        self._stopped.discard(process)

    def kill(self, process: str) -> None:
        """SIGKILL."""
        self._dead.add(process)
        self._stopped.discard(process)
        self._graveyard.append(self._queues.pop(process, None))
        self.on_kill(process)

    def dead(self, process: str) -> bool:
        return process in self._dead

    def stopped(self, process: str) -> bool:
        return process in self._stopped

    def context_of(self, process: str) -> contextvars.Context:
        """For what is scheduled as a part of another process."""
        context = contextvars.copy_context()
        context.run(PROCESS.set, process)
        return context

    def tasks_of(self, process: str) -> list[Any]:
        """Its tasks that are not done."""
        return [task for task in self._tasks if not task.done() and self._owners[task] == process]

    # --- what asyncio asks

    def time(self) -> float:
        return self._time

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **kwargs: Any) -> Any:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, **kwargs)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._tasks.append(task)
        self._owners[task] = PROCESS.get()
        return task

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.Handle:
        context = context if context is not None else contextvars.copy_context()
        handle = asyncio.Handle(callback, args, self, context)
        process = context.get(PROCESS, "network")
        if process not in self._dead:
            self._queues.setdefault(process, deque()).append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._time + max(0.0, delay), callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        context = context if context is not None else contextvars.copy_context()
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        process = context.get(PROCESS, "network")
        heapq.heappush(self._timers, (when, next(self._order), process, handle))
        return handle

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """A thread's work takes no time here."""
        future = self.create_future()
        future.set_result(func(*args))
        return future

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        return None

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.errors.append(context)

    # --- running

    def run(self, main: Coroutine[Any, Any, Any], *, steps_max: int = 30_000) -> Any:
        """Runs until `main` is done."""
        asyncio._set_running_loop(self)
        try:
            task = self.create_task(main)
            while not task.done():
                if self.steps > steps_max:
                    raise Stalled("the history does not come to its end")
                self._step()
            return task.result()
        finally:
            self._bury()
            asyncio._set_running_loop(None)

    def _bury(self) -> None:
        """Takes apart what was killed in its middle, so that nobody hears of it later."""
        self._queues.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of what it has not come to any more
            for task in self._tasks:
                for _ in range(5):  # a `finally` may await: it is cut off again
                    if not task.done():
                        with contextlib.suppress(BaseException):
                            task.get_coro().close()
        self._tasks.clear()
        self._owners.clear()

    def _step(self) -> None:
        ready = [p for p, queue in self._queues.items() if queue and p not in self._stopped]
        if not ready:
            self._advance()
            return
        process = ready[0] if len(ready) == 1 else self.rng.choice(ready)
        handle = self._queues[process].popleft()
        self.steps += 1
        count = self._steps_of[process] = self._steps_of.get(process, 0) + 1
        if self.kill_at.get(process) == count:
            self.kill(process)
        elif not handle.cancelled():
            handle._run()

    def _advance(self) -> None:
        """On to the next moment at which something happens in a process that runs."""
        kept = []
        while self._timers:
            when, order, process, handle = heapq.heappop(self._timers)
            if process in self._dead or handle.cancelled():
                self._graveyard.append(handle)
            elif process in self._stopped:
                kept.append((when, order, process, handle))
            else:
                self._time = max(self._time, when)
                self._queues.setdefault(process, deque()).append(handle)
                break
        else:
            raise Stalled("nothing is left that could happen")
        for item in kept:
            heapq.heappush(self._timers, item)
