"""Answers that are none, through the command: nothing of them becomes a turn, and what is told is plain."""

from __future__ import annotations

from agentrun.proto import transcript_pb2 as pb
from tests.support.chaos import lookup, manifest, records, shown, sound, sums
from tests.support.commands import Commands
from tests.support.stub_model import Reply, StubModel, completion

CALL = [("lookup", '{"topic": "moon", "seconds": 0}')]


def test_an_error_inside_a_good_answer_and_a_cut_call(agentrun: Commands, run_id: str) -> None:
    replies = [
        {"id": "gen-1", "error": {"message": "Upstream overloaded", "code": 502}},
        completion("I look.", calls=CALL, finish_reason="length"),
        completion("Again.", calls=CALL),
        completion("done"),
    ]
    with StubModel(replies, strict=True) as stub:
        what = manifest(model=stub.url, tools=[lookup()], budget={"retries": 2})
        ended = agentrun("run", agentrun.write(what), "--run-id", run_id)
        assert (ended.code, ended.out) == (0, "done\n"), ended
        assert "Upstream overloaded" in ended.err
        assert stub.count == 4 and not stub.refusals
    log = records(agentrun.dsn, run_id)
    assert log["turn-1#1"].error.retryable and not log["turn-1#1"].output.inline
    cut = pb.ToolResult.FromString(log["call-1-0"].output.inline)
    assert cut.outcome == pb.TOOL_OUTCOME_NOT_RUN
    assert agentrun.calls() == {"call-2-0": 1}, "a call that was cut is not made"
    assert sound(agentrun.dsn, run_id).totals.turns == 3
    assert shown(agentrun.show(run_id)["budget"]) == sums(agentrun.events(run_id))


def test_a_refusal_inside_a_good_answer_ends_the_run_at_once(agentrun: Commands, run_id: str) -> None:
    refusal = {"error": {"message": "this key is no good", "code": 401}}
    with StubModel([refusal]) as stub:
        ended = agentrun("run", agentrun.write(manifest(model=stub.url)), "--run-id", run_id)
        assert ended.code == 1 and stub.count == 1, ended
    assert "openai" in ended.err and "this key is no good" in ended.err and "Traceback" not in ended.err
    shows = agentrun.show(run_id)
    assert shows["phase"] == "Failed" and shows["answer"] is None
    assert "this key is no good" in shows["message"]
    assert sound(agentrun.dsn, run_id).totals.turns == 0


def test_a_page_instead_of_an_answer_is_no_turn_and_fails_at_once(agentrun: Commands, run_id: str) -> None:
    page = Reply(body="<html><body>Please log in</body></html>", headers={"content-type": "text/html"})
    with StubModel(lambda _: page) as stub:
        what = manifest(model=stub.url, budget={"retries": 1})
        ended = agentrun("run", agentrun.write(what), "--run-id", run_id)
        assert ended.code == 1 and stub.count == 1, ended
    assert "openai" in ended.err and "Please log in" in ended.err and "Traceback" not in ended.err
    assert sound(agentrun.dsn, run_id).totals.turns == 0
