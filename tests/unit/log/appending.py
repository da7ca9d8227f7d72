"""Some runs of one process over an appender that they share, in simulated time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

from agentrun.log.appender import Appender
from agentrun.log.blobs import TableBlobs
from agentrun.log.claim import claim
from agentrun.log.memory import Database, MemoryStore
from agentrun.log.runlog import RunLog
from agentrun.log.store import AttemptOutcome, LogRow, RunRow
from agentrun.proto import log_pb2 as pb
from tests.support.agents import HookedStore, in_simulated_time
from tests.support.sim.loop import SimLoop
from tests.support.sim.world import SimClock

A, B, C = (UUID(int=number) for number in (1, 2, 3))


class World:
    """Some runs of one process. `faults` are raised or awaited around its appends, one a statement."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.database = Database(loop.time)
        self.store = HookedStore(self.database, self._hook)
        self.appender = Appender(self.store, SimClock(loop), outage_seconds_max=60)
        self.before: list[Callable[[], Awaitable[None]]] = []
        self.after: list[Callable[[], Awaitable[None]]] = []
        self.logs: dict[UUID, RunLog] = {}

    async def _hook(self, when: str, _rows: Sequence[LogRow]) -> None:
        waiting = self.before if when == "before" else self.after
        if waiting:
            await waiting.pop(0)()

    async def claim(self, *runs: UUID) -> None:
        """Claims, and appends a first record, so that the connection is known."""
        for run_id in runs:
            self.logs[run_id] = await claim_run(self.database, self.appender, run_id)
            await self.append(run_id, "first")
        self.store.statements.clear()

    async def append(self, run_id: UUID, name: str, *, final: bool = False) -> None:
        record = pb.NodeRecord(id=name, kind="work")
        if final:
            record.final.outcome = pb.OUTCOME_SUCCEEDED
        await self.logs[run_id].append(record)

    def ids(self, run_id: UUID) -> list[str]:
        rows = sorted(self.database.runs[run_id].log.items())
        assert [seq for seq, _ in rows] == list(range(1, len(rows) + 1))
        return [pb.NodeRecord.FromString(data).id for _, data in rows][2:]

    def lose(self, run_id: UUID, count: int) -> None:
        """A failover to a server that has not seen the newest rows."""
        run = self.database.runs[run_id]
        for _ in range(count):
            del run.log[run.head]
            run.head -= 1
        self.database.server += "'"


async def claim_run(database: Database, appender: Appender, run_id: UUID, *, writer: bytes = b"me") -> RunLog:
    side = MemoryStore(database)
    await side.create_run(RunRow(run_id=run_id, owner="o", name="n", definition=b"", digest=""))
    attempt = await side.allocate_attempt(
        run_id, expected=database.runs[run_id].row.attempt, process="", previous=AttemptOutcome.DISRUPTED
    )
    blobs = TableBlobs(appender.store)
    return await claim(appender=appender, blobs=blobs, run_id=run_id, attempt=attempt or 0, writer=writer)


def scenario(test: Callable[[World], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        async def main(loop: SimLoop) -> None:
            await test(World(loop))

        in_simulated_time(main)

    run.__name__ = test.__name__
    return run
