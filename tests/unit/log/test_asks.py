"""Questions and answers as the log and the inbox hold them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from agentrun.log.asks import (
    Waiting,
    answer_row,
    answered,
    ask_id,
    is_answered,
    read_answer,
    shown_arguments,
    told,
    waiting,
)
from agentrun.log.replay import FORMAT, History
from agentrun.log.store import InboxRow
from agentrun.log.summary import Phase, summarize
from agentrun.proto import log_pb2 as pb

RUN = UUID("6ba7b810-9dad-41d1-80b4-00c04fd430c8")


def history(*records: pb.NodeRecord) -> History:
    found = History(RUN)
    for seq, record in enumerate(records, 1):
        record.format = FORMAT
        found.fold(seq, record)
    return found


def ask(node: str, id_: str = "") -> pb.NodeRecord:
    asked = pb.Ask(id=id_ or f"{node}-1", reason="ApprovalRequired", subject="pay", detail='{"n": 1}')
    return pb.NodeRecord(id=f"{node}!ask{id_}", kind="ask_person", parents=[node], ask=asked, finished_us=7)


def node(id_: str, *consumed: str, **more: Any) -> pb.NodeRecord:
    return pb.NodeRecord(id=id_, kind="tool_call", consumed=consumed, **more)


def ids(*records: pb.NodeRecord) -> list[str]:
    return [waits.id for waits in waiting(history(*records))]


def test_a_question_is_open_until_a_record_has_used_its_answer() -> None:
    assert ids(ask("a"), ask("b")) == ["a-1", "b-1"]
    assert ids(ask("a"), ask("b"), node("b", "b-1")) == ["a-1"]
    assert ids(ask("a"), pb.NodeRecord(id="a!intent", kind="intent", parents=["a"], consumed=["a-1"])) == []
    error = pb.Error(reason="Unavailable", retryable=True)
    assert ids(ask("a"), pb.NodeRecord(id="a#1", kind="try", error=error, consumed=["a-1"])) == []


def test_a_second_question_of_a_node_is_one_of_its_own() -> None:
    assert ids(ask("a"), ask("a", "a-2")) == ["a-1", "a-2"]


@pytest.mark.parametrize("done", ["a/b/c", "a/b", "a"])
def test_a_question_ends_with_its_node_and_with_each_node_around_it(done: str) -> None:
    assert ids(ask("a/b/c"), node(done)) == []


@pytest.mark.parametrize("other", ["a/b/cc", "a/bb", "aa", "b", "c"])
def test_and_not_with_another_one(other: str) -> None:
    assert ids(ask("a/b/c"), node(other)) == ["a/b/c-1"]


def test_nothing_waits_in_a_run_that_has_ended_and_all_again_where_it_goes_on() -> None:
    end = pb.NodeRecord(id="end.1", kind="finalize_run", final=pb.Final(outcome=pb.OUTCOME_FAILED))
    assert ids(ask("a"), end) == []
    assert ids(ask("a"), end, pb.NodeRecord(id="reopened.2", kind="reopened", epoch=2)) == ["a-1"]


def test_only_an_answer_to_an_open_question_lets_a_run_go_on() -> None:
    found = history(ask("a"), ask("b"), node("b", "b-1"))
    for id_, goes_on in (("a-1", True), ("b-1", False), ("a", False), ("", False)):
        assert is_answered(found, [InboxRow(id=id_, kind="approval", payload=b"")]) is goes_on


def test_ids_are_of_one_run_one_node_and_one_question() -> None:
    found = [ask_id(run, name, key) for run in (RUN, uuid4()) for name in ("a", "a/b") for key in ("", "1")]
    assert len(set(found)) == len(found)
    assert ask_id(RUN, "call-1-0", "") == ask_id(RUN, "call-1-0", "")
    assert ask_id(RUN, "call-1-0", "").startswith("call-1-0-")


def test_a_summary_lists_what_waits_within_a_bound() -> None:
    found = summarize(history(*(ask(f"n{k}") for k in range(30))), phase=Phase.RUNNING)["waiting"]
    assert found["count"] == 30 and len(found["calls"]) == 10
    assert found["calls"][0] == {
        "id": "n0-1",
        "tool": "pay",
        "reason": "ApprovalRequired",
        "arguments": '{"n": 1}',
    }


# --- answers


def test_an_answer_is_read_as_it_was_written() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    row = answer_row("a-1", approve=True, by="ann", reason="fine", arguments='{"a": 1}', via="desk")
    id_, answer, at_us = answered(InboxRow(id=row.id, kind=row.kind, payload=row.payload, created_at=at))
    assert (id_, answer.by, answer.reason, answer.arguments) == ("a-1", "ann (desk)", "fine", '{"a": 1}')
    assert answer.decision == pb.DECISION_APPROVE and at_us == round(at.timestamp() * 1e6)


def test_what_people_say_is_made_safe_and_bounded() -> None:
    answer = read_answer(answer_row("a", approve=False, by="a\0\ud800" * 500, reason="x" * 9000))
    assert len(answer.by) == 200 and len(answer.reason) == 1000 and "\0" not in answer.by


# --- what may be shown


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ("", "{}"),
        ("  ", "{}"),
        ('{"b":1,"a":[1.50,null]}', '{"b": 1, "a": [1.5, null]}'),
        ('{"text": "a\\nb\\u001b[31mc"}', '{"text": "a\\nb\\u001b[31mc"}'),
        ('{"text": "a\\u2028b\\ud800"}', '{"text": "a\ufffdb\ufffd"}'),
        (
            '{"api_key": "k", "apiKey": 7, "API-KEY": []}',
            '{"api_key": "***", "apiKey": "***", "API-KEY": "***"}',
        ),
        (
            '{"login": {"user": "u", "Password": "p"}, "list": [{"access_token": 1}]}',
            '{"login": {"user": "u", "Password": "***"}, "list": [{"access_token": "***"}]}',
        ),
        ('{"author": "x", "compass": 1, "passenger": 2}', '{"author": "x", "compass": 1, "passenger": 2}'),
        ('{"password": ', "13 bytes that are not JSON"),
        ("é", "2 bytes that are not JSON"),
        ("[" * 5000, "5000 bytes that are not JSON"),
        ("1" * 6000, "6000 bytes that are not JSON"),
    ],
)
def test_arguments_are_shown_without_what_looks_like_a_secret(arguments: str, shown: str) -> None:
    assert shown_arguments(arguments) == shown


def test_they_are_shortened() -> None:
    shown = shown_arguments(json.dumps({"text": "x" * 5000}))
    assert len(shown) == 300 and shown.endswith("…") and shown.startswith('{"text": "xxx')


def test_a_message_tells_what_waits_and_how_many() -> None:
    one = Waiting(id="a-1", node_id="a", reason="R", what="pay", detail="{}", since_us=0)
    assert told([]) == ""
    assert told([one]) == "1 call waits for an answer: a-1 pay({})"
    assert told([one, one]) == "2 calls wait for an answer: a-1 pay({}); a-1 pay({})"
    assert len(told([one] * 500).encode()) <= 1024
