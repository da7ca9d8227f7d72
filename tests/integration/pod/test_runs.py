"""A runner pod from its claim to its last words."""

from __future__ import annotations

import time
from hashlib import sha256

from agentrun.log.asks import answer_row, waiting
from agentrun.log.store import AttemptOutcome
from tests.integration.pod.pods import Runs, agent, call, settle, tool

ASKS_ONCE = [{"toolCalls": [call("nap", seconds=0.05)]}, {"text": "It is done."}]


def test_a_run_ends_well_and_its_summary_tells_the_answer(runs: Runs) -> None:
    run = runs.make(agent(*ASKS_ONCE, tools=[tool("nap")]))
    pod = run.pod()
    assert pod.ended() == 0
    assert pod.words() == {"exitCode": 0, "phase": "Succeeded", "reason": "Completed", "message": ""}
    summary = run.summary()
    assert summary["phase"] == "Succeeded"
    assert summary["result"] == {
        "preview": "It is done.",
        "sizeBytes": 11,
        "digest": "sha256:" + sha256(b"It is done.").hexdigest(),
    }
    assert summary["budget"]["turns"] == 2
    assert [row.outcome for row in run.attempts()] == [AttemptOutcome.SUCCEEDED]
    assert run.calls("nap") == 1


def test_each_line_says_what_happened_and_belongs_to_run_and_attempt(runs: Runs) -> None:
    run = runs.make(agent(*ASKS_ONCE, tools=[tool("nap")]))
    pod = run.pod()
    assert pod.ended() == 0
    lines = pod.lines()
    assert {(line["run"], line["attempt"]) for line in lines} == {(str(run.run_id), 1)}
    assert [line["event"] for line in lines[:2]] == ["starting", "claimed"]
    assert lines[-1]["event"] == "ended" and lines[-1]["exit_code"] == 0
    assert pod.events("launched", node="call-1-0") and pod.events("finished", node="call-1-0")


def test_text_lines_are_for_people(runs: Runs) -> None:
    run = runs.make(agent({"text": "Yes."}))
    pod = run.pod(AGENTRUN_LOG_FORMAT="")
    assert pod.ended() == 0
    assert " INFO    launched node=turn-1 kind=run_assistant_turn try=1\n" in pod.text
    assert pod.text.splitlines()[-1].endswith("ended phase=Succeeded reason=Completed exit_code=0")


def test_a_failed_run_is_exit_code_1(runs: Runs) -> None:
    run = runs.make(agent({"text": "Yes."}, budget={"turns": 1, "onExceeded": "Fail"}, concurrency=1))
    again = runs.make(agent({"error": {"status": 400, "message": "no such model"}}))
    first, second = run.pod(), again.pod()
    assert second.ended() == 1
    assert second.words()["phase"] == "Failed"
    assert [row.outcome for row in again.attempts()] == [AttemptOutcome.FAILED]
    assert first.ended() == 0


def test_a_suspended_run_launches_nothing(runs: Runs) -> None:
    run = runs.make(agent(*ASKS_ONCE, tools=[tool("nap")]), suspend=True)
    pod = run.pod()
    assert pod.ended() == 75
    assert pod.words()["reason"] == "Suspended"
    assert not pod.events("launched")


def test_the_budget_is_the_levels_and_raising_it_goes_on(runs: Runs) -> None:
    run = runs.make(agent(*ASKS_ONCE, tools=[tool("nap")]), budget='{"turns": 1}')
    pod = run.pod()
    assert pod.ended() == 75
    assert pod.words()["reason"] == "BudgetExceeded"
    assert run.summary()["phase"] == "Paused"


def test_a_call_that_waits_for_a_person_ends_the_pod_and_another_one_makes_it(runs: Runs) -> None:
    run = runs.make(agent(*ASKS_ONCE, tools=[tool("nap", requireApproval={"policy": "Always"})]))
    pod = run.pod()
    assert pod.ended() == 75
    (call_,) = waiting(run.history())
    assert pod.words()["reason"] == "ApprovalRequired" and call_.id in pod.words()["message"]
    assert pod.events("parked", node="call-1-0", id=call_.id)
    summary = run.summary()
    assert (summary["phase"], summary["reason"]) == ("Paused", "ApprovalRequired")
    assert summary["waiting"]["calls"][0]["id"] == call_.id
    (row,) = run.attempts()
    assert (row.outcome, row.reason) == (AttemptOutcome.PAUSED, "ApprovalRequired")
    assert run.calls("nap") == 0
    runs.ask(lambda store: store.post(run.run_id, answer_row(call_.id, approve=True, by="ann")))
    assert run.pod().ended() == 0
    assert run.calls("nap") == 1
    assert run.summary()["waiting"] == {"count": 0, "calls": []}


def test_of_an_attempt_that_is_not_the_newest_nothing_is_called(runs: Runs) -> None:
    run = runs.make(agent(*ASKS_ONCE, tools=[tool("nap")]))
    stale, newest = run.allocate(), run.allocate()
    assert run.pod(newest).ended() == 0
    calls, head = run.calls("nap"), run.history().head
    late = run.pod(stale)
    # The run has ended: nothing is left to do, and nothing is done.
    assert late.ended() == 0
    other = runs.make(agent(*ASKS_ONCE, tools=[tool("nap")]))
    stale, newest = other.allocate(), other.allocate()
    late = other.pod(stale)
    assert late.ended() == 76
    assert late.words()["reason"] == "Fenced"
    assert (run.calls("nap"), run.history().head) == (calls, head)
    assert other.calls("nap") == 0 and other.history().head == 0
    assert not late.events("claimed")


def test_a_pod_whose_run_is_taken_over_ends_and_calls_nothing_more(runs: Runs) -> None:
    turns = [{"toolCalls": [call("nap", seconds=5.0)]}, {"toolCalls": [call("add", a=1, b=2)]}, {"text": "3"}]
    run = runs.make(agent(*turns, tools=[tool("nap"), tool("add", "agentrun.tools.demo:add")]))
    first = run.pod()
    first.wait_for("launched", node="call-1-0")
    second = run.pod()
    second.wait_for("claimed")
    assert first.ended() == 76
    assert second.ended() == 0
    assert not [line for line in first.lines() if line["event"] == "launched" and line["node"] == "turn-2"]
    assert run.calls("add") == 1
    assert [row.outcome for row in run.attempts()] == [AttemptOutcome.DISRUPTED, AttemptOutcome.SUCCEEDED]


def test_a_run_that_nobody_knows_is_somebody_elses(runs: Runs) -> None:
    run = runs.make(agent({"text": "Yes."}))
    pod = run.pod(1, AGENTRUN_RUN_ID="0b0e6a52-6f0f-4a8e-9f53-0b7c5a3f5e11")
    assert pod.ended() == 76


def test_a_pod_waits_for_a_store_that_is_away(runs: Runs) -> None:
    run = runs.make(agent({"text": "Yes."}))
    pod = run.pod(AGENTRUN_DATABASE_URL="postgresql://somebody:hunter2hunter2@127.0.0.1:9/agentrun")
    pod.wait_for("waiting_for_store")
    time.sleep(0.3)
    assert pod.process.poll() is None
    pod.terminate()
    assert pod.ended(2) == 75
    assert "hunter2" not in pod.text
    settle(lambda: pod.words()["reason"] == "Terminated")
