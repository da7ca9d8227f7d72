"""Graphs of any shape, with any trouble: they come to an end that is recorded, and their log replays."""

from __future__ import annotations

import asyncio
import random

import pytest

from agentrun.graph.executor import Executor, RetryWaits
from agentrun.graph.types import NodeContext, NodeError, NodeKind, NodeResult, Spawned, Usage
from agentrun.proto import log_pb2 as pb
from tests.support.agents import Bench, Crash

GRAPHS = 400
NODES_MAX = 60


class Wild:
    """What a node does is drawn from its own id, so that it does the same after every replay."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        rng = random.Random(seed)
        self.fatal = rng.choice([0.0, 0.03])
        self.final = rng.choice([0.0, 0.05])
        self.flaky = rng.choice([0.0, 0.2])
        self.seen: set[str] = set()

    async def node(self, node: NodeContext) -> NodeResult:
        rng = random.Random(f"{self.seed} {node.node_id}")
        self.seen.add(node.node_id)
        depth = node.node_id.count("/")
        if rng.random() < 0.2:
            await node.reserve(rng.randint(1, 300))
        if rng.random() < 0.2:
            await node.intend()
        await asyncio.sleep(rng.choice([0, 0, 0.1, 1, 7, 40]) * rng.random())
        if rng.random() < self.fatal:
            raise NodeError("Broken", "for good", retryable=False)
        if rng.random() < self.flaky and node.try_number <= rng.randint(1, 2):
            raise NodeError("Flaky", "again", retryable=True, usage=Usage(tokens_in=1))
        output = b""
        if depth < 3 and rng.random() < 0.25:
            output = await self._below(node, rng)
        if not depth and rng.random() < self.final:
            return NodeResult(final=pb.Final(outcome=pb.OUTCOME_SUCCEEDED, reason="Early"))
        return NodeResult(
            output=output, spawned=self._successors(rng), usage=Usage(tokens_in=rng.randint(0, 20))
        )

    async def _below(self, node: NodeContext, rng: random.Random) -> bytes:
        caught = rng.random() < 0.7
        try:
            return await node.subgraph(Spawned(kind=rng.choice(["wild", "hasty"])))
        except NodeError as error:
            if not caught:
                raise
            return str(error).encode()

    def _successors(self, rng: random.Random) -> list[Spawned]:
        if len(self.seen) > NODES_MAX or rng.random() < 0.35:
            return []
        kinds = ["wild", "wild", "hasty", "free"]
        if rng.random() < 0.5:
            return [Spawned(kind=rng.choice(kinds)) for _ in range(rng.randint(1, 4))]
        names = [f"{rng.getrandbits(64):x}" for _ in range(rng.randint(2, 4))]
        first = [Spawned(kind=rng.choice(kinds), name=name) for name in names]
        return [*first, Spawned(kind="wild", name=f"{rng.getrandbits(64):x}", parents=names)]

    def bench(self) -> Bench:
        rng = random.Random(-self.seed - 1)
        kinds = {
            "wild": NodeKind(name="wild", run=self.node),
            "hasty": NodeKind(name="hasty", run=self.node, timeout_seconds=20),
            "free": NodeKind(name="free", run=self.node, free=True),
        }
        budget = {
            "tokens": rng.choice([None, 200]),
            "wallSeconds": rng.choice([None, 60]),
            "retries": rng.choice([3, 50]),
            "onExceeded": rng.choice(["Pause", "Fail"]),
        }
        waits = RetryWaits(first=0.5, last=4)
        concurrency = rng.choice([1, 2, 5, 16])
        root = Spawned(kind="wild")
        return Bench(kinds, root, budget=budget, concurrency=concurrency, waits=waits, seed=self.seed)


def trouble(bench: Bench, rng: random.Random) -> None:
    """One process that does not get to do all that it wanted."""

    async def stop(executor: Executor) -> None:
        await asyncio.sleep(rng.random() * 30)
        if rng.random() < 0.8:
            executor.pause("Terminated", within_seconds=rng.choice([None, 0, 3]))
        else:
            executor.cancel(at_once=rng.random() < 0.5)

    if rng.random() < 0.5:
        bench.run(Crash(append=rng.randint(1, 20), after=rng.random() < 0.5))
    else:
        bench.run(during=stop)


def ended(bench: Bench) -> bool:
    return bench.database.runs[bench.run_id].row.ended


@pytest.mark.parametrize("chunk", range(8))
def test_every_graph_comes_to_an_end_that_is_recorded(chunk: int) -> None:
    size = GRAPHS // 8
    for seed in range(chunk * size, chunk * size + size):
        rng = random.Random(seed)
        bench = Wild(seed).bench()
        try:
            while not ended(bench) if bench.stores else True:
                if rng.random() < 0.5:
                    trouble(bench, rng)
                elif bench.resume().paused:
                    break
            check(bench)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


def check(bench: Bench) -> None:
    history = bench.history
    finals = [record.id for record in bench.records if record.HasField("final")]
    if ended(bench):
        assert len(finals) == 1 and history.final_seq == history.head
    else:
        assert not finals and bench.outcome is not None and bench.outcome.reason == "BudgetExceeded"
    nodes = [record for record in bench.records if record.id in history.done]
    done = {record.id: seq for seq, record in enumerate(nodes)}
    for record in nodes:
        assert all(done[parent] < done[record.id] for parent in record.parents)
