"""One ledger a run, out of its log: what is used, what is reserved, and what may still be launched."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from agentrun.graph.budget import Budget, Limits, limits_of
from agentrun.graph.executor import Executor
from agentrun.graph.types import LimitReached, NodeContext, NodeError, NodeKind, NodeResult, Spawned, Usage
from agentrun.log.memory import MemoryStore
from agentrun.log.replay import Totals
from agentrun.log.store import AttemptOutcome, Levels
from agentrun.proto import log_pb2 as pb
from tests.support.agents import Bench, Crash


def turns(count: int, budget: dict[str, Any], *, tokens: int = 100, seconds: float = 1.0) -> Bench:
    """A chain of turns of so many tokens and seconds each."""

    async def turn(node: NodeContext) -> NodeResult:
        await asyncio.sleep(seconds)
        number = int(node.input)
        more = [Spawned(kind="turn", name=f"t{number + 1}", input=b"%d" % (number + 1))]
        usage = Usage(tokens_in=tokens - 10, tokens_out=10, tokens_cached=5)
        return NodeResult(usage=usage, spawned=more if number < count else [])

    kind = NodeKind(name="turn", run=turn, turn=True)
    return Bench({"turn": kind}, Spawned(kind="turn", name="t1", input=b"1"), budget=budget)


TABLE = [
    ({"tokens": 250}, 3, "budget.tokens: 300 of 250 tokens are used"),
    ({"tokens": 300}, 3, "budget.tokens: 300 of 300 tokens are used"),
    ({"turns": 2}, 2, "budget.turns: 2 of 2 turns are used"),
    ({"wallSeconds": 4}, 4, "budget.wallSeconds: 4.0 of 4 seconds are used"),
]


@pytest.mark.parametrize(("budget", "done", "message"), TABLE)
@pytest.mark.parametrize("how", ["Pause", "Fail"])
def test_a_limit_stops_the_next_launch(budget: dict[str, Any], done: int, message: str, how: str) -> None:
    bench = turns(9, {**budget, "onExceeded": how})
    outcome = bench.resume()
    assert (outcome.reason, outcome.message) == ("BudgetExceeded", message)
    assert outcome.outcome == (pb.OUTCOME_UNSPECIFIED if how == "Pause" else pb.OUTCOME_FAILED)
    assert bench.ids == [f"t{i + 1}" for i in range(done)] + ["end.1"] * (how == "Fail")


@pytest.mark.parametrize(("budget", "done", "message"), TABLE)
def test_a_raised_limit_goes_on_from_there(budget: dict[str, Any], done: int, message: str) -> None:
    bench = turns(9, budget)
    bench.resume()
    assert bench.resume().message == message, "the same limit parks it again"
    assert len(bench.ids) == done
    raised = json.dumps({next(iter(budget)): 10_000})
    bench.loop.run(MemoryStore(bench.database).set_levels(bench.run_id, Levels(generation=1, budget=raised)))
    assert bench.resume().reason == "Completed"
    assert bench.launched == [f"t{i}" for i in range(1, 10)]


def test_a_limit_raised_while_it_runs_is_obeyed() -> None:
    bench = turns(9, {"turns": 3})

    async def raise_it(executor: Executor) -> None:
        await asyncio.sleep(2.5)
        executor.budget.set_limits(limits_of({"turns": 9}))

    assert bench.resume(during=raise_it).reason == "Completed"


def test_limits_in_the_manifests_form() -> None:
    assert limits_of({}) == Limits()
    assert limits_of({"tokens": None, "retries": 0, "onExceeded": "Fail"}) == Limits(retries=0, pause=False)
    assert limits_of({"tokens": 1, "wallSeconds": 2, "turns": 3}) == Limits(tokens=1, wall_seconds=2, turns=3)


# --- retries


def failing(budget: dict[str, Any], *, nodes: int = 1) -> Bench:
    async def start(node: NodeContext) -> NodeResult:
        return NodeResult(spawned=[Spawned(kind="bad", name=f"bad-{i}") for i in range(nodes)])

    async def bad(node: NodeContext) -> NodeResult:
        raise NodeError("Overloaded", "always", retryable=True, usage=Usage(tokens_in=10))

    return Bench({"start": start, "bad": bad}, budget=budget)


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_so_many_retries_are_one_try_more(retries: int) -> None:
    bench = failing({"retries": retries})
    outcome = bench.resume()
    assert outcome.paused and outcome.reason == "BudgetExceeded"
    assert f"{retries} of {retries} retries are used" in outcome.message
    assert "bad-0: Overloaded: always" in outcome.message
    assert bench.launched.count("bad-0") == retries + 1
    assert bench.history.totals.retries == retries
    assert bench.history.totals.tokens == 10 * (retries + 1)


def test_all_nodes_draw_from_one_number() -> None:
    bench = failing({"retries": 5, "onExceeded": "Fail"}, nodes=4)
    assert bench.resume().outcome == pb.OUTCOME_FAILED
    assert len(bench.launched) == 1 + 4 + 5


def test_a_resume_does_not_count_the_retries_anew() -> None:
    bench = failing({"retries": 4})
    for _ in range(3):
        assert bench.run(Crash(append=3, after=True)) is None
    assert bench.resume().reason == "BudgetExceeded"
    assert bench.launched.count("bad-0") == 5


@pytest.mark.parametrize(("retries", "launched"), [(2, 3), (1, 2), (0, 1)])
def test_a_crashed_process_draws_a_retry_and_a_disrupted_one_does_not(retries: int, launched: int) -> None:
    bench = turns(5, {"retries": retries})
    crash = Crash(append=3)
    assert bench.run(crash) is None
    for _ in range(2):
        assert bench.run(Crash(append=2), previous=AttemptOutcome.DISRUPTED) is None
    assert bench.history.totals.retries == 0
    for count in range(launched - 1):
        assert bench.run(Crash(append=2), previous=AttemptOutcome.CRASHED) is None
        assert bench.history.totals.retries == count + 1
    outcome = bench.resume(previous=AttemptOutcome.CRASHED)
    assert outcome.reason == "BudgetExceeded" and outcome.paused
    assert f"{retries + 1} of {retries} retries are used" in outcome.message
    assert bench.ids == ["t1"], "and t2 was never made whole"


def test_crashes_before_a_process_got_to_write_anything_are_counted_by_the_next() -> None:
    bench = turns(2, {"retries": 9})
    for _ in range(3):
        assert bench.run(Crash(append=1), previous=AttemptOutcome.CRASHED) is None
    assert bench.resume(previous=AttemptOutcome.CRASHED).reason == "Completed"
    assert bench.history.totals.retries == 3


# --- reservations


def fanned(width: int, budget: dict[str, Any], *, reserve: int, used: int) -> Bench:
    async def start(node: NodeContext) -> NodeResult:
        return NodeResult(spawned=[Spawned(kind="ask", name=f"ask-{i}") for i in range(width)])

    async def ask(node: NodeContext) -> NodeResult:
        await node.reserve(reserve)
        called.append(node.name)
        await asyncio.sleep(1)
        return NodeResult(usage=Usage(tokens_in=used))

    called: list[str] = []
    kinds = {"start": NodeKind(name="start", run=start, free=True), "ask": ask}
    bench = Bench(kinds, budget=budget, concurrency=64)
    bench.called = called  # type: ignore[attr-defined]
    return bench


def test_fifty_calls_at_once_with_room_for_five_overspend_by_one_response_at_most() -> None:
    bench = fanned(50, {"tokens": 550}, reserve=100, used=100)
    assert bench.resume().reason == "BudgetExceeded"
    assert len(bench.called) == 6  # type: ignore[attr-defined]
    assert bench.history.totals.tokens == 600


def test_calls_that_use_less_than_they_reserve_leave_room_for_others() -> None:
    bench = fanned(50, {"tokens": 1000}, reserve=200, used=10)
    began = bench.loop.time()
    assert bench.resume().reason == "Completed"
    assert bench.history.totals.tokens == 500
    assert bench.loop.time() - began < 20, "five at once, then fewer"


def test_a_call_that_can_never_fit_goes_alone() -> None:
    bench = fanned(3, {"tokens": 100}, reserve=1000, used=40)
    assert bench.resume().reason == "Completed"
    began = bench.loop.time()
    assert began >= 1003
    assert bench.history.totals.tokens == 120


def test_without_a_limit_nobody_waits() -> None:
    bench = fanned(50, {}, reserve=10**12, used=1)
    began = bench.loop.time()
    bench.resume()
    assert bench.loop.time() - began < 2


def test_a_wait_for_room_ends_when_the_limit_is_raised() -> None:
    bench = fanned(3, {"tokens": 100}, reserve=1000, used=40)

    async def raise_it(executor: Executor) -> None:
        await asyncio.sleep(0.5)
        executor.budget.set_limits(Limits(tokens=10**6))

    began = bench.loop.time()
    bench.resume(during=raise_it)
    assert bench.loop.time() - began == pytest.approx(1.5, abs=0.2)


def test_a_wait_for_room_ends_at_a_drain_and_is_no_try() -> None:
    bench = fanned(3, {"tokens": 100}, reserve=1000, used=40)

    async def drain(executor: Executor) -> None:
        await asyncio.sleep(0.5)
        executor.pause("Terminated")

    assert bench.resume(during=drain).paused
    assert len(bench.called) == 1  # type: ignore[attr-defined]
    assert len(bench.ids) == 2
    assert bench.history.totals.retries == 0


def test_a_reservation_does_not_keep_out_what_runs_below_its_node() -> None:
    async def parent(node: NodeContext) -> NodeResult:
        await node.reserve(1000)
        await node.subgraph(Spawned(kind="ask", name="ask"))
        return NodeResult()

    async def ask(node: NodeContext) -> NodeResult:
        await node.reserve(1000)
        return NodeResult(usage=Usage(tokens_in=10))

    bench = Bench({"parent": parent, "ask": ask}, Spawned(kind="parent"), budget={"tokens": 1500})
    assert bench.resume().reason == "Completed"


def test_a_reservation_is_given_back_when_its_try_fails() -> None:
    async def ask(node: NodeContext) -> NodeResult:
        await node.reserve(80)
        if node.try_number == 1:
            raise NodeError("Overloaded", "later", retryable=True)
        return NodeResult(usage=Usage(tokens_in=30))

    async def start(node: NodeContext) -> NodeResult:
        return NodeResult(spawned=[Spawned(kind="ask", name=f"a{i}") for i in range(3)])

    bench = Bench({"start": start, "ask": ask}, budget={"tokens": 100})
    assert bench.resume().reason == "Completed"
    assert bench.history.totals.tokens == 90


def test_a_node_that_ends_the_run_waits_for_nobody_who_waits_for_its_room() -> None:
    async def start(node: NodeContext) -> NodeResult:
        return NodeResult(spawned=[Spawned(kind="last", name="last"), Spawned(kind="ask", name="ask")])

    async def last(node: NodeContext) -> NodeResult:
        await node.reserve(80)
        await asyncio.sleep(1)
        return NodeResult(final=pb.Final(outcome=pb.OUTCOME_SUCCEEDED, reason="Early"))

    async def ask(node: NodeContext) -> NodeResult:
        await node.reserve(80)
        return NodeResult()

    bench = Bench({"start": start, "last": last, "ask": ask}, budget={"tokens": 100})
    assert bench.resume().reason == "Early"
    assert bench.ids == ["start", "last"]


def test_turns_in_flight_count_as_used() -> None:
    async def start(node: NodeContext) -> NodeResult:
        return NodeResult(spawned=[Spawned(kind="turn", name=f"t{i}") for i in range(9)])

    async def turn(node: NodeContext) -> NodeResult:
        await asyncio.sleep(1)
        return NodeResult()

    kinds = {"start": start, "turn": NodeKind(name="turn", run=turn, turn=True)}
    bench = Bench(kinds, budget={"turns": 4})
    assert bench.resume().message == "budget.turns: 4 of 4 turns are used"
    assert bench.history.totals.turns == 4


def test_free_nodes_run_whatever_is_used_up() -> None:
    async def spend(node: NodeContext) -> NodeResult:
        return NodeResult(usage=Usage(tokens_in=100), spawned=[Spawned(kind="end", name="end")])

    async def end(node: NodeContext) -> NodeResult:
        return NodeResult(final=pb.Final(outcome=pb.OUTCOME_SUCCEEDED, reason="Completed"))

    kinds = {"spend": spend, "end": NodeKind(name="end", run=end, free=True)}
    assert Bench(kinds, Spawned(kind="spend"), budget={"tokens": 10}).resume().reason == "Completed"


# --- time


def test_nodes_at_once_take_their_time_once() -> None:
    async def start(node: NodeContext) -> NodeResult:
        return NodeResult(spawned=[Spawned(kind="work", name=f"w{i}", input=b"%d" % i) for i in range(10)])

    async def work(node: NodeContext) -> NodeResult:
        await asyncio.sleep(10 + int(node.input))
        return NodeResult()

    bench = Bench({"start": start, "work": work})
    bench.resume()
    assert bench.history.totals.wall_seconds == pytest.approx(19, abs=0.1)


@pytest.mark.parametrize(("limit", "reason"), [(70, "Completed"), (55, "BudgetExceeded")])
def test_what_finished_beside_a_slow_node_is_not_counted_twice(limit: int, reason: str) -> None:
    async def start(node: NodeContext) -> NodeResult:
        return NodeResult(spawned=[Spawned(kind="slow", name="slow"), Spawned(kind="quick", input=b"5")])

    async def slow(node: NodeContext) -> NodeResult:
        await asyncio.sleep(60)
        return NodeResult(spawned=[Spawned(kind="quick", name="behind", input=b"0")])

    async def quick(node: NodeContext) -> NodeResult:
        await asyncio.sleep(10)
        left = int(node.input)
        return NodeResult(spawned=[Spawned(kind="quick", input=b"%d" % (left - 1))] if left else [])

    bench = Bench({"start": start, "slow": slow, "quick": quick}, budget={"wallSeconds": limit})
    assert bench.resume().reason == reason


def test_a_wait_for_a_retry_below_a_node_is_not_running() -> None:
    async def parent(node: NodeContext) -> NodeResult:
        await asyncio.sleep(3)
        await node.subgraph(Spawned(kind="flaky", name="flaky"))
        await asyncio.sleep(4)
        return NodeResult()

    async def flaky(node: NodeContext) -> NodeResult:
        await asyncio.sleep(5)
        if node.try_number == 1:
            raise NodeError("Overloaded", "later", retryable=True, retry_after_seconds=1000)
        return NodeResult()

    bench = Bench({"parent": parent, "flaky": flaky}, Spawned(kind="parent", name="p"))
    bench.resume()
    assert bench.record("p").cost.wall_ms == pytest.approx(7000, abs=50)
    assert bench.history.totals.wall_seconds == pytest.approx(17, abs=3.1)


def test_time_between_processes_is_free() -> None:
    bench = turns(4, {"wallSeconds": 5})
    bench.run(Crash(append=3))
    bench.loop._time += 10_000
    assert bench.resume().reason == "Completed"
    assert bench.history.totals.wall_seconds == pytest.approx(4, abs=0.1)


# --- the ledger by itself


def test_settling_twice_gives_nothing_back_twice() -> None:
    async def main() -> None:
        budget = Budget(Limits(turns=2), Totals())
        budget.begin("a", turn=True, retry=False, free=False, busy_seconds=0)
        budget.begin("b", turn=True, retry=False, free=False, busy_seconds=0)
        for _ in range(2):
            budget.recorded("a")
        budget.begin("c", turn=True, retry=False, free=False, busy_seconds=0)
        with pytest.raises(LimitReached):
            budget.begin("d", turn=True, retry=False, free=False, busy_seconds=0)

    asyncio.run(main())


def test_time_in_flight_counts_though_it_is_in_no_record() -> None:
    budget = Budget(Limits(wall_seconds=10), Totals())
    assert budget.unrecorded_seconds([(0, 4_000_000), (1_000_000, 4_000_000)]) == 4
    budget.begin("a", turn=False, retry=False, free=False, busy_seconds=4)
    with pytest.raises(LimitReached, match=r"12\.0 of 10 seconds"):
        budget.begin("b", turn=False, retry=False, free=False, busy_seconds=12)
