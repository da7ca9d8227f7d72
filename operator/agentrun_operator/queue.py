"""A queue of keys: what is to be looked at, and when.

Who calls: whatever wakes the operator adds keys, the workers take them. What holds: a
key is looked at by one worker at a time; however often it is added while it waits, it
is looked at once; added while it is looked at, it is looked at once more. A key that
failed comes back after a wait that doubles, one that went well forgets its failures.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

FAILURE_SECONDS_FIRST = 0.2
FAILURE_SECONDS_MAX = 60.0


class WorkQueue(Generic[K]):
    """See the module's docstring. `clock`: seconds that never go back."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._order = itertools.count()
        self._busy: dict[K, float] = {}
        self._again: set[K] = set()  # due, but somebody looks at them
        self._failures: dict[K, int] = {}
        self._changed = asyncio.Event()
        self._closed = False

    def close(self) -> None:
        """From now on nothing is taken any more."""
        self._closed = True

    def add(self, key: K, after: float = 0.0) -> None:
        """The key is to be looked at, in so many seconds at the latest."""
        at = self._clock() + max(0.0, after)
        known = self._due.get(key)
        if known is not None and known <= at:
            return
        self._due[key] = at
        heapq.heappush(self._heap, (at, next(self._order), key))
        self._changed.set()

    def take(self) -> K | None:
        """A key that is due and that nobody looks at; it is the caller's until `done`; or None."""
        now = self._clock()
        while self._heap and self._heap[0][0] <= now and not self._closed:
            at, _, key = heapq.heappop(self._heap)
            if self._due.get(key) != at:
                continue  # it was taken, or is due earlier by another entry
            if key in self._busy:
                self._again.add(key)
                continue
            del self._due[key]
            self._busy[key] = now
            return key
        return None

    async def get(self) -> K:
        """As `take`, and waits until there is one."""
        while (key := self.take()) is None:
            self._changed.clear()
            wait = self._until_next()
            try:
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            except TimeoutError:
                pass
        return key

    def _until_next(self) -> float | None:
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        if not self._heap or self._closed:
            return None
        return max(0.0, self._heap[0][0] - self._clock())

    def done(self, key: K, requeue: float | None = None) -> None:
        """The key was looked at, and it went well. `requeue`: look again in so many seconds."""
        self._failures.pop(key, None)
        self._release(key)
        if requeue is not None:
            self.add(key, requeue)

    def failed(self, key: K) -> float:
        """The key is looked at again after a wait, which is returned."""
        count = self._failures[key] = self._failures.get(key, 0) + 1
        wait = min(FAILURE_SECONDS_MAX, FAILURE_SECONDS_FIRST * 2.0 ** min(count - 1, 30))
        self._release(key)
        self.add(key, wait)
        return wait

    async def drained(self) -> None:
        """Waits until nobody looks at any key."""
        while self._busy:
            self._changed.clear()
            await self._changed.wait()

    def _release(self, key: K) -> None:
        self._busy.pop(key, None)
        if key in self._again:
            self._again.discard(key)
            heapq.heappush(self._heap, (self._due[key], next(self._order), key))
        self._changed.set()

    # --- what others may ask

    def __len__(self) -> int:
        """Keys that wait, due or not."""
        return len(self._due)

    def __contains__(self, key: K) -> bool:
        """It waits, due or not, or somebody looks at it."""
        return key in self._due or key in self._busy

    @property
    def due(self) -> int:
        """Keys that could be looked at now."""
        now = self._clock()
        return sum(at <= now for at in self._due.values())

    @property
    def busy(self) -> int:
        """Keys that somebody looks at."""
        return len(self._busy)

    @property
    def busy_longest(self) -> float:
        """Seconds for which the slowest worker has looked at its key."""
        now = self._clock()
        return max((now - since for since in self._busy.values()), default=0.0)
