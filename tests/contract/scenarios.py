"""Runs a test that is a coroutine over one or more stores of the same database.

No plugin: `scenario` makes an ordinary test of it, which opens as many stores as the
coroutine has parameters, bounds it in time, and closes the stores in the end.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID, uuid4

from agentrun.log.store import AttemptOutcome, Levels, LogRow, LogStore, RunRow

SECONDS_MAX = 60.0

Opener = Callable[[], LogStore]
"""Opens another store on the same database: another process, as it were."""


def bounded(coroutine: Awaitable[Any], seconds: float = SECONDS_MAX) -> Any:
    """Runs a coroutine on a loop of its own; TimeoutError when it takes too long."""

    async def run() -> Any:
        async with asyncio.timeout(seconds):
            return await coroutine

    return asyncio.run(run())


def scenario(test: Callable[..., Awaitable[None]]) -> Callable[[Any, Opener], None]:
    """A test method `async def test(self, store, …)` as one that takes the fixture `opener`."""
    count = len(inspect.signature(test).parameters) - 1

    async def play(contract: object, opener: Opener) -> None:
        stores = [opener() for _ in range(count)]
        try:
            await test(contract, *stores)
        finally:
            for store in stores:
                await store.close()

    def run(self: object, opener: Opener) -> None:
        bounded(play(self, opener))

    run.__name__, run.__qualname__, run.__doc__ = test.__name__, test.__qualname__, test.__doc__
    return run


async def new_run(store: LogStore, *, owner: str = "owner", levels: Levels | None = None) -> UUID:
    """A run that is there and has no attempt."""
    run_id = uuid4()
    row = RunRow(
        run_id=run_id,
        owner=owner,
        name="a run",
        definition=b"\x00definition\xff",
        digest="sha256:0",
        levels=levels or Levels(),
    )
    assert await store.create_run(row)
    return run_id


async def allocate(store: LogStore, run_id: UUID, expected: int) -> int | None:
    return await store.allocate_attempt(
        run_id, expected=expected, process='{"pod": "p"}', previous=AttemptOutcome.DISRUPTED
    )


async def claimed_run(store: LogStore, *, owner: str = "owner") -> UUID:
    """A run whose attempt 1 is claimed by b"me" with epoch 1."""
    run_id = await new_run(store, owner=owner)
    assert await allocate(store, run_id, 0) == 1
    assert await store.claim(run_id, attempt=1, claimer=b"me") == 1
    return run_id


def log_row(run_id: UUID, seq: int, record: bytes = b"", *, final: bool = False) -> LogRow:
    return LogRow(run_id=run_id, seq=seq, record=record or b"record %d" % seq, final=final)


async def ended_run(store: LogStore, *, owner: str = "owner") -> UUID:
    """A claimed run with rows 1 and 2, the second of them final."""
    run_id = await claimed_run(store, owner=owner)
    token = await store.connect()
    assert await store.insert_row(log_row(run_id, 1), token)
    assert await store.insert_row(log_row(run_id, 2, final=True), token)
    return run_id
