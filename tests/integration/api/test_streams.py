"""A client that is cut again and again, and servers that are restarted: each record comes once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from agentrun.client import Client
from agentrun.log.final import final_record
from agentrun.log.postgres import PostgresStore
from agentrun.log.store import AttemptOutcome, LogRow, RunRow
from agentrun.proto import log_pb2 as pb
from tests.integration.api.servers import TOKEN, Breaking, Process

RECORDS = 2000
CUTS = 200
SECONDS_MAX = 240.0


@pytest.fixture
def dsn(make_database: Callable[[], str]) -> str:
    return make_database()


@pytest.fixture
def servers(dsn: str, tmp_path: Path) -> Iterator[list[Process]]:
    made = [Process(dsn, tmp_path), Process(dsn, tmp_path)]
    for server in made:
        server.start()
    yield made
    for server in made:
        server.kill()


async def new_run(store: PostgresStore) -> UUID:
    run_id = uuid4()
    row = RunRow(run_id=run_id, owner="test/a/b/c", name="a", definition=b"{}", digest="")
    assert await store.create_run(row)
    await store.allocate_attempt(run_id, expected=0, process="", previous=AttemptOutcome.CRASHED)
    assert await store.claim(run_id, attempt=1, claimer=b"me") == 1
    return run_id


async def append(store: PostgresStore, run_id: UUID, first: int, count: int) -> None:
    """Records as a runner appends them, hints included."""
    token = await store.connect()
    rows = []
    for seq in range(first, first + count):
        record = pb.NodeRecord(
            format=1, id=f"n{seq}", kind="step", attempt=1, epoch=1, output=pb.Payload(inline=b"x" * 200)
        )
        rows.append(LogRow(run_id=run_id, seq=seq, record=record.SerializeToString()))
    assert await store.insert_pack(rows, token)
    await store.notify([run_id])


async def end(store: PostgresStore, run_id: UUID, seq: int) -> None:
    record = final_record(pb.OUTCOME_SUCCEEDED, "Completed", "", epoch=1, now_us=1)
    record.format, record.attempt, record.epoch = 1, 1, 1
    row = LogRow(run_id=run_id, seq=seq, record=record.SerializeToString(), final=True)
    assert await store.insert_row(row, await store.connect())
    await store.notify([run_id])


def test_a_client_that_is_cut_two_hundred_times_sees_each_record_once(
    dsn: str, servers: list[Process]
) -> None:
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")
    chance = random.Random(seed)

    async def test() -> None:
        store = PostgresStore.open(dsn)
        run_id = await new_run(store)
        over = asyncio.Event()
        found: list[int] = []

        async def write(way: Breaking) -> None:
            seq = 1
            while seq <= RECORDS:
                count = min(chance.randint(1, 20), RECORDS + 1 - seq)
                await append(store, run_id, seq, count)
                seq += count
                while way.cuts * RECORDS < (seq - 40) * CUTS:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            while way.cuts < CUTS:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await end(store, run_id, seq)

        async def cut(way: Breaking) -> None:
            while not over.is_set():
                with suppress(TimeoutError):  # most cuts come in the middle of records, some before any
                    async with asyncio.timeout(chance.uniform(0.1, 2)):
                        await way.told()
                await asyncio.sleep(chance.uniform(0, 0.05))
                way.cut()

        async def restart(way: Breaking) -> None:
            while not over.is_set():
                for server in servers:
                    await asyncio.sleep(5)
                    print(f"{len(found)} records, {way.cuts} cuts")
                    code = await asyncio.to_thread(server.stop)
                    assert code == 0
                    await asyncio.to_thread(server.start)

        async def watch(way: Breaking) -> None:
            async with Client(f"http://127.0.0.1:{way.port}", TOKEN) as client:
                async for event in client.events(str(run_id)):
                    if event.seq is not None:
                        found.append(event.seq)  # noqa: PERF401  it is looked at meanwhile
            over.set()

        way = Breaking([server.port for server in servers], chance)
        async with asyncio.timeout(SECONDS_MAX), way.running(), asyncio.TaskGroup() as group:
            for work in (write(way), cut(way), restart(way), watch(way)):
                group.create_task(work)
        assert found == list(range(1, RECORDS + 2))
        assert way.cuts >= CUTS
        await store.close()

    asyncio.run(test())
