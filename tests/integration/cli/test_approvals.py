"""`agentrun approvals`, `approve` and `deny`: each answer has one clear outcome, whenever it is given."""

from __future__ import annotations

import asyncio
import getpass
import json
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from agentrun.log.asks import answer_row
from agentrun.log.postgres import PostgresStore
from tests.integration.cli.conftest import ROOT, Agentrun, execute, manifest

EXAMPLE = str(ROOT / "examples/approval.yaml")


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    file = tmp_path / "calls"
    file.touch()
    monkeypatch.setenv("AGENTRUN_DEMO_COUNTER", str(file))
    return file


def refunds(counter: Path) -> list[Any]:
    """The arguments of each refund that was made."""
    lines = counter.read_text().splitlines()
    return [json.loads(line.split(" ", 3)[3]) for line in lines if line.startswith("start refund")]


@pytest.fixture
def parked(agentrun: Agentrun, counter: Path) -> str:
    """The run of the example, which waits."""
    run_id = str(uuid4())
    said = agentrun("run", EXAMPLE, "--run-id", run_id, "--quiet")
    assert said.code == 75
    (call,) = agentrun("approvals", run_id, "-o", "json").json["calls"]
    assert said.err.splitlines() == [
        "agentrun: paused (ApprovalRequired): 1 call waits for an answer: "
        f'{call["id"]} refund({{"order": "B-3", "amount": 250}})',
        f"agentrun: answer with: agentrun approve {run_id} ID (or deny)",
        f"agentrun: go on with: agentrun resume {run_id}",
    ]
    assert refunds(counter) == [{"order": "A-17", "amount": 40}]
    return run_id


def waiting(agentrun: Agentrun, run_id: str) -> str:
    (call,) = agentrun("approvals", run_id, "-o", "json").json["calls"]
    return str(call["id"])


def result(agentrun: Agentrun, run_id: str) -> dict[str, Any]:
    """Of the call that waited."""
    events = [json.loads(line) for line in agentrun("events", run_id, "-o", "json").out.splitlines()]
    value: dict[str, Any] = next(e for e in events if e["node"] == "call-1-1")["output"]["value"]
    return value


def test_what_waits_is_listed_with_all_of_its_arguments(agentrun: Agentrun, parked: str) -> None:
    said = agentrun("approvals", parked, "-o", "json").json
    assert said.keys() == {"runID", "name", "calls"} and said["runID"] == parked
    (call,) = said["calls"]
    assert call.keys() == {"id", "node", "tool", "reason", "arguments", "since", "answer"}
    assert (call["node"], call["tool"], call["reason"]) == ("call-1-1", "refund", "ApprovalRequired")
    assert call["arguments"] == {"order": "B-3", "amount": 250} and call["answer"] is None
    head, line = agentrun("approvals", parked[:8]).out.splitlines()
    assert head.split() == ["ID", "TOOL", "REASON", "SINCE", "ANSWER", "ARGUMENTS"]
    assert line.split()[:3] == [call["id"], "refund", "ApprovalRequired"]
    assert line.endswith('{"order":"B-3","amount":250}') or '"B-3"' in line
    events = [json.loads(line) for line in agentrun("events", parked, "-o", "json").out.splitlines()]
    (asked,) = [event for event in events if event["ask"]]
    assert asked["kind"] == "ask_person" and asked["ask"]["id"] == call["id"]
    assert agentrun("show", parked, "-o", "json").json["reason"] == "ApprovalRequired"


def test_an_approved_call_is_made_when_the_run_goes_on(
    agentrun: Agentrun, parked: str, counter: Path
) -> None:
    id_ = waiting(agentrun, parked)
    said = agentrun("approve", parked, id_, "--reason", "checked")
    assert (said.code, said.out) == (0, f"{id_} (refund) is approved\n")
    assert said.err == f"agentrun: nobody runs the run; go on with: agentrun resume {parked}\n"
    listed = agentrun("approvals", parked, "-o", "json").json["calls"]
    assert listed[0]["answer"]["decision"] == "Approve", "given, and not used yet"
    assert len(refunds(counter)) == 1
    assert agentrun("resume", parked, "--quiet").code == 0
    assert refunds(counter)[1:] == [{"order": "B-3", "amount": 250}]
    answered = result(agentrun, parked)["answered"]
    assert answered["id"] == id_ and answered["answer"]["decision"] == "DECISION_APPROVE"
    assert answered["answer"]["by"].startswith(f"{getpass.getuser()}@")
    assert answered["answer"]["reason"] == "checked" and int(answered["atUs"]) > 0
    said = agentrun("approvals", parked)
    assert (said.code, said.out) == (0, "")
    assert said.err == f"agentrun: no call of run {parked} waits for an answer\n"


def test_a_denied_call_is_not_made(agentrun: Agentrun, parked: str, counter: Path) -> None:
    assert agentrun("deny", parked, waiting(agentrun, parked), "--reason", "too much").code == 0
    assert agentrun("resume", parked, "--quiet").code == 0
    assert len(refunds(counter)) == 1
    told = result(agentrun, parked)
    assert told["outcome"] == "TOOL_OUTCOME_DENIED" and told["content"].endswith("too much")


