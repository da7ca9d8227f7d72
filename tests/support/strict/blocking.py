"""Benches whose statements a real Postgres executes, at once and in simulated time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentrun.log.store import LogRow, Token
from tests.support.agents import Hook
from tests.support.sim.blocking import BlockingStore
from tests.support.strict.history import StrictBench


class HookedBlocking:
    """What `HookedStore` is to the store in memory; every other method is the store's own."""

    def __init__(self, store: BlockingStore, hook: Hook) -> None:
        self._store = store
        self._hook = hook

    async def insert_row(self, row: LogRow, token: Token) -> bool:
        return bool(await self._insert("insert_row", [row], row, token))

    async def insert_next(self, row: LogRow, token: Token) -> bool:
        return bool(await self._insert("insert_next", [row], row, token))

    async def insert_pack(self, rows: Sequence[LogRow], token: Token) -> bool:
        return bool(await self._insert("insert_pack", rows, rows, token))

    async def _insert(self, name: str, rows: Sequence[LogRow], *args: Any) -> Any:
        await self._hook("before", rows)
        result = await getattr(self._store, name)(*args)
        await self._hook("after", rows)
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class PostgresBench(StrictBench):
    """Its log stands in a real database."""

    def __init__(self, *args: Any, backing: BlockingStore, **more: Any) -> None:
        super().__init__(*args, **more)
        self._backing = backing

    def store(self, hook: Hook | None = None) -> Any:
        return self._backing if hook is None else HookedBlocking(self._backing, hook)

    def read_rows(self) -> list[tuple[int, bytes]]:
        async def read() -> list[tuple[int, bytes]]:
            return [(seq, bytes(data)) for seq, data in await self._backing.read_rows(self.run_id, after=0)]

        return list(self.loop.run(read()))
