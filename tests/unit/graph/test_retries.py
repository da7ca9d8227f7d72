"""A failed try is recorded with its cost before the wait for the next, which survives the process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from agentrun.graph.executor import Executor, RetryWaits
from agentrun.graph.types import NodeContext, NodeError, NodeKind, NodeResult, Spawned, Usage
from agentrun.proto import log_pb2 as pb
from tests.support.agents import Bench, Crash


def failing(times: int, *, after: float | None = None, budget: dict[str, int] | None = None) -> Bench:
    """A node that fails `times` times, then ends well."""

    async def start(node: NodeContext) -> NodeResult:
        if node.try_number <= times:
            usage = Usage(tokens_in=10, tokens_out=1)
            raise NodeError(
                "Overloaded", "come back later", retryable=True, retry_after_seconds=after, usage=usage
            )
        return NodeResult(output=b"%d" % node.try_number)

    return Bench({"start": start}, budget=budget)


def test_tries_have_ids_of_their_own_and_their_cost_counts() -> None:
    bench = failing(3)
    assert bench.resume().reason == "Completed"
    assert bench.ids == ["start#1", "start#2", "start#3", "start", "end.1"]
    assert [bench.record(f"start#{n}").cost.retries for n in (1, 2, 3)] == [0, 1, 1]
    assert bench.record("start").cost.retries == 1
    error = bench.record("start#1").error
    assert (error.reason, error.message, error.retryable) == ("Overloaded", "come back later", True)
    totals = bench.history.totals
    assert (totals.tokens, totals.retries) == (33, 3)
    assert totals.wall_seconds == 0, "waiting is not running"


@pytest.mark.parametrize(("after", "least", "most"), [(None, 0.7, 1.1), (0.0, 0.7, 1.1), (37.5, 37.5, 38.0)])
def test_the_wait_is_never_shorter_than_retry_after(after: float | None, least: float, most: float) -> None:
    bench = failing(1, after=after)
    began = bench.loop.time()
    bench.resume()
    assert least <= bench.loop.time() - began <= most


def test_waits_double_up_to_a_bound() -> None:
    waits = RetryWaits(first=1.0, last=60.0)
    for number, top in [(1, 1), (2, 2), (3, 4), (7, 60), (1000, 60)]:
        assert all(0.75 * top <= waits.seconds(number, None) <= top for _ in range(20))
    assert waits.seconds(1, 500.0) == 500.0


@pytest.mark.parametrize(("asleep", "left"), [(0, 100), (40, 60), (500, 0)])
def test_after_a_resume_what_is_left_of_the_wait_is_waited(asleep: float, left: float) -> None:
    bench = failing(1, after=100.0)
    assert bench.run(Crash(append=2, after=True)) is None
    assert bench.ids == ["start#1"]
    bench.loop._time += asleep
    began = bench.loop.time()
    bench.resume()
    assert bench.loop.time() - began == pytest.approx(left, abs=1.0)
    assert bench.record("start").output.inline == b"2", "the tries go on counting"


def test_a_clock_that_stepped_back_makes_no_wait_longer() -> None:
    bench = failing(1, after=10.0)
    bench.run(Crash(append=2, after=True))
    bench.loop._time -= 900
    began = bench.loop.time()
    bench.resume()
    assert bench.loop.time() - began < 11


def test_a_drain_during_the_wait_is_immediate() -> None:
    bench = failing(1, after=1000.0)

    async def drain(executor: Executor) -> None:
        await asyncio.sleep(5)
        executor.pause("Terminated")

    began = bench.loop.time()
    assert bench.resume(during=drain).paused
    assert bench.loop.time() - began == pytest.approx(5, abs=0.5)
    assert bench.resume().reason == "Completed"
    assert bench.loop.time() - began == pytest.approx(1000, abs=5)


def test_a_cancel_during_the_wait_is_immediate() -> None:
    bench = failing(1, after=1000.0)

    async def cancel(executor: Executor) -> None:
        await asyncio.sleep(5)
        executor.cancel("enough")

    assert bench.resume(during=cancel).reason == "Cancelled"
    assert bench.ids == ["start#1", "end.1"]


def test_a_node_over_its_time_is_a_try_that_another_follows() -> None:
    async def start(node: NodeContext) -> NodeResult:
        await asyncio.sleep(100 if node.try_number == 1 else 1)
        return NodeResult()

    bench = Bench({"start": NodeKind(name="start", run=start, timeout_seconds=5)})
    assert bench.resume().reason == "Completed"
    error = bench.record("start#1").error
    assert (error.reason, error.retryable) == ("Timeout", True)
    assert error.message == "node start took longer than 5 s"
    assert bench.record("start#1").cost.wall_ms == 5000


def test_a_time_out_of_the_nodes_own_is_a_failure_with_its_name() -> None:
    async def start(node: NodeContext) -> NodeResult:
        raise TimeoutError("the database")

    outcome = Bench({"start": NodeKind(name="start", run=start, timeout_seconds=5)}).resume()
    assert (outcome.reason, outcome.message) == ("NodeFailed", "start: TimeoutError: the database")


def test_something_cancelled_within_a_node_is_a_failure_of_the_node() -> None:
    async def start(node: NodeContext) -> NodeResult:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.cancel()
        await future
        return NodeResult()

    outcome = Bench({"start": start}).resume()
    assert (outcome.outcome, outcome.reason) == (pb.OUTCOME_FAILED, "NodeFailed")


@pytest.mark.parametrize(
    "error", [RuntimeError("bug"), KeyError("k"), ExceptionGroup("g", [ValueError("v")]), OSError(28, "full")]
)
def test_an_exception_that_nobody_expected_fails_the_run_with_its_name(error: Exception) -> None:
    async def start(node: NodeContext) -> NodeResult:
        raise error

    bench = Bench({"start": start})
    outcome = bench.resume()
    assert outcome.reason == "NodeFailed" and type(error).__name__ in outcome.message
    assert bench.ids == ["start#1", "end.1"]


def test_a_message_of_any_text_and_length_can_be_recorded() -> None:
    async def start(node: NodeContext) -> NodeResult:
        raise NodeError("Odd", "\0\ud800" + "é" * 5000, retryable=False)

    bench = Bench({"start": start})
    bench.resume()
    assert len(bench.record("start#1").error.message.encode()) <= 1024
    assert len(bench.record("end.1").final.message.encode()) <= 1024


def siblings(fail: Callable[[NodeContext], NodeError]) -> Bench:
    async def start(node: NodeContext) -> NodeResult:
        slow = [Spawned(kind="slow", name=f"slow-{i}") for i in range(3)]
        return NodeResult(spawned=[Spawned(kind="bad", name="bad"), *slow])

    async def bad(node: NodeContext) -> NodeResult:
        await asyncio.sleep(1)
        raise fail(node)

    async def slow(node: NodeContext) -> NodeResult:
        await asyncio.sleep(60)
        return NodeResult(output=b"kept", spawned=[Spawned(kind="slow", name=node.name + "-next")])

    return Bench({"start": start, "bad": bad, "slow": slow})


def test_a_node_that_fails_for_good_loses_no_sibling_and_launches_nothing_more() -> None:
    bench = siblings(lambda node: NodeError("Broken", "for good", retryable=False))
    outcome = bench.resume()
    assert (outcome.outcome, outcome.reason, outcome.message) == (
        pb.OUTCOME_FAILED,
        "Broken",
        "bad: for good",
    )
    assert bench.ids[:2] == ["start", "bad#1"] and bench.ids[-1] == "end.1"
    assert sorted(bench.ids[2:-1]) == ["slow-0", "slow-1", "slow-2"]


def test_a_crash_between_the_failure_and_the_end_does_not_try_again() -> None:
    bench = siblings(lambda node: NodeError("Broken", "for good", retryable=False))
    assert bench.run(Crash(append=3, after=True)) is None
    bench.launched.clear()
    assert bench.resume().reason == "Broken"
    assert bench.launched == []


def test_a_failed_run_that_is_reopened_tries_again_and_goes_on() -> None:
    broken = {"now": True}

    def fail(node: NodeContext) -> NodeError:
        return NodeError("Broken", "for now", retryable=False)

    bench = siblings(fail)

    async def bad(node: NodeContext) -> NodeResult:
        if broken["now"]:
            raise fail(node)
        return NodeResult(output=b"mended")

    bench.handlers = {**bench.handlers, "bad": bad}
    assert bench.resume().reason == "Broken"
    bench.reopen()
    broken["now"] = False

    async def stop(executor: Executor) -> None:
        await asyncio.sleep(100)
        executor.cancel()

    assert bench.resume(during=stop).reason == "Cancelled"
    assert bench.record("bad").output.inline == b"mended"
    assert bench.launched.count("slow-0") == 1
