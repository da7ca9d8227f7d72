"""What watching costs: many clients on one run, and many runs with a client each.

    python -m benchmarks.streams

An API server and a Postgres of their own, clients and writer in other processes of this machine.
Prints a table, and JSON behind it:

- latency from an append's acknowledgement to a client that has the event (p50, p99, milliseconds);
- the server's resident memory, and what a client adds to it;
- appends a second with all tails on, as a ratio to the same appends with nobody watching.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from agentrun.client import Client
from agentrun.local.embedded import EmbeddedPostgres
from agentrun.log.final import final_record
from agentrun.log.postgres import PostgresStore
from agentrun.log.store import AttemptOutcome, LogRow, RunRow
from agentrun.proto import log_pb2 as pb
from tests.integration.api.servers import TOKEN, Process

RECORD_BYTES = 1000
APPENDS_PER_SECOND = 50
SECONDS = 10.0
CLIENT_PROCESSES = 2
"""The clients share the machine with all else; their own cost is in the latency."""


@dataclass(frozen=True)
class Case:
    name: str
    runs: int
    clients: int


CASES = [
    Case("1 run, 1 client", 1, 1),
    Case("1 run, 1,000 clients", 1, 1000),
    Case("500 runs, 500 clients", 500, 500),
]


async def make_runs(store: PostgresStore, count: int) -> list[UUID]:
    """Runs that a process has claimed."""
    made = []
    for _ in range(count):
        run_id = uuid4()
        await store.create_run(
            RunRow(run_id=run_id, owner="bench/a/b/c", name="b", definition=b"{}", digest="")
        )
        await store.allocate_attempt(run_id, expected=0, process="", previous=AttemptOutcome.CRASHED)
        await store.claim(run_id, attempt=1, claimer=b"me")
        made.append(run_id)
    return made


def record(seq: int) -> bytes:
    """A step; its time says when it was sent."""
    made = pb.NodeRecord(format=1, id=f"n{seq}", kind="step", attempt=1, epoch=1)
    made.output.inline = b"x" * RECORD_BYTES
    made.finished_us = time.time_ns() // 1000
    return made.SerializeToString()


async def append(store: PostgresStore, runs: Sequence[UUID], seconds: float, per_second: float) -> int:
    """Appends to all runs in turn; how many in all. `per_second` 0: as fast as it goes."""
    token = await store.connect()
    began = time.monotonic()
    seqs = dict.fromkeys(runs, 0)
    done = 0
    while time.monotonic() - began < seconds:
        run_id = runs[done % len(runs)]
        seqs[run_id] += 1
        assert await store.insert_row(
            LogRow(run_id=run_id, seq=seqs[run_id], record=record(seqs[run_id])), token
        )
        done += 1
        if done % 10 == 0 or per_second:
            await store.notify([run_id])
        if per_second:
            await asyncio.sleep(max(0.0, began + done / per_second - time.monotonic()))
    for run_id, seq in seqs.items():
        final = final_record(pb.OUTCOME_SUCCEEDED, "Completed", "", epoch=1, now_us=1)
        final.format, final.attempt, final.epoch = 1, 1, 1
        await store.insert_row(
            LogRow(run_id=run_id, seq=seq + 1, record=final.SerializeToString(), final=True), token
        )
    await store.notify(list(runs))
    return done


def watch(url: str, runs: list[str], ready: Any, told: Any) -> None:
    """A process of clients, one a run in `runs`."""

    async def one(client: Client, run_id: str, latencies: list[float]) -> None:
        async for event in client.events(run_id):
            if event.seq is not None and event.data["kind"] == "step":
                sent = _us(event.data["time"])
                latencies.append(time.time() * 1e3 - sent)

    async def all_() -> list[float]:
        latencies: list[float] = []
        clients = [Client(url, TOKEN) for _ in runs]
        async with asyncio.TaskGroup() as group:
            for client, run_id in zip(clients, runs, strict=True):
                group.create_task(one(client, run_id, latencies))
            await asyncio.sleep(3 + len(runs) / 100)
            ready.put(True)
        for client in clients:
            await client.close()
        return latencies

    told.put(asyncio.run(all_()))


def _us(text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp() * 1e3


def memory_mib(pid: int) -> float:
    """Resident."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


async def measure(case: Case, server: Process, dsn: str, pid: int) -> dict[str, Any]:
    """One case: first its latency at a steady rate, then its throughput with and without tails."""
    store = PostgresStore.open(dsn)
    runs = await make_runs(store, case.runs)
    before = memory_mib(pid)
    told = await _watched(case, server, store, runs, SECONDS, APPENDS_PER_SECOND)
    memory = memory_mib(pid)
    plain_rates, tailed_rates = [], []
    for _ in range(3):
        plain_runs, tailed_runs = [await make_runs(store, case.runs) for _ in range(2)]
        plain_rates.append(await append(store, plain_runs, SECONDS / 2, 0))
        told_ = await _watched(case, server, store, tailed_runs, SECONDS / 2, 0)
        tailed_rates.append(int(told_["appends"]))
    await store.close()
    plain, tailed = (statistics.median(rates) / (SECONDS / 2) for rates in (plain_rates, tailed_rates))
    latencies = sorted(told["latencies"])
    return {
        "case": case.name,
        "events": len(latencies),
        "p50Ms": round(latencies[len(latencies) // 2], 1),
        "p99Ms": round(latencies[len(latencies) * 99 // 100], 1),
        "memoryMiB": round(memory, 1),
        "kibPerClient": round((memory - before) * 1024 / case.clients, 1),
        "appendsPerSecond": round(plain),
        "withTails": round(tailed / plain, 3),
    }


async def _watched(
    case: Case, server: Process, store: PostgresStore, runs: list[UUID], seconds: float, per_second: float
) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    ready, told = context.Queue(), context.Queue()
    ids = [str(runs[number % len(runs)]) for number in range(case.clients)]
    parts = [ids[part::CLIENT_PROCESSES] for part in range(CLIENT_PROCESSES)]
    parts = [part for part in parts if part]
    processes = [context.Process(target=watch, args=(server.url, part, ready, told)) for part in parts]
    for process in processes:
        process.start()
    for _ in processes:
        await asyncio.to_thread(ready.get)
    appends = await append(store, runs, seconds, per_second)
    latencies: list[float] = []
    for _ in processes:
        latencies += await asyncio.to_thread(told.get)
    for process in processes:
        await asyncio.to_thread(process.join)
    return {"latencies": latencies, "appends": appends}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", type=int, help="only this one, from 0")
    args = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o711)
        with EmbeddedPostgres.start(folder) as postgres:
            server = Process(postgres.dsn, folder)
            os.environ |= {
                "AGENTRUN_API_REQUESTS_PER_SECOND": "100000",
                "AGENTRUN_API_REQUESTS_BURST": "100000",
            }
            server.start()
            try:
                for number, case in enumerate(CASES):
                    if args.case in (None, number):
                        found.append(asyncio.run(measure(case, server, postgres.dsn, server.pid)))
                        print(" ".join(f"{key}={value}" for key, value in found[-1].items()), flush=True)
            finally:
                server.kill()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
