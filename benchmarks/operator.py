"""What many AgentRuns at once cost: writes to the API server, memory, time, and whether one is missed.

    python -m benchmarks.operator --runs 5000
    python -m benchmarks.operator --runs 1000 --kubeconfig FILE

The operator is a process of its own, as in a cluster, with a real Postgres. The API server is the
stand-in of the tests, which counts; or, with --kubeconfig, that of a cluster with nodes of KWOK
(labelled type=kwok), on which no other operator runs meanwhile. Runners are played by this process:
they claim their run, record steps and end. All runs are made at once and run at the same time; when
nothing has happened for a while they end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from agentrun.local.embedded import EmbeddedPostgres
from agentrun.log.postgres import PostgresStore
from agentrun.proto import log_pb2 as pb
from benchmarks.worlds import Pretended, StandIn, World
from tests.integration.operator.fake_api import Body, FakeApi
from tests.integration.operator.kubelet import Runner
from tests.support.api_proxy import free_port

WRITES_A_RUN_MAX = 8.0
MEMORY_MIB_MAX = 300.0
SECONDS_MAX = 1800.0
START_SECONDS_MAX = 60.0
PORT = free_port()
BASE = f"http://127.0.0.1:{PORT}"
LIVES_AT_ONCE = 24
"""Runners that talk to Postgres at the same moment; the others wait."""

STEPS = 2


@dataclass
class Played:
    """The runs, as runners see them."""

    world: World
    store: PostgresStore
    runners: dict[str, Runner] = field(default_factory=dict)
    _turn: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(LIVES_AT_ONCE))
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def start_pods(self) -> None:
        """The runner of whatever pod runs claims its run; until cancelled."""
        async for pod in self.world.pods():
            task = asyncio.create_task(self._live(pod))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _live(self, pod: Body) -> None:
        async with self._turn:
            runner = Runner(self.store, pod)
            await runner.claim()
            for number in range(STEPS):
                await runner.step(f"step-{number}")
            self.runners[runner.pod] = runner

    async def end_all(self) -> None:
        """All runs end well."""

        async def end(runner: Runner) -> None:
            async with self._turn:
                await runner.end(pb.OUTCOME_SUCCEEDED, answer="done")
                await self.world.end(runner.pod)

        await asyncio.gather(*(end(runner) for runner in self.runners.values()))


# --- the operator


@asynccontextmanager
async def operator(dsn: str, world: World, folder: Path) -> AsyncIterator[int]:
    """`agentrun operator`, ready, until the end of the block; its process id."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("KUBERNETES_")}
    environ |= {
        "KUBECONFIG": str(world.kubeconfig(folder)),
        "AGENTRUN_NAMESPACES": world.namespace,
        "AGENTRUN_DATABASE_URL": dsn,
        "AGENTRUN_RUNNER_IMAGE": "runner:1",
        "AGENTRUN_HTTP_PORT": str(PORT),
    }
    with (folder / "operator.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "agentrun_operator.cli", env=environ, stdout=log, stderr=log
        )
    try:
        async with asyncio.timeout(START_SECONDS_MAX):
            while not await is_ready():
                if process.returncode is not None:
                    raise SystemExit(f"the operator has ended: {folder / 'operator.log'}")
                await asyncio.sleep(0.2)
        yield process.pid
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            await process.wait()


async def is_ready() -> bool:
    """It watches, and has swept."""
    try:
        async with aiohttp.ClientSession() as session, session.get(f"{BASE}/readyz") as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False


