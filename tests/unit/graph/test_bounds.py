"""What the budget promises of calls and of time, whatever fails, crashes or steps back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from agentrun.graph.executor import Executor, RetryWaits
from agentrun.graph.types import NodeContext, NodeError, NodeKind, NodeResult, Spawned, Usage
from agentrun.log.store import LogRow
from tests.support.agents import Bench
from tests.support.sim.world import SimClock


class Callers:
    """Siblings that call a model that always fails; each may be in a graph of its own."""

    def __init__(self, count: int, *, budget: dict[str, Any], below: bool = False, fails: int = 1000) -> None:
        self.calls: list[str] = []
        self.late: dict[str, float] = {}
        self.count = count
        self.below = below
        self.fails = fails
        kinds = {
            "start": NodeKind(name="start", run=self.start, free=True),
            "agent": NodeKind(name="agent", run=self.agent, free=True),
            "begin": NodeKind(name="begin", run=self.begin, free=True),
            "turn": NodeKind(name="turn", run=self.turn, turn=True),
        }
        self.bench = Bench(kinds, budget=budget, concurrency=4, waits=RetryWaits(first=0.5, last=0.5))

    async def start(self, node: NodeContext) -> NodeResult:
        kind = "agent" if self.below else "turn"
        return NodeResult(spawned=[Spawned(kind=kind, name=f"t{i}") for i in range(self.count)])

    async def agent(self, node: NodeContext) -> NodeResult:
        await asyncio.sleep(self.late.get(node.name, 0.0))
        return NodeResult(output=await node.subgraph(Spawned(kind="begin", name="begin")))

    async def begin(self, node: NodeContext) -> NodeResult:
        return NodeResult(spawned=[Spawned(kind="turn", name="turn")])

    async def turn(self, node: NodeContext) -> NodeResult:
        self.calls.append(node.node_id)
        await asyncio.sleep(0.1 * (len(self.calls) % 3))
        if node.try_number <= self.fails:
            raise NodeError("RateLimited", "429", retryable=True, usage=Usage(tokens_in=1))
        return NodeResult()


@pytest.mark.parametrize("below", [False, True])
@pytest.mark.parametrize(("count", "calls"), [(40, 5), (5, 8)])
def test_turns_and_retries_together_bound_the_calls(count: int, calls: int, below: bool) -> None:
    callers = Callers(count, budget={"turns": 5, "retries": 3}, below=below)
    assert callers.bench.resume().reason == "BudgetExceeded"
    assert len(callers.calls) == calls
    assert len(set(callers.calls)) == 5, "a turn is held between its tries"


@pytest.mark.parametrize("below", [False, True])
@pytest.mark.parametrize("pauses", [(0.05, 0.25, 0.55), (0.3, 0.3, 0.3, 0.3)])
def test_they_bound_the_calls_over_resumes_too(pauses: tuple[float, ...], below: bool) -> None:
    callers = Callers(40, budget={"turns": 5, "retries": 3}, below=below)
    for seconds in pauses:

        async def during(executor: Executor, seconds: float = seconds) -> None:
            await asyncio.sleep(seconds)
            executor.pause("Terminated")

        assert callers.bench.resume(during=during).paused
    assert callers.bench.resume().reason == "BudgetExceeded"
    assert len(callers.calls) <= 8


def test_a_turn_whose_graph_is_not_open_yet_is_held_after_a_resume() -> None:
    """What failed in a graph below holds its turn also while others could be launched before it."""
    callers = Callers(6, budget={"turns": 3, "retries": 10}, below=True, fails=1)

    async def during(executor: Executor) -> None:
        await executor.log.past(1 + 1 + 6 + 2)
        executor.pause("Terminated", within_seconds=0)

    assert callers.bench.resume(during=during).paused
    begun = set(callers.calls)
    callers.late = {f"t{i}": 5.0 for i in range(3)}
    assert callers.bench.resume().reason == "BudgetExceeded"
    assert len(begun) == 3 and set(callers.calls) == begun


@pytest.mark.parametrize("fails", [0, 2])
def test_a_kind_that_is_a_turn_counts_by_itself_and_once(fails: int) -> None:
    callers = Callers(3, budget={"turns": 3, "retries": 50}, fails=fails)
    assert callers.bench.resume().reason == "Completed"
    assert callers.bench.history.totals.turns == 3
    assert len(callers.calls) == 3 * (fails + 1)


def test_what_is_paid_for_and_on_its_way_to_the_log_leaves_no_room_for_others() -> None:
    """Its parent is over its time, and its own task is cancelled, while its record is under way."""
    calls: list[str] = []

    async def start(node: NodeContext) -> NodeResult:
        names = [f"p{i}" for i in range(3)] + [f"late{i}" for i in range(3)]
        return NodeResult(spawned=[Spawned(kind=name.rstrip("012"), name=name) for name in names])

    async def parent(node: NodeContext) -> NodeResult:
        return NodeResult(output=await node.subgraph(Spawned(kind="ask", name="ask")))

    async def late(node: NodeContext) -> NodeResult:
        await asyncio.sleep(4.5)
        return await ask(node)

    async def ask(node: NodeContext) -> NodeResult:
        await node.reserve(30)
        calls.append(node.node_id)
        return NodeResult(usage=Usage(tokens_in=30))

    kinds = {"start": start, "p": NodeKind(name="p", run=parent, timeout_seconds=4), "ask": ask, "late": late}
    bench = Bench(kinds, budget={"tokens": 95}, waits=RetryWaits(first=30, last=30))

    async def during(executor: Executor) -> None:
        async def hook(when: str, rows: Sequence[LogRow]) -> None:
            if when == "before" and any(b"/ask" in row.record for row in rows):
                await asyncio.sleep(10)

        bench.stores[-1].hook = hook

    bench.resume(during=during)
    assert bench.history.totals.tokens < 95 + 30, calls


# --- time


def waiting(count: int, seconds: float, clock: dict[str, float]) -> Bench:
    """A chain of nodes; after each the machine's clock is set back by `clock["back"]` seconds."""

    async def step(node: NodeContext) -> NodeResult:
        number = int(node.input or b"0") + 1
        await asyncio.sleep(seconds)
        clock["offset"] -= clock["back"]
        spawned = [Spawned(kind="step", name=f"s{number}", input=b"%d" % number)]
        return NodeResult(spawned=spawned if number < count else [])

    return Bench({"step": step}, Spawned(kind="step", name="s0"))


