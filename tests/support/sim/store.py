"""One simulated process's way to the database, over a network that loses, delays and reorders.

A statement may be delayed, be lost on its way, be executed while its reply is lost, or
be executed late, long after its sender gave it up.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from agentrun.graph.drive import AROUND_SECONDS_MAX
from agentrun.log.appender import Appender
from agentrun.log.errors import StoreUnavailable
from agentrun.log.store import (
    AttemptOutcome,
    AttemptRow,
    Hint,
    InboxRow,
    Levels,
    LogRow,
    Look,
    RunInfo,
    RunRow,
    Standing,
    Token,
)
from agentrun.log.tail import Tail
from tests.support.sim.loop import PROCESS
from tests.support.sim.world import World

PASSED_OVER_MAX = 8
"""So many statements in a row may go without a run that waits: each of its few fellows was served twice."""


class SimStore:
    """See the module's docstring. `appender` is the one that uses it, watched for fairness."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._backing = world.backing
        self._serial = 1
        self._passed_over: dict[Tail, int] = {}
        self.appender: Appender | None = None

    async def _send(
        self,
        call: Callable[[], Coroutine[Any, Any, Any]],
        *,
        append: bool = False,
        runs: Sequence[UUID] = (),
    ) -> Any:
        """`append`: over the connection for appends. `runs`: whose logs it may change."""
        world, rng = self._world, self._world.loop.rng
        faults = world.faults
        draw = 1.0 if faults.off else rng.random()
        await asyncio.sleep(self._delay(rng))
        if draw < faults.lost_request:
            self._cut(append)
            raise StoreUnavailable("lost on its way")
        draw -= faults.lost_request
        if draw < faults.late:
            after = rng.choice([0.1, 2.0, 20.0])
            late = lambda: asyncio.ensure_future(self._late(call, runs))  # noqa: E731
            world.loop.call_later(after, late, context=world.loop.context_of("network"))
            await asyncio.sleep(rng.choice([0.0, 10.0]))
            self._cut(append)
            raise StoreUnavailable("no answer")
        draw -= faults.late
        result = await call()
        for run_id in runs:
            await world.check(run_id)
        if append:
            self._stop_in_flight()
        if draw < faults.lost_reply:
            await asyncio.sleep(rng.choice([0.0, 10.0]))
            self._cut(append)
            raise StoreUnavailable("the answer was lost")
        await asyncio.sleep(self._delay(rng))
        return result

    async def _late(self, call: Callable[[], Coroutine[Any, Any, Any]], runs: Sequence[UUID]) -> None:
        try:
            await call()
        except StoreUnavailable:
            return
        for run_id in runs:
            await self._world.check(run_id)

    def _stop_in_flight(self) -> None:
        """The process is stopped between what the database did and the answer's arrival."""
        process = PROCESS.get()
        seconds = self._world.stop_in_flight.pop(process, None)
        if seconds is not None:
            loop = self._world.loop
            loop.freeze(process)
            loop.call_later(seconds, loop.thaw, process, context=loop.context_of("network"))

    def _delay(self, rng: random.Random) -> float:
        if not self._world.faults.off and rng.random() < self._world.faults.slow:
            return rng.choice([0.5, 3.0, 8.0])
        return rng.random() * 0.002

    def _cut(self, append: bool) -> None:
        if append:
            self._serial += 1

    async def _token(self, token: Token) -> Token:
        """The same server as the sender meant, over a connection that the database knows."""
        return Token(serial=(await self._backing.connect()).serial, server=token.server)

    def _own(self, token: Token) -> None:
        if token.serial != self._serial:
            raise StoreUnavailable("the connection was replaced")

    async def _whole(self, name: str, call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """A statement of what goes on around an executor: nobody cuts it off in its middle."""
        loop = self._world.loop
        began = loop.time()
        try:
            return await self._send(call)
        except asyncio.CancelledError:
            if loop.time() < began + AROUND_SECONDS_MAX - 1e-6:
                self._world.refuse(f"{name} was cut off after {loop.time() - began:.3f} s")
            raise

    # --- LogStore: runs, attempts, claim

    async def create_run(self, row: RunRow) -> bool:
        return await self._backing.create_run(row)

    async def get_run(self, run_id: UUID) -> RunInfo | None:
        result: RunInfo | None = await self._send(lambda: self._backing.get_run(run_id))
        return result

    async def list_runs(
        self, *, owner_prefix: str = "", limit: int = 100, before: tuple[datetime, UUID] | None = None
    ) -> list[RunInfo]:
        return await self._backing.list_runs(owner_prefix=owner_prefix, limit=limit, before=before)

    async def resolve(self, run_id: UUID, resolved: bytes | None) -> bytes | None:
        return await self._backing.resolve(run_id, resolved)

    async def live_runs(self, owner_prefix: str) -> list[Standing]:
        return await self._backing.live_runs(owner_prefix)

    async def standings(self, run_ids: Sequence[UUID]) -> list[Standing]:
        return await self._backing.standings(run_ids)

    async def adopt(self, run_id: UUID, *, owner: str, new_owner: str, levels: Levels) -> bool:
        return await self._backing.adopt(run_id, owner=owner, new_owner=new_owner, levels=levels)

    async def set_levels(self, run_id: UUID, levels: Levels) -> bool:
        return await self._backing.set_levels(run_id, levels)

    async def allocate_attempt(
        self, run_id: UUID, *, expected: int, process: str, previous: AttemptOutcome
    ) -> int | None:
        return await self._backing.allocate_attempt(
            run_id, expected=expected, process=process, previous=previous
        )

    async def attempts(self, run_id: UUID) -> list[AttemptRow]:
        result: list[AttemptRow] = await self._send(lambda: self._backing.attempts(run_id))
        return result

    async def close_attempt(self, run_id: UUID, attempt: int, outcome: AttemptOutcome, reason: str) -> bool:
        result: bool = await self._send(lambda: self._backing.close_attempt(run_id, attempt, outcome, reason))
        return result

    async def claim(self, run_id: UUID, *, attempt: int, claimer: bytes) -> int | None:
        result: int | None = await self._send(
            lambda: self._backing.claim(run_id, attempt=attempt, claimer=claimer)
        )
        return result

    async def look(self, run_id: UUID, *, attempt: int) -> Look | None:
        result: Look | None = await self._send(lambda: self._backing.look(run_id, attempt=attempt))
        return result

    async def reopen(self, row: LogRow) -> bool:
        result: bool = await self._send(lambda: self._backing.reopen(row), runs=[row.run_id])
        return result

    # --- the log

    async def connect(self) -> Token:
        await asyncio.sleep(self._delay(self._world.loop.rng))
        return Token(serial=self._serial, server=(await self._backing.connect()).server)

    def give_up(self, token: Token) -> None:
        if token.serial == self._serial:
            self._serial += 1

    async def insert_row(self, row: LogRow, token: Token) -> bool:
        self._own(token)
        self._pass_over([row])

        async def call() -> bool:
            if row.final:
                self._at_final(row.run_id)
            return await self._backing.insert_row(row, await self._token(token))

        if row.final and self._world.loop.rng.random() < 0.5:
            self._at_final(row.run_id)
        result: bool = await self._send(call, append=True, runs=[row.run_id])
        return result

    def _at_final(self, run_id: UUID) -> None:
        happens = self._world.at_final.pop(PROCESS.get(), None)
        if happens is not None:
            happens(run_id)

    async def insert_pack(self, rows: Sequence[LogRow], token: Token) -> bool:
        self._own(token)
        self._pass_over(rows)

        async def call() -> bool:
            return await self._backing.insert_pack(rows, await self._token(token))

        runs = list(dict.fromkeys(row.run_id for row in rows))
        result: bool = await self._send(call, append=True, runs=runs)
        return result

    async def insert_next(self, row: LogRow, token: Token) -> bool:
        self._own(token)

        async def call() -> bool:
            return await self._backing.insert_next(row, await self._token(token))

        result: bool = await self._send(call, append=True, runs=[row.run_id])
        return result

    def _pass_over(self, rows: Sequence[LogRow]) -> None:
        """Whoever waits in the appender's line is served within a bound."""
        if self.appender is None:
            return
        served = {row.run_id for row in rows}
        counts = self._passed_over
        self._passed_over = {
            tail: counts.get(tail, 0) + 1
            for tail in self.appender._waiting
            if tail.unsent and tail.run_id not in served
        }
        if any(count > PASSED_OVER_MAX for count in self._passed_over.values()):
            self._world.refuse(f"a run was passed over by {PASSED_OVER_MAX} statements of others")

    async def read_rows(self, run_id: UUID, *, after: int = 0, limit: int = 0) -> list[tuple[int, bytes]]:
        result: list[tuple[int, bytes]] = await self._send(
            lambda: self._backing.read_rows(run_id, after=after, limit=limit)
        )
        return result

    async def read_new(self, heads: Mapping[UUID, int], *, limit: int) -> list[tuple[UUID, int, bytes]]:
        return await self._backing.read_new(heads, limit=limit)

    # --- inbox, summary, hints, blobs

    async def post(self, run_id: UUID, row: InboxRow) -> bool:
        return await self._backing.post(run_id, row)

    async def inbox(self, run_id: UUID) -> list[InboxRow]:
        return await self._backing.inbox(run_id)

    async def put_summary(self, run_id: UUID, *, epoch: int, head: int, summary: str) -> None:
        call = lambda: self._backing.put_summary(run_id, epoch=epoch, head=head, summary=summary)  # noqa: E731
        await self._whole("put_summary", call)

    async def notify(self, run_ids: Sequence[UUID]) -> None:
        async def call() -> None:
            self._world.hint(run_ids)

        await self._whole("notify", call)

    async def listen(self, hint: Hint) -> None:
        await self._send(_nothing)
        self._world.hints.append((PROCESS.get(), hint))

    async def put_blob(self, run_id: UUID, sha256: bytes, data: bytes) -> None:
        await self._send(lambda: self._backing.put_blob(run_id, sha256, data))

    async def get_blob(self, run_id: UUID, sha256: bytes) -> bytes | None:
        result: bytes | None = await self._send(lambda: self._backing.get_blob(run_id, sha256))
        return result

    async def close(self) -> None:
        return None


async def _nothing() -> None:
    return None
