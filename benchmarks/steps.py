"""What a durable step costs, side by side with bare INSERTs in the same run.

    python -m benchmarks.steps

Ratios count; absolute times are this machine's. Medians over rounds that alternate
between the two sides, so that what else the machine does hits both.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from uuid import UUID, uuid4

import asyncpg

from agentrun.graph.executor import Executor
from agentrun.graph.types import NodeContext, NodeKind, NodeResult, Spawned
from agentrun.local.embedded import EmbeddedPostgres
from agentrun.log.appender import Appender
from agentrun.log.blobs import TableBlobs
from agentrun.log.claim import claim
from agentrun.log.postgres import PostgresStore
from agentrun.log.runlog import RunLog
from agentrun.log.store import AttemptOutcome, RunRow
from agentrun.proto import log_pb2 as pb

ROUNDS = 7
STEPS = 500
RUNS = 32
CALLS = 40
BODY = os.urandom(400)
BARE = "INSERT INTO bare (run_id, seq, record) VALUES ($1, $2, $3)"


async def new_log(store: PostgresStore, appender: Appender) -> RunLog:
    run_id = uuid4()
    await store.create_run(RunRow(run_id=run_id, owner="bench", name="bench", definition=b"", digest=""))
    attempt = await store.allocate_attempt(run_id, expected=0, process="{}", previous=AttemptOutcome.CRASHED)
    return await claim(
        appender=appender,
        blobs=TableBlobs(store),
        run_id=run_id,
        attempt=attempt or 0,
        writer=os.urandom(16),
    )


async def bare_steps(connection: asyncpg.Connection, run_id: UUID, first: int, count: int) -> None:
    for seq in range(first, first + count):
        await connection.execute(BARE, run_id, seq, BODY)


async def our_steps(log: RunLog, name: str, count: int) -> None:
    for number in range(count):
        record = pb.NodeRecord(id=f"{name}-{number}", kind="step", output=pb.Payload(inline=BODY))
        await log.append(record)


async def one_run(store: PostgresStore, appender: Appender, dsn: str) -> dict[str, float]:
    """Seconds a step, alone."""
    connection = await asyncpg.connect(dsn)
    log = await new_log(store, appender)
    run_id = uuid4()
    bare, ours = [], []
    for round_ in range(ROUNDS):
        started = time.perf_counter()
        await bare_steps(connection, run_id, round_ * STEPS, STEPS)
        middle = time.perf_counter()
        await our_steps(log, f"r{round_}", STEPS)
        bare.append((middle - started) / STEPS)
        ours.append((time.perf_counter() - middle) / STEPS)
    await connection.close()
    return figures("seconds a step, one run", statistics.median(bare), statistics.median(ours))


async def many_runs(store: PostgresStore, appender: Appender, dsn: str) -> dict[str, float]:
    """Steps a second, 32 runs in one process against 32 tasks on connections of their own."""
    connections = [await asyncpg.connect(dsn) for _ in range(RUNS)]
    logs = [await new_log(store, appender) for _ in range(RUNS)]
    steps = STEPS // 4
    bare, ours = [], []
    for round_ in range(ROUNDS):
        started = time.perf_counter()
        await asyncio.gather(*(bare_steps(c, uuid4(), 0, steps) for c in connections))
        middle = time.perf_counter()
        await asyncio.gather(*(our_steps(log, f"r{round_}", steps) for log in logs))
        bare.append(RUNS * steps / (middle - started))
        ours.append(RUNS * steps / (time.perf_counter() - middle))
    for connection in connections:
        await connection.close()
    return figures("steps a second, 32 runs", statistics.median(bare), statistics.median(ours))


async def one_batch(store: PostgresStore, appender: Appender) -> dict[str, float]:
    """Seconds from the first of 40 calls of 50 ms to the step behind all of them."""
    times: list[float] = []
    for _ in range(ROUNDS):
        seen: dict[str, float] = {}
        names = [f"call-{number}" for number in range(CALLS)]

        async def start(node: NodeContext, names: list[str] = names) -> NodeResult:
            calls = [Spawned(kind="call", name=name) for name in names]
            return NodeResult(spawned=[*calls, Spawned(kind="end", name="end", parents=names)])

        async def call(node: NodeContext, seen: dict[str, float] = seen) -> NodeResult:
            seen.setdefault("first", time.perf_counter())
            await node.confirm()
            await asyncio.sleep(0.05)
            return NodeResult(output=b"x")

        async def end(node: NodeContext, seen: dict[str, float] = seen) -> NodeResult:
            seen["end"] = time.perf_counter()
            return NodeResult()

        kinds = {kind.__name__: NodeKind(name=kind.__name__, run=kind) for kind in (start, call, end)}
        log = await new_log(store, appender)
        await Executor(log, kinds, Spawned(kind="start", name="start"), concurrency=64).run()
        times.append(seen["end"] - seen["first"])
    return figures("seconds, 40 calls of 50 ms", 0.05, statistics.median(times))


def figures(what: str, bare: float, ours: float) -> dict[str, float]:
    print(f"{what:32} bare {bare:12.6g}   ours {ours:12.6g}   ratio {ours / bare:.3f}")
    return {"bare": bare, "ours": ours, "ratio": ours / bare}


async def main(dsn: str) -> None:
    store = PostgresStore.open(dsn)
    appender = Appender(store)
    await store.connect()
    connection = await asyncpg.connect(dsn)
    await connection.execute(
        "CREATE TABLE bare (run_id uuid, seq bigint, record bytea, PRIMARY KEY (run_id, seq))"
    )
    await connection.close()
    results = {
        "one_run": await one_run(store, appender, dsn),
        "many_runs": await many_runs(store, appender, dsn),
        "one_batch": await one_batch(store, appender),
    }
    print(json.dumps(results))
    await appender.close()
    await store.close()


if __name__ == "__main__":
    folder = Path(tempfile.mkdtemp(prefix="agentrun-bench-", dir="/tmp"))
    folder.chmod(0o711)
    with EmbeddedPostgres.start(folder) as server:
        asyncio.run(main(server.dsn))