@pytest.mark.parametrize("back", [0.0, 5.0, 10.0, 3600.0, -3600.0])
def test_time_is_right_though_the_wall_clock_steps(back: float, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = {"offset": 0.0, "back": back}
    wall_us = SimClock.wall_us
    monkeypatch.setattr(SimClock, "wall_us", lambda self: wall_us(self) + int(clock["offset"] * 1e6))
    bench = waiting(3, 10.0, clock)
    bench.resume()
    assert bench.history.totals.wall_seconds == pytest.approx(30, abs=0.1)
    for record in bench.records:
        assert record.finished_us >= record.started_us


@pytest.mark.parametrize("back", [5.0, 3600.0])
def test_time_is_right_though_the_next_machine_has_another_clock(
    back: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = {"offset": 0.0, "back": 0.0}
    wall_us = SimClock.wall_us
    monkeypatch.setattr(SimClock, "wall_us", lambda self: wall_us(self) + int(clock["offset"] * 1e6))
    bench = waiting(4, 10.0, clock)

    async def during(executor: Executor) -> None:
        await asyncio.sleep(15)
        executor.pause("Terminated")

    bench.resume(during=during)
    clock["offset"] -= back
    bench.resume()
    assert bench.history.totals.wall_seconds == pytest.approx(40, abs=0.1)
