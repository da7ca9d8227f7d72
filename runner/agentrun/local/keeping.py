"""Keeps the embedded Postgres alive while a run runs.

Who calls: the command, beside a run whose store is this machine's own server: nobody
else starts that one again. What holds: it is started again a bounded number of times,
and never made anew; nothing here blocks the run's loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from agentrun.local.errors import LocalError

WATCH_SECONDS = 1.0
"""How often the server is looked for."""

TRIES_MAX = 10
TRY_SECONDS = 5.0
"""How long a server that could not be started is left alone."""


class Server(Protocol):
    """What is kept alive; `EmbeddedPostgres` is it."""

    def lives(self) -> bool:
        """At once, and may be wrong for a moment."""

    def revive(self) -> bool:
        """Blocks. True: it had died, and is ready again. Raises LocalError."""


async def keep_alive(server: Server, tell: Callable[[str], None]) -> None:
    """Starts the server again whenever it has died, until cancelled or TRIES_MAX is reached;
    `tell` is told, once, what a person may want to know."""
    said = ""
    for _ in range(TRIES_MAX):
        while server.lives():  # noqa: ASYNC110  a process that was killed sets no event
            await asyncio.sleep(WATCH_SECONDS)
        try:
            revived = await asyncio.to_thread(server.revive)
            news = "the embedded Postgres had died, and was started again" if revived else ""
        except LocalError as error:
            news = str(error)
        if news and news != said:
            tell(news)
        said = news
        await asyncio.sleep(TRY_SECONDS)
