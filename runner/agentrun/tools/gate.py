"""The last step before a request leaves this process.

Used by the tools that send HTTP requests. Invariant: `before_send` is awaited when the
connection stands and nothing of the request is sent, and the time that it takes is not
the call's; `passed` says whether anything may have been sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any


class Gate:
    """Stands between a connection that is ready and the first byte of the request.

    The client tells each step of its own through `trace`; a transport around it would
    stand before the connect, which may take seconds, and could not tell a request
    that was sent from one that was not.
    """

    def __init__(self, before_send: Callable[[], Awaitable[None]]) -> None:
        self.before_send = before_send
        self.deadline: asyncio.Timeout | None = None
        self.passed = False

    @property
    def expired(self) -> bool:
        """The call's time is up."""
        return self.deadline is not None and self.deadline.expired()

    async def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """For httpx2: the extension `trace` of a request."""
        # Through a proxy, the CONNECT comes by here too; it has no effect on the tool.
        if not event.endswith(".send_request_headers.started") or info["request"].method == b"CONNECT":
            return
        await self.open()

    async def open(self) -> None:
        """Returns when the request may be sent."""
        if self.deadline is None:
            await self.before_send()
            self.passed = True
            return
        when, loop = self.deadline.when(), asyncio.get_running_loop()
        asked = loop.time()
        self.deadline.reschedule(None)
        await self.before_send()
        self.deadline.reschedule(None if when is None else when + loop.time() - asked)
        self.passed = True