async def metrics() -> dict[str, float]:
    """The operator's own figures."""
    async with aiohttp.ClientSession() as session, session.get(f"{BASE}/metrics") as answer:
        text = await answer.text()
    found = re.findall(r"^(agentrun_\S+) ([0-9.e+]+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in found}


def memory_mib(pid: int, *, peak: bool = False) -> float:
    """What the process has now, or the most that it ever had."""
    text = Path(f"/proc/{pid}/status").read_text()
    found = re.search(rf"{'VmHWM' if peak else 'VmRSS'}:\s+(\d+) kB", text)
    assert found is not None
    return int(found[1]) / 1024


def cpu_seconds(pid: int) -> float:
    """What the process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- the measurement


async def until(what: str, seen: Callable[[], Awaitable[bool]], every: float) -> float:
    """Seconds until it is so."""
    started = time.perf_counter()
    async with asyncio.timeout(SECONDS_MAX):
        while not await seen():  # noqa: ASYNC110
            await asyncio.sleep(every)
    print(f"{what:44} {time.perf_counter() - started:8.1f} s", flush=True)
    return time.perf_counter() - started


async def measure(world: World, runs: int, quiet: float, dsn: str, folder: Path) -> dict[str, float]:
    """The figures, by name."""
    store = PostgresStore.open(dsn)
    every = 0.25 if isinstance(world, StandIn) else 3.0
    async with operator(dsn, world, folder) as pid:
        played = Played(world, store)
        playing = asyncio.create_task(played.start_pods())
        making = asyncio.create_task(world.make([f"run-{number}" for number in range(runs)]))

        async def running() -> bool:
            return len(played.runners) == runs and await world.in_phase("Running") == runs

        async def ended() -> bool:
            return await world.in_phase("Succeeded") == runs and not await world.pods_left()

        figures = {"runs": float(runs), "seconds until all run": await until("all run", running, every)}
        await making
        figures["MiB while all run"] = memory_mib(pid)
        before, cpu = await writes(), cpu_seconds(pid)
        await asyncio.sleep(quiet)
        figures["writes while all is quiet"] = await writes() - before
        figures["CPU while all is quiet"] = (cpu_seconds(pid) - cpu) / quiet
        ending = asyncio.create_task(played.end_all())
        figures["seconds until all have ended"] = await until("all have ended, no pod is left", ended, every)
        await ending
        playing.cancel()
        await asyncio.wait([playing])
        figures |= {"MiB at most": memory_mib(pid, peak=True), "CPU seconds": cpu_seconds(pid)}
        figures |= await told(runs) | world.writes(runs)
        figures["missed runs"] = float(runs - await world.in_phase("Succeeded"))
    await store.close()
    return figures


async def writes() -> float:
    """What the operator has written so far, progress too."""
    return sum(
        value
        for name, value in (await metrics()).items()
        if re.match(r'agentrun_operator_api_requests_total.*code="2.*verb="(post|patch|delete)"', name)
    )


async def told(runs: int) -> dict[str, float]:
    """What the operator says of itself."""
    found = await metrics()
    return {
        "found by sweeps alone": found.get("agentrun_operator_sweep_found_total", 0.0),
        "looks a run": sum(value for name, value in found.items() if "reconciles_total" in name) / runs,
        "faults": found.get('agentrun_operator_reconciles_total{result="fault"}', 0.0),
        "writes a run, progress too": await writes() / runs,
    }


async def run(arguments: argparse.Namespace, dsn: str, folder: Path) -> dict[str, float]:
    """In the world that was asked for."""
    if arguments.kubeconfig is None:
        async with FakeApi().serve() as api:
            return await measure(StandIn(api), arguments.runs, arguments.quiet, dsn, folder)
    async with Pretended(arguments.kubeconfig, f"bench-{os.getpid()}") as world:
        return await measure(world, arguments.runs, arguments.quiet, dsn, folder)


def main() -> int:
    """Prints the figures; exit code 1 if one is over what it may be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=5000, help="how many (default 5000)")
    parser.add_argument(
        "--quiet", type=float, default=130.0, help="seconds in which nothing happens (130: two sweeps)"
    )
    parser.add_argument("--kubeconfig", type=Path, help="of a cluster with nodes of KWOK")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="agentrun-bench-", dir="/tmp"))
    folder.chmod(0o711)
    with EmbeddedPostgres.start(folder) as server:
        figures = asyncio.run(run(arguments, server.dsn, folder))
    for name, value in figures.items():
        print(f"{name:44} {value:10.2f}")
    print(json.dumps(figures))
    print(f"the operator's log: {folder / 'operator.log'}")
    over = [
        text
        for text, is_over in (
            ("writes of a run", figures.get("writes of the busiest run", 0.0) > WRITES_A_RUN_MAX),
            ("memory", figures["MiB at most"] > MEMORY_MIB_MAX),
            ("missed runs", figures["missed runs"] > 0),
        )
        if is_over
    ]
    for text in over:
        print(f"over what it may be: {text}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
