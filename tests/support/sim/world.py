"""The world around simulated processes: the network to the store, and what must never be seen.

`SimStore` is one process's way to the database. A statement may be delayed, be lost
on its way, be executed while its reply is lost, or be executed late, long after its
sender gave it up. After every statement that the database executes, `World.check`
looks at the tables themselves.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from agentrun.graph.node import NodeRun
from agentrun.log.clock import Clock
from agentrun.log.errors import CorruptLog, StoreUnavailable
from agentrun.log.replay import ATTEMPT, REOPENED, History, decode
from agentrun.log.store import (
    AttemptOutcome,
    AttemptRow,
    Hint,
    InboxRow,
    Levels,
    LogRow,
    LogStore,
    Look,
    RunInfo,
    RunRow,
    Standing,
    Token,
)
from agentrun.log.tail import FRESH_SECONDS_MAX
from tests.support.sim.loop import PROCESS, SimLoop


class Violation(AssertionError):
    """Something that must never happen was seen."""


class SimClock(Clock):
    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def monotonic(self) -> float:
        return self._loop.time()

    def wall_us(self) -> int:
        return int(self._loop.time() * 1e6)


@dataclass
class Faults:
    """Chances for one statement."""

    lost_request: float = 0.02
    lost_reply: float = 0.03
    late: float = 0.02
    slow: float = 0.05
    off: bool = False


@dataclass
class Call:
    """A call to the outside."""

    at: float
    process: str
    epoch: int
    node_id: str


@dataclass
class World:
    """What is true, whatever the processes believe."""

    loop: SimLoop
    run_id: UUID
    backing: LogStore
    faults: Faults = field(default_factory=Faults)
    strict: bool = True
    """False where a failover may lose what was acknowledged."""
    calls: list[Call] = field(default_factory=list)
    history: History | None = None
    row_times: dict[str, float] = field(default_factory=dict)
    claims: dict[int, float] = field(default_factory=dict)
    stop_in_flight: dict[str, float] = field(default_factory=dict)
    cancelled: list[tuple[str, str]] = field(default_factory=list)

    on_statement: Callable[[], None] = lambda: None
    violations: list[str] = field(default_factory=list)

    def refuse(self, what: str) -> None:
        """A violation is kept, whoever swallows the exception."""
        self.violations.append(what)
        raise Violation(what)

    async def check(self) -> None:
        """The tables: they replay, no two finals, nothing behind a final, `ended` says the same."""
        history = History(self.run_id)
        final_seen = False
        for seq, data in await self.backing.read_rows(self.run_id):
            record = decode(self.run_id, seq, data)
            try:
                history.fold(seq, record)
            except CorruptLog as error:
                self.refuse(str(error))
            if final_seen and record.kind != REOPENED:
                self.refuse(f"record {seq} ({record.id}) stands behind a final record")
            final_seen = history.final is not None
            self.row_times.setdefault(record.id, self.loop.time())
            if record.kind == ATTEMPT:
                self.claims.setdefault(record.epoch, self.loop.time())
        info = await self.backing.get_run(self.run_id)
        if info is not None and info.run.ended != final_seen:
            self.refuse(f"ended is {info.run.ended}, a final record stands: {final_seen}")
        self.history = history
        self.on_statement()

    def call(self, process: str, epoch: int, node: NodeRun, parents: Sequence[str]) -> None:
        """A node's handler reaches out, now."""
        now = self.loop.time()
        self.calls.append(Call(now, process, epoch, node.node_id))
        history = self.history
        assert history is not None
        if not self.strict:
            return
        newer = [at for other, at in self.claims.items() if other > epoch]
        if newer and now > min(newer) + FRESH_SECONDS_MAX + 1e-6:
            self.refuse(
                f"{process} (epoch {epoch}) calls {node.node_id}, {now - min(newer):.2f} s fenced off"
            )
        if not newer and history.final is not None:
            self.refuse(f"{process} calls {node.node_id} behind a final record")
        if not newer and node.node_id in history.done:
            self.refuse(f"{process} calls {node.node_id}, which is recorded")
        for parent in parents:
            if parent and parent not in history.done:
                self.refuse(f"{node.node_id} is launched, its parent {parent} is not in the log")