def test_other_arguments_are_what_is_called(agentrun: Agentrun, parked: str, counter: Path) -> None:
    changed = '{"order": "B-3", "amount": 99}'
    assert agentrun("approve", parked, waiting(agentrun, parked), "--arguments", changed).code == 0
    assert agentrun("resume", parked, "--quiet").code == 0
    assert refunds(counter)[1:] == [{"order": "B-3", "amount": 99}]
    assert "A person changed the arguments" in result(agentrun, parked)["content"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "--arguments: the arguments are not valid JSON"),
        ("[1]", "--arguments: the arguments must be one JSON object"),
        ("", "--arguments: they are empty; {} stands for none"),
        ('{"a": "' + "x" * 70_000 + '"}', "--arguments: must be at most 65536 bytes"),
    ],
)
def test_arguments_that_are_none_are_refused_before_anything_is_said(
    agentrun: Agentrun, parked: str, text: str, why: str
) -> None:
    said = agentrun("approve", parked, waiting(agentrun, parked), "--arguments", text)
    assert said.code == 2 and said.err.startswith(f"agentrun: {why}") and said.err.count("\n") == 1
    assert agentrun("approvals", parked, "-o", "json").json["calls"][0]["answer"] is None


def test_the_same_answer_again_is_no_mistake_and_another_one_comes_too_late(
    agentrun: Agentrun, parked: str
) -> None:
    id_ = waiting(agentrun, parked)
    assert agentrun("approve", parked, id_).code == 0
    again = agentrun("approve", parked, id_)
    assert again.code == 0 and again.out.startswith(f"{id_} (refund) was approved already, by ")
    late = agentrun("deny", parked, id_)
    assert late.code == 1 and late.out == ""
    assert late.err.startswith(f"agentrun: {id_} (refund) was approved already, by ")
    assert late.err.endswith("; the first answer stands\n")
    other = agentrun("approve", parked, id_, "--arguments", "{}", "-o", "json")
    assert other.code == 1 and other.json["first"] is False and other.json["answer"]["arguments"] is None


def test_an_answer_behind_the_call_is_told_what_was_said_then(agentrun: Agentrun, parked: str) -> None:
    id_ = waiting(agentrun, parked)
    agentrun("deny", parked, id_)
    agentrun("resume", parked, "--quiet")
    assert agentrun("deny", parked, id_).code == 0
    assert agentrun("approve", parked, id_).code == 1


@pytest.mark.parametrize("id_", ["call-1-1", "call-1-1-00000000", "call-9-9-12345678", "turn-1", "x" * 500])
def test_an_id_that_is_none_is_told_with_what_waits(agentrun: Agentrun, parked: str, id_: str) -> None:
    right = waiting(agentrun, parked)
    said = agentrun("approve", parked, id_)
    assert said.code == 2 and said.err.count("\n") == 1
    assert said.err.endswith(f"waiting: {right}\n")


def test_an_ended_run_has_nothing_to_answer(agentrun: Agentrun, parked: str) -> None:
    id_ = waiting(agentrun, parked)
    assert agentrun("cancel", parked).code == 0
    said = agentrun("approve", parked, id_)
    assert said.code == 2
    assert said.err == f"agentrun: run {parked} has ended: nothing waits for an answer any more\n"
    assert agentrun("approvals", parked).out == ""


def test_a_run_that_never_asked_has_nothing_to_answer(agentrun: Agentrun, tmp_path: Path) -> None:
    run_id = str(uuid4())
    turns = [{"error": {"status": 503, "times": 0}}]
    agentrun("run", manifest(tmp_path, turns, budget={"retries": 0}), "--run-id", run_id, "--quiet")
    said = agentrun("deny", run_id, "call-1-0-12345678")
    assert (said.code, said.err) == (2, f"agentrun: no call of run {run_id} waits for an answer\n")


def test_rows_that_fit_no_question_are_of_no_effect(
    agentrun: Agentrun, parked: str, dsn: str, counter: Path
) -> None:
    async def post() -> None:
        store = PostgresStore.open(dsn)
        for id_ in ("call-1-1", "call-9-0-12345678", "turn-2"):
            assert await store.post(UUID(parked), answer_row(id_, approve=True, by="eve"))
        await store.close()

    asyncio.run(post())
    assert agentrun("resume", parked, "--quiet").code == 75
    assert len(refunds(counter)) == 1


def test_a_run_that_an_object_owns_is_answered_and_not_steered(
    agentrun: Agentrun, parked: str, dsn: str
) -> None:
    execute(dsn, "UPDATE run SET owner = 'agentrun/demo/pay/uid' WHERE run_id = $1::text::uuid", parked)
    said = agentrun("approve", parked, waiting(agentrun, parked))
    assert (said.code, said.err) == (0, "")
    assert agentrun("resume", parked).code == 2
