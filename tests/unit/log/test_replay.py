"""A log folds to one state, or is refused by run and seq."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest

from agentrun.log.errors import CorruptLog, NewerFormat
from agentrun.log.replay import FORMAT, Busy, History, decode
from agentrun.log.runlog import check_kinds
from agentrun.proto import log_pb2 as pb

RUN = UUID(int=5)


def record(id: str, kind: str = "work", *, epoch: int = 1, format: int = FORMAT, **more: Any) -> bytes:  # noqa: A002
    return pb.NodeRecord(id=id, kind=kind, epoch=epoch, format=format, **more).SerializeToString()


def folded(*rows: bytes) -> History:
    history = History(RUN)
    history.fold_rows(enumerate(rows, 1))
    return history


def spawn(id: str, kind: str = "work", **more: Any) -> pb.Spawn:  # noqa: A002
    return pb.Spawn(id=id, kind=kind, **more)


def failed(node: str, number: int, *, retryable: bool = True) -> bytes:
    error = pb.Error(reason="Flaky", message="again", retryable=retryable, retry_in_ms=5)
    cost = pb.Cost(tokens_in=3, retries=int(number > 1))
    return record(f"{node}#{number}", "try", parents=[node], error=error, cost=cost)


# --- what it folds to


def test_what_is_done_what_was_spawned_and_what_is_pending() -> None:
    history = folded(
        record("attempt-1.1", "attempt", attempt=1),
        record("a", spawned=[spawn("b"), spawn("c", parents=["b"])]),
        record("b", spawned=[spawn("d")]),
    )
    assert list(history.done) == ["a", "b"]
    assert [pending.id for pending in history.pending()] == ["c", "d"]
    assert (history.head, history.epoch, history.attempt) == (3, 1, 1)


def test_tries_intents_and_failures() -> None:
    history = folded(
        record("a", spawned=[spawn("b"), spawn("c")]),
        record("b!intent", "intent", parents=["b"]),
        record("c!intent", "intent", parents=["c"]),
        failed("b", 1),
        record("b#2!intent", "intent", parents=["b"]),
        failed("c", 1, retryable=False),
    )
    assert history.tries == {"b": 1, "c": 1}
    assert history.intents == {"b"}, "the try of c has answered its intent"
    assert list(history.failed) == ["c"]
    assert history.last_try["b"].error.retry_in_ms == 5
    assert [pending.id for pending in history.pending()] == ["b", "c"]
    assert history.totals.tokens == 6


def test_a_finished_call_has_no_open_intent() -> None:
    assert not folded(record("b!intent", "intent", parents=["b"]), record("b")).intents


def test_the_budget_is_the_sum_over_all_records() -> None:
    cost = pb.Cost(tokens_in=10, tokens_out=5, tokens_cached=4, tokens_reasoning=2, turns=1, retries=1)
    history = folded(
        record("attempt-2.1", "attempt", cost=pb.Cost(retries=2)),
        record("a", cost=cost),
        record("s/b", cost=cost),
        failed("c", 2),
        record("d", cost=pb.Cost(estimated=True)),
    )
    totals = history.totals
    assert (totals.tokens, totals.tokens_cached, totals.tokens_reasoning) == (33, 8, 4)
    assert (totals.turns, totals.retries, totals.estimated) == (2, 5, True)


def test_a_final_record_ends_and_a_reopened_one_opens_again() -> None:
    final = pb.Final(outcome=pb.OUTCOME_FAILED, reason="Broken")
    rows = [failed("a", 1, retryable=False), record("end.1", "finalize_run", final=final)]
    history = folded(*rows)
    assert history.final is not None and history.final_seq == 2 and history.failed
    history = folded(*rows, record("reopened.2", "reopened", epoch=2))
    assert history.final is None and history.final_seq == 0 and not history.failed
    assert history.epoch == 2 and history.tries == {"a": 1}


def test_ids_of_used_messages() -> None:
    assert folded(record("a", consumed=["m1", "m2"]), record("b", consumed=["m3"])).consumed == {
        "m1",
        "m2",
        "m3",
    }


def test_a_fold_goes_on_row_by_row() -> None:
    history = folded(record("a"))
    history.fold_rows([(2, record("b")), (3, record("c"))])
    assert history.head == 3


# --- what is refused


@pytest.mark.parametrize(
    ("rows", "seq", "why"),
    [
        ([(1, record("a")), (3, record("b"))], 3, "a hole: record 2 is missing"),
        ([(2, record("a"))], 2, "a hole: record 1 is missing"),
        ([(1, record("a")), (1, record("b"))], 1, "a hole: record 2 is missing"),
        ([(1, record("a")), (2, record("a"))], 2, "id 'a' stands twice"),
        ([(1, record("a", epoch=3)), (2, record("b", epoch=2))], 2, "epoch goes back from 3 to 2"),
        ([(1, b"")], 1, "the bytes are no record"),
        ([(1, record("a")[:-3])], 1, "the bytes are no record"),
        ([(1, b"\xff" * 20)], 1, "the bytes are no record"),
        ([(1, record("a", format=0))], 1, "the bytes are no record"),
        ([(1, record("", "work"))], 1, "the bytes are no record"),
        ([(1, record("a", ""))], 1, "the bytes are no record"),
        ([(1, record("a", format=2))], 1, "written by a newer build (format 2, this one knows 1)"),
    ],
)
def test_a_log_that_cannot_be_is_refused_by_run_and_seq(
    rows: list[tuple[int, bytes]], seq: int, why: str
) -> None:
    with pytest.raises(CorruptLog) as error:
        History(RUN).fold_rows(rows)
    assert (error.value.run_id, error.value.seq, error.value.why) == (RUN, seq, why)
    assert str(RUN) in str(error.value)


def test_what_a_newer_build_wrote_is_told_from_what_is_broken() -> None:
    with pytest.raises(NewerFormat):
        decode(RUN, 1, record("a", format=7))


@pytest.mark.parametrize("cut", range(1, 60))
def test_no_cut_record_passes_for_a_whole_one_that_says_something_else(cut: int) -> None:
    whole = record("node-1", "tool_call", parents=["p"], output=pb.Payload(inline=b"x" * 20), attempt=3)
    if cut >= len(whole):
        return
    try:
        found = decode(RUN, 1, whole[:cut])
    except CorruptLog:
        return
    assert found.id == "node-1" and found.kind, "cut at a field's border it may parse, under its own id"


def test_a_kind_that_is_not_known_is_refused_by_name() -> None:
    history = folded(record("a", spawned=[spawn("b", "other")]))
    with pytest.raises(CorruptLog, match="node 'b' is of the unknown kind 'other'"):
        check_kinds(history, frozenset({"work"}))
    with pytest.raises(CorruptLog, match="node 'a' is of the unknown kind 'work'"):
        check_kinds(history, frozenset({"other"}))
    check_kinds(history, frozenset({"work", "other"}))


def test_fields_of_a_later_build_are_kept() -> None:
    unknown = b"\xba\x3e\x05hello"  # field 999, five bytes
    data = record("a") + unknown
    found = decode(RUN, 1, data)
    assert found.id == "a"
    assert unknown in found.SerializeToString()


def test_a_record_without_what_was_added_later_still_replays() -> None:
    data = pb.NodeRecord(format=1, id="a", kind="work").SerializeToString()
    history = folded(data)
    assert history.totals.wall_seconds == 0 and history.epoch == 0


# --- time in which at least one node ran


def test_time_is_the_union_of_intervals_in_whatever_order_they_come() -> None:
    rng = random.Random(3)
    for _ in range(200):
        intervals = [(start, start + rng.randint(0, 12)) for start in (rng.randint(0, 60) for _ in range(12))]
        busy = Busy()
        for start, end in intervals:
            busy.add(start, end)
        assert busy.total_us == len({t for start, end in intervals for t in range(start, end)})


def test_intervals_that_touch_become_one() -> None:
    busy = Busy()
    for start in (20, 0, 10):
        busy.add(start, start + 10)
    assert (busy.total_us, busy._starts, busy._ends) == (30, [0], [30])


def test_an_empty_or_backward_interval_is_nothing() -> None:
    busy = Busy()
    busy.add(5, 5)
    busy.add(9, 3)
    assert busy.total_us == 0


def test_five_thousand_records_fold_in_no_time() -> None:
    rows = [
        record(f"n{i}", started_us=i * 10, finished_us=i * 10 + 5, cost=pb.Cost(wall_ms=0))
        for i in range(5000)
    ]
    assert folded(*rows).head == 5000
