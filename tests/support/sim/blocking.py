"""A real store under the simulator: each statement is done at once, in simulated time.

The store's own event loop runs in a thread; the simulator waits for each answer, so
that all interleavings, losses and delays are the simulator's alone.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from agentrun.log.postgres import PostgresStore


class BlockingStore:
    """Looks like its store; every method blocks until the answer is there."""

    def __init__(self, dsn: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._store = self._wait(self._open(dsn))

    async def _open(self, dsn: str) -> PostgresStore:
        return PostgresStore.open(dsn)

    def _wait(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._store, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            return self._wait(method(*args, **kwargs))

        return call

    def shut(self) -> None:
        """Closes the store and its thread."""
        self._wait(self._store.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
