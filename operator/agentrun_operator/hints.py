"""From hints of the store to keys that are worth a look.

Who calls: the store's listener (`hint`), and the app, which runs `loop`. What holds: a
hint only says that something may have changed, and most are of progress: many are
looked at with one query, and a run whose standing is as it was is looked at once in
a while, for its progress.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from uuid import UUID

from agentrun.log.errors import LogError
from agentrun.log.store import LogStore, Standing
from agentrun_operator.facts import Key, parse_owner
from agentrun_operator.memories import Memories
from agentrun_operator.queue import WorkQueue
from agentrun_operator.settings import Settings

log = logging.getLogger(__name__)

GATHER_SECONDS = 0.2
RUNS_MAX = 500
"""Of one query."""


class Hints:
    """See the module's docstring."""

    def __init__(
        self, store: LogStore, queue: WorkQueue[Key], memories: Memories, settings: Settings
    ) -> None:
        self._store = store
        self._queue = queue
        self._memories = memories
        self._settings = settings
        self._dirty: set[UUID] = set()
        self._some = asyncio.Event()
        self.lost = asyncio.Event()
        """Set when hints may have been lost: everything is worth a look."""

    def hint(self, run_id: UUID | None) -> None:
        """For LogStore.listen."""
        if run_id is None:
            self.lost.set()
        else:
            self._dirty.add(run_id)
            self._some.set()

    async def loop(self) -> None:
        """Until cancelled."""
        while True:
            await self._some.wait()
            await asyncio.sleep(GATHER_SECONDS)
            self._some.clear()
            dirty, self._dirty = self._dirty, set()
            ids = list(dirty)
            for start in range(0, len(ids), RUNS_MAX):
                await self._look(ids[start : start + RUNS_MAX])

    async def _look(self, ids: list[UUID]) -> None:
        try:
            standings = await self._store.standings(ids)
        except LogError as error:
            log.debug("hints could not be followed: %s", error)
            self.lost.set()
            return
        for standing in standings:
            self.wake(standing)

    def wake(self, standing: Standing) -> None:
        """The run stands so now."""
        owner = parse_owner(standing.owner)
        if owner is None or owner.installation != self._settings.installation:
            return
        memory = self._memories.get(owner.key)
        news = memory is None or differs(memory.seen[2], standing)
        self._queue.add(owner.key, 0.0 if news else self._settings.times.progress)


def differs(seen: Standing | None, now: Standing) -> bool:
    """The run stands otherwise than it was seen; progress does not count."""
    return seen is None or replace(seen, summary_head=0) != replace(now, summary_head=0)