class SimStore:
    """One process's store; see the module's docstring."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._backing = world.backing
        self._serial = 1

    async def _send(self, call: Callable[[], Coroutine[Any, Any, Any]], *, append: bool = False) -> Any:
        world, rng = self._world, self._world.loop.rng
        faults = world.faults
        draw = 1.0 if faults.off else rng.random()
        await asyncio.sleep(self._delay(rng))
        if draw < faults.lost_request:
            self._cut(append)
            raise StoreUnavailable("lost on its way")
        draw -= faults.lost_request
        if draw < faults.late:
            context = contextvars.copy_context()
            context.run(PROCESS.set, "network")
            after = rng.choice([0.1, 2.0, 20.0])
            world.loop.call_later(after, lambda: asyncio.ensure_future(self._late(call)), context=context)
            await asyncio.sleep(rng.choice([0.0, 10.0]))
            self._cut(append)
            raise StoreUnavailable("no answer")
        draw -= faults.late
        result = await call()
        await world.check()
        if append:
            self._stop_in_flight()
        if draw < faults.lost_reply:
            await asyncio.sleep(rng.choice([0.0, 10.0]))
            self._cut(append)
            raise StoreUnavailable("the answer was lost")
        await asyncio.sleep(self._delay(rng))
        return result

    def _stop_in_flight(self) -> None:
        """The process is stopped between what the database did and the answer's arrival."""
        process = PROCESS.get()
        seconds = self._world.stop_in_flight.pop(process, None)
        if seconds is not None:
            context = contextvars.copy_context()
            context.run(PROCESS.set, "network")
            self._world.loop.freeze(process)
            self._world.loop.call_later(seconds, self._world.loop.thaw, process, context=context)

    async def _late(self, call: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        try:
            await call()
        except StoreUnavailable:
            return
        await self._world.check()

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

    # --- LogStore

    async def create_run(self, row: RunRow) -> bool:
        result: bool = await self._send(lambda: self._backing.create_run(row))
        return result

    async def get_run(self, run_id: UUID) -> RunInfo | None:
        result: RunInfo | None = await self._send(lambda: self._backing.get_run(run_id))
        return result

    async def list_runs(self, *, owner_prefix: str = "", limit: int = 100) -> list[RunInfo]:
        return await self._backing.list_runs(owner_prefix=owner_prefix, limit=limit)

    async def resolve(self, run_id: UUID, resolved: bytes | None) -> bytes | None:
        return await self._backing.resolve(run_id, resolved)

    async def live_runs(self, owner_prefix: str) -> list[Standing]:
        return await self._backing.live_runs(owner_prefix)

    async def standings(self, run_ids: Sequence[UUID]) -> list[Standing]:
        return await self._backing.standings(run_ids)

    async def adopt(self, run_id: UUID, *, owner: str, new_owner: str, levels: Levels) -> bool:
        return await self._backing.adopt(run_id, owner=owner, new_owner=new_owner, levels=levels)

    async def set_levels(self, run_id: UUID, levels: Levels) -> bool:
        result: bool = await self._send(lambda: self._backing.set_levels(run_id, levels))
        return result

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
        result: bool = await self._backing.reopen(row)
        await self._world.check()
        return result

    async def connect(self) -> Token:
        await asyncio.sleep(self._delay(self._world.loop.rng))
        return Token(serial=self._serial, server=(await self._backing.connect()).server)

    def give_up(self, token: Token) -> None:
        self._serial += 1

    async def insert_row(self, row: LogRow, token: Token) -> bool:
        self._own(token)

        async def call() -> bool:
            return await self._backing.insert_row(row, await self._token(token))

        result: bool = await self._send(call, append=True)
        return result

    async def insert_pack(self, rows: Sequence[LogRow], token: Token) -> bool:
        self._own(token)

        async def call() -> bool:
            return await self._backing.insert_pack(rows, await self._token(token))

        result: bool = await self._send(call, append=True)
        return result

    async def insert_next(self, row: LogRow, token: Token) -> bool:
        self._own(token)

        async def call() -> bool:
            return await self._backing.insert_next(row, await self._token(token))

        result: bool = await self._send(call, append=True)
        return result

    async def read_rows(self, run_id: UUID, *, after: int = 0, limit: int = 0) -> list[tuple[int, bytes]]:
        result: list[tuple[int, bytes]] = await self._send(
            lambda: self._backing.read_rows(run_id, after=after, limit=limit)
        )
        return result

    async def post(self, run_id: UUID, row: InboxRow) -> bool:
        return await self._backing.post(run_id, row)

    async def inbox(self, run_id: UUID) -> list[InboxRow]:
        return await self._backing.inbox(run_id)

    async def put_summary(self, run_id: UUID, *, epoch: int, head: int, summary: str) -> None:
        await self._send(lambda: self._backing.put_summary(run_id, epoch=epoch, head=head, summary=summary))

    async def notify(self, run_ids: Sequence[UUID]) -> None:
        return None

    async def listen(self, hint: Hint) -> None:
        return None

    async def put_blob(self, run_id: UUID, sha256: bytes, data: bytes) -> None:
        await self._send(lambda: self._backing.put_blob(run_id, sha256, data))

    async def get_blob(self, run_id: UUID, sha256: bytes) -> bytes | None:
        result: bytes | None = await self._send(lambda: self._backing.get_blob(run_id, sha256))
        return result

    async def close(self) -> None:
        return None
