"""What goes on around an executor changes nothing: looks, hints, projections, observers, levels."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from agentrun.graph.drive import HINTED_LOOK_SECONDS, Drive
from agentrun.graph.executor import Executor, Outcome
from agentrun.graph.types import NodeContext, NodeResult, Spawned, Usage
from agentrun.log.errors import StoreRefused, StoreUnavailable
from agentrun.log.memory import MemoryStore
from agentrun.log.store import AttemptOutcome, Levels
from agentrun.proto import log_pb2 as pb
from tests.support.agents import Bench, During

SIDE = ("look", "put_summary", "notify", "close_attempt")


class Side:
    """The side statements of a bench's store: how many, how long, and which were cut off."""

    def __init__(self, store: MemoryStore, *, seconds: float = 0.0, refuse: str = "") -> None:
        self.count: Counter[str] = Counter()
        self.cut_off: list[str] = []
        for name in SIDE:
            setattr(store, name, self._wrapped(name, getattr(store, name), seconds, name == refuse))

    def _wrapped(self, name: str, call: Callable[..., Any], seconds: float, refused: bool) -> Any:
        async def wrapped(*args: Any, **more: Any) -> Any:
            self.count[name] += 1
            try:
                await asyncio.sleep(seconds)
            except asyncio.CancelledError:
                self.cut_off.append(name)
                raise
            if refused:
                raise StoreRefused(f"the role lacks rights: {name}")
            return await call(*args, **more)

        return wrapped


def steps(count: int, seconds: float, **more: Any) -> Bench:
    async def step(node: NodeContext) -> NodeResult:
        await asyncio.sleep(seconds)
        number = int(node.input or b"0") + 1
        spawned = [Spawned(kind="step", name=f"s{number}", input=b"%d" % number)]
        return NodeResult(spawned=spawned if number < count else [], usage=Usage(tokens_in=10))

    return Bench({"step": step}, Spawned(kind="step", name="s0"), **more)


@pytest.mark.parametrize("seconds", [0.001, 0.05])
def test_hints_of_ones_own_make_no_look_for_each_step(seconds: float) -> None:
    bench = steps(300, seconds)
    sides: list[Side] = []

    async def during(executor: Executor) -> None:
        sides.append(Side(bench.stores[-1]))
        assert bench.drive is not None
        await MemoryStore(bench.database).listen(bench.drive.hint)

    began = bench.loop.time()
    assert bench.resume(during=during).reason == "Completed"
    took = bench.loop.time() - began
    assert 0 < sides[0].count["look"] <= took / HINTED_LOOK_SECONDS + 1
    assert 0 < sides[0].count["notify"] <= 301


def test_without_hints_it_looks_every_ten_seconds() -> None:
    bench = steps(10, 10.0)
    sides: list[Side] = []

    async def during(executor: Executor) -> None:
        sides.append(Side(bench.stores[-1]))

    bench.resume(during=during)
    assert 9 <= sides[0].count["look"] <= 10 + 10, "and a look of a node's own at each launch at most"


# --- observers


@pytest.mark.parametrize("event", ["launched", "finished", "failed", "stopping", ""])
def test_an_observer_that_fails_changes_nothing(event: str) -> None:
    def run(*, observed: bool) -> Bench:
        bench = steps(4, 1.0, budget={"tokens": 30})

        def observe(seen: str, node_id: str, fields: Mapping[str, Any]) -> None:
            if observed and event in ("", seen):
                raise KeyError("a bug in a display")

        bench._observe = observe  # type: ignore[assignment,method-assign]
        assert bench.resume().reason == "BudgetExceeded"
        return bench

    quiet, noisy = run(observed=False), run(observed=True)
    assert noisy.ids == quiet.ids == ["s0", "s1", "s2"]


# --- levels that cannot be read


UNREADABLE = [
    '{"tokens": "many"}',
    '{"tokens": [1]}',
    '{"turns": true}',
    '{"wallSeconds": "1h"}',
    '{"retries": "3"}',
    '{"retries": 1.5}',
    '{"tokens": NaN}',
    '{"wallSeconds": Infinity}',
    '{"tokens": -1}',
    '{"tokens": 1',
    "[1]",
    '"x"',
    "7",
    "[" * 100_000,
]


@pytest.mark.parametrize("text", UNREADABLE, ids=lambda text: text[:24])
def test_a_budget_that_cannot_be_read_is_left_aside_and_later_levels_are_obeyed(text: str) -> None:
    bench = steps(100, 10.0, budget={"tokens": 10_000})
    seen: list[object] = []

    async def during(executor: Executor) -> None:
        store = MemoryStore(bench.database)
        assert bench.drive is not None
        for generation, levels in enumerate(
            [Levels(budget=text), Levels(budget='{"tokens": 200}'), Levels(suspend=True)], start=1
        ):
            await asyncio.sleep(25)
            await store.set_levels(
                bench.run_id,
                Levels(generation=generation, budget=levels.budget, suspend=levels.suspend),
            )
            bench.drive.hint(None)
            await asyncio.sleep(1)
            seen.append(executor.budget.limits.tokens)

    assert bench.resume(during=during).reason == "Suspended"
    assert seen[:2] == [10_000, 200]
    assert bench.history.totals.tokens == 80


# --- projections


@pytest.mark.parametrize("refused", ["put_summary", "notify"])
def test_a_projection_that_is_refused_does_not_change_the_outcome(refused: str) -> None:
    bench = steps(5, 1.0)

    async def during(executor: Executor) -> None:
        Side(bench.stores[-1], refuse=refused)

    assert bench.resume(during=during).outcome == pb.OUTCOME_SUCCEEDED
    attempt = bench.database.runs[bench.run_id].attempts[1]
    assert attempt.outcome is AttemptOutcome.SUCCEEDED, "the attempt's outcome does not hang on it"


def test_a_look_that_is_refused_stops_the_process() -> None:
    bench = steps(5, 6.0)

    async def during(executor: Executor) -> None:
        Side(bench.stores[-1], refuse="look")

    with pytest.raises(StoreRefused):
        bench.run(during=during)


# --- the end


def endings() -> list[tuple[str, During, type[Exception] | None]]:
    async def nothing(executor: Executor) -> None:
        return None

    async def cancel(executor: Executor) -> None:
        await asyncio.sleep(3.3)
        executor.cancel(at_once=True)

    async def error(executor: Executor) -> None:
        await asyncio.sleep(3.3)
        executor.stop_for(StoreUnavailable("away"))

    return [("ends", nothing, None), ("cancelled", cancel, None), ("stopped", error, StoreUnavailable)]


@pytest.mark.parametrize("seconds", [0.0, 0.3, 0.9])
@pytest.mark.parametrize(("name", "during", "raised"), endings(), ids=lambda part: str(part)[:9])
def test_at_its_end_no_task_is_left_and_no_statement_was_cut_off(
    name: str, during: During, raised: type[Exception] | None, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = steps(40, 0.17)
    left: list[str] = []
    sides: list[Side] = []
    run = Drive.run

    async def watched(self: Drive) -> Outcome:
        before = asyncio.all_tasks(bench.loop)
        sides.append(Side(bench.stores[-1], seconds=seconds))
        await MemoryStore(bench.database).listen(self.hint)
        try:
            return await run(self)
        finally:
            left.extend(repr(task) for task in asyncio.all_tasks(bench.loop) - before)

    monkeypatch.setattr(Drive, "run", watched)
    if raised is None:
        bench.resume(during=during)
    else:
        with pytest.raises(raised):
            bench.run(during=during)
    beside = [task for task in left if "_during" not in task]
    assert not beside
    assert not sides[0].cut_off
