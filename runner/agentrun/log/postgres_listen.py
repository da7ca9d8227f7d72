"""Hints: LISTEN on a link, kept alive while someone listens.

Who calls: `postgres`, on `listen`, on each new connection of the link, and on `close`.

What holds: hints are hints. Whenever some may have been lost, each listener is called
with None, and reads what it needs. Nothing that is written depends on this.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING
from uuid import UUID

from agentrun.log.errors import LogError, StoreRefused
from agentrun.log.links import Link

if TYPE_CHECKING:
    from asyncpg import Connection, Record

    from agentrun.log.store import Hint

log = logging.getLogger(__name__)

CHANNEL = "agentrun"
PING_SECONDS = 15.0
"""How often a quiet link is spoken to, to learn whether it is still there."""

RECONNECT_SECONDS_FIRST = 0.1
RECONNECT_SECONDS_MAX = 5.0


class Listener:
    """See the module's docstring. `ping` is a statement that does nothing."""

    def __init__(self, link: Link, ping: str) -> None:
        self._link = link
        self._ping = ping
        self._hints: list[Hint] = []
        self._task: asyncio.Task[None] | None = None
        self._listening_on: Connection[Record] | None = None

    async def listen(self, hint: Hint) -> None:
        """Calls `hint` from now on. Raises, and registers nothing, when the link cannot be opened."""
        self._hints.append(hint)
        try:
            await self._link.use(self.on_open)
        except BaseException:
            self._hints.remove(hint)
            raise
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._keep(), name="agentrun-listen")

    async def on_open(self, conn: Connection[Record]) -> None:
        """Listens on a connection, if someone wants hints; what came before it is lost."""
        if not self._hints or conn is self._listening_on:
            return
        again = self._listening_on is not None
        await conn.add_listener(CHANNEL, self._received)
        self._listening_on = conn
        if again:
            self._tell(None)

    def _received(self, _conn: object, _pid: int, _channel: str, payload: object) -> None:
        try:
            run_id = UUID(str(payload))
        except ValueError:
            self._tell(None)
        else:
            self._tell(run_id)

    def _tell(self, run_id: UUID | None) -> None:
        for hint in list(self._hints):
            try:
                hint(run_id)
            except Exception:
                log.exception("a listener for hints failed")

    async def _keep(self) -> None:
        """Opens the link again whenever it is lost, with waits that grow up to a bound."""
        link = self._link
        wait = RECONNECT_SECONDS_FIRST
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PING_SECONDS):
                    await link.lost.wait()
            try:
                if not link.is_open:
                    await link.ensure_open()
                elif not link.is_busy:
                    await link.value(self._ping)
                wait = RECONNECT_SECONDS_FIRST
            except StoreRefused as error:
                log.warning("hints stay away: %s", error)
                wait = RECONNECT_SECONDS_MAX
                await asyncio.sleep(wait)
            except LogError:
                await asyncio.sleep(wait)
                wait = min(2 * wait, RECONNECT_SECONDS_MAX)

    async def close(self) -> None:
        """Ends the task; no hint is called afterwards."""
        self._hints.clear()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
