"""Whatever a node returns or raises is recorded as a failure: no crash of the process, paid for once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentrun.graph.executor import Executor
from agentrun.graph.outcome import RETRY_AFTER_SECONDS_MAX
from agentrun.graph.types import NodeContext, NodeError, NodeResult, Spawned, Usage
from agentrun.log.blobs import TableBlobs
from agentrun.log.store import AttemptOutcome
from agentrun.proto import log_pb2 as pb
from tests.support.agents import Bench, Crash

NAN, INF = float("nan"), float("inf")


class Odd:
    """One node that was paid for, and what comes of it."""

    def __init__(self, result: Any) -> None:
        self.calls = 0
        self.result = result
        self.bench = Bench({"odd": self.odd, "leaf": self.leaf}, Spawned(kind="odd", name="odd"))

    async def odd(self, node: NodeContext) -> NodeResult:
        self.calls += 1
        if self.calls > 1 and isinstance(self.result, NodeError):
            return NodeResult()
        result = self.result
        if isinstance(result, BaseException):
            raise result
        return result  # type: ignore[no-any-return]

    async def leaf(self, node: NodeContext) -> NodeResult:
        return NodeResult()

    def check_failed(self, reason: str) -> pb.NodeRecord:
        outcome = self.bench.resume()
        assert (outcome.outcome, outcome.reason) == (pb.OUTCOME_FAILED, reason), outcome
        assert self.bench.ids == ["odd#1", "end.1"]
        assert self.calls == 1
        run = self.bench.database.runs[self.bench.run_id]
        assert run.row.ended and run.attempts[1].outcome is AttemptOutcome.FAILED
        return self.bench.record("odd#1")


def result(**more: Any) -> NodeResult:
    return NodeResult(**{"usage": Usage(tokens_in=7), **more})


USAGES: list[Any] = [
    Usage(tokens_in=-1, tokens_out=7),
    Usage(tokens_in=1.5, tokens_out=7),  # type: ignore[arg-type]
    Usage(tokens_in=NAN, tokens_out=7),  # type: ignore[arg-type]
    Usage(tokens_in=2**70, tokens_out=7),
    Usage(tokens_in="7", tokens_out=7),  # type: ignore[arg-type]
    None,
    {"tokens_in": 7},
]


@pytest.mark.parametrize("usage", USAGES, ids=repr)
def test_a_usage_that_is_none_fails_its_node(usage: Any) -> None:
    record = Odd(NodeResult(usage=usage)).check_failed("InvalidResult")
    assert record.cost.tokens_in == 0 and record.cost.estimated
    assert record.cost.tokens_out == (7 if isinstance(usage, Usage) else 0), "what can be counted is"


@pytest.mark.parametrize("usage", USAGES, ids=repr)
@pytest.mark.parametrize("retryable", [False, True])
def test_a_usage_that_is_none_in_an_error_is_an_estimate(usage: Any, retryable: bool) -> None:
    odd = Odd(NodeError("Bad", "x", retryable=retryable, usage=usage))
    assert odd.bench.resume().reason == ("Completed" if retryable else "Bad")
    cost = odd.bench.record("odd#1").cost
    assert cost.tokens_in == 0 and (cost.estimated or usage is None)
    assert odd.calls == 1 + retryable


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"output": "text"}, "InvalidResult"),
        ({"media_type": "\ud800"}, "InvalidResult"),
        ({"consumed": None}, "InvalidResult"),
        ({"consumed": ["\ud800"]}, "InvalidResult"),
        ({"final": "done"}, "InvalidResult"),
        ({"final": pb.Final()}, "InvalidResult"),
        ({"final": pb.Final(reason="NoOutcome")}, "InvalidResult"),
        ({"spawned": None}, "InvalidGraph"),
        ({"spawned": 7}, "InvalidGraph"),
        ({"spawned": ["leaf"]}, "InvalidGraph"),
        ({"spawned": [None]}, "InvalidGraph"),
        ({"spawned": [Spawned(kind="leaf", parents=None)]}, "InvalidGraph"),  # type: ignore[arg-type]
        ({"spawned": [Spawned(kind="leaf", name=7)]}, "InvalidGraph"),  # type: ignore[arg-type]
        ({"spawned": [Spawned(kind="leaf", media_type="\ud800")]}, "InvalidGraph"),
        ({"spawned": [Spawned(kind=["leaf"])]}, "InvalidGraph"),  # type: ignore[arg-type]
    ],
    ids=repr,
)
def test_a_result_with_an_odd_part_fails_its_node_and_its_cost_counts(more: Any, reason: str) -> None:
    assert Odd(result(**more)).check_failed(reason).cost.tokens_in == 7


def test_a_result_that_no_blob_store_takes_fails_its_node_and_its_cost_counts() -> None:
    odd = Odd(result(output=b"x" * 20_000))

    async def during(executor: Executor) -> None:
        executor.log._blobs = TableBlobs(odd.bench.stores[-1], bytes_max=10_000)

    bench = odd.bench
    assert bench.resume(during=during).reason == "OutputTooLarge"
    assert bench.ids == ["odd#1", "end.1"]
    assert bench.record("odd#1").cost.tokens_in == 7
    assert odd.calls == 1


def test_a_last_result_that_no_blob_store_takes_ends_the_run_all_the_same() -> None:
    odd = Odd(result(output=b"x" * 20_000, final=pb.Final(outcome=pb.OUTCOME_SUCCEEDED)))

    async def during(executor: Executor) -> None:
        executor.log._blobs = TableBlobs(odd.bench.stores[-1], bytes_max=10_000)

    assert odd.bench.resume(during=during).reason == "OutputTooLarge"
    assert odd.bench.ids == ["odd#1", "end.1"]


TEXTS = ["a\0b", "a\ud800b", "x" * 100_000, "", "é" * 1000, None, 7]


def check_texts(odd: Odd) -> None:
    """What the log holds can be shown: as JSON in a text column, at a bounded size."""
    final = odd.bench.history.final
    assert final is not None
    summary = odd.bench.database.runs[odd.bench.run_id].summary[2]
    for found in (final.final.reason, final.final.message, summary):
        assert "\0" not in found and "\\u0000" not in found
        assert len(found.encode()) <= 3000


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: repr(text)[:9])
def test_texts_of_an_end_are_made_safe(text: Any) -> None:
    final = pb.Final(outcome=pb.OUTCOME_SUCCEEDED)
    try:
        final.reason = final.message = text
    except (TypeError, ValueError):
        return  # protobuf refuses it where it is written
    odd = Odd(result(final=final))
    assert odd.bench.resume().outcome == pb.OUTCOME_SUCCEEDED
    check_texts(odd)


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: repr(text)[:9])
def test_an_error_of_any_text_is_recorded(text: Any) -> None:
    odd = Odd(NodeError(text, text, retryable=False))
    assert odd.bench.resume().outcome == pb.OUTCOME_FAILED
    assert odd.bench.ids == ["odd#1", "end.1"]
    check_texts(odd)


@pytest.mark.parametrize(
    ("after", "seconds"),
    [
        (INF, RETRY_AFTER_SECONDS_MAX),
        (1e20, RETRY_AFTER_SECONDS_MAX),
        (2**70, RETRY_AFTER_SECONDS_MAX),
        (10**400, 1.0),
        (-INF, 1.0),
        (-1e20, 1.0),
        (NAN, 1.0),
        ("30", 30.0),
        ("soon", 1.0),
        ([1], 1.0),
        (True, 1.0),
    ],
    ids=lambda value: repr(value)[:9],
)
def test_an_odd_retry_after_is_a_wait_within_the_bound(after: Any, seconds: float) -> None:
    odd = Odd(NodeError("Busy", "x", retryable=True, retry_after_seconds=after))

    async def during(executor: Executor) -> None:
        await asyncio.sleep(0.1)
        executor.pause("Terminated")

    assert odd.bench.resume(during=during).paused
    assert 0.7 * seconds <= odd.bench.record("odd#1").error.retry_in_ms / 1000 <= seconds
    if seconds < 100:
        assert odd.bench.resume().reason == "Completed"


@pytest.mark.parametrize("retryable", [None, "yes", 1, 0])
def test_an_error_that_is_no_truth_value_is_recorded(retryable: Any) -> None:
    odd = Odd(NodeError("Bad", "x", retryable=retryable))
    assert odd.bench.resume().reason == ("Completed" if retryable else "Bad")


def test_what_failed_is_not_paid_again_after_a_crash_behind_it() -> None:
    odd = Odd(NodeResult(usage=Usage(tokens_in=-1, tokens_out=7)))
    assert odd.bench.run(Crash(append=2, after=True)) is None
    assert odd.bench.resume().reason == "InvalidResult"
    assert odd.calls == 1
    assert odd.bench.history.totals.tokens == 7


def test_the_executor_survives_an_exception_without_a_text() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    Odd(Mute()).check_failed("NodeFailed")


def test_a_cancelled_error_of_a_handlers_own_is_its_failure() -> None:
    Odd(asyncio.CancelledError()).check_failed("NodeFailed")
