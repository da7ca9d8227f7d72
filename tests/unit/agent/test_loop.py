"""The loop of turns: how it goes on, and the reason that it ends with."""

from __future__ import annotations

from typing import Any

import pytest

from agentrun.agent.steps import CUT_OFF, EMPTY, LOOP_WINDOW_TURNS, TRUNCATED_TURNS_MAX
from agentrun.proto import log_pb2
from agentrun.proto import transcript_pb2 as pb
from tests.support.agents import AgentBench, Crash, call, manifest

FAILED = log_pb2.OUTCOME_FAILED
NOT_RUN = pb.TOOL_OUTCOME_NOT_RUN


def agent(*turns: dict[str, Any], **spec: Any) -> AgentBench:
    return AgentBench(manifest(list(turns), **spec))


def said(bench: AgentBench) -> list[str]:
    """What the user side said, in the last request."""
    return [m["content"] for m in bench.asked[-1].body["messages"] if m["role"] == "user"]


def test_a_plain_answer() -> None:
    bench = agent({"text": "42"})
    outcome = bench.resume()
    assert (outcome.outcome, outcome.reason) == (log_pb2.OUTCOME_SUCCEEDED, "Completed")
    assert bench.ids == ["user-1", "turn-1", "final"]
    assert bench.answer == "42"
    assert bench.asked[0].body["messages"][:2] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Go on."},
    ]


def test_tools_are_told_in_the_order_of_the_manifest_in_every_turn() -> None:
    bench = agent({"toolCalls": [call("echo", text="a")]}, {"text": "done"})
    bench.resume()
    assert [asked.body["tools"] for asked in bench.asked] == [
        ["echo", "numbers", "broken", "flaky", "hang", "read_result"]
    ] * 2


def test_what_is_used_is_in_the_log() -> None:
    bench = agent(
        {"toolCalls": [call("echo", text="a")], "usage": {"inputTokens": 50, "outputTokens": 7}},
        {"text": "done", "usage": {"inputTokens": 80, "outputTokens": 3, "cachedTokens": 50}},
    )
    bench.resume()
    totals = bench.history.totals
    assert (totals.tokens_in, totals.tokens_out, totals.tokens_cached, totals.turns) == (130, 10, 50, 2)
    assert not totals.estimated


def test_a_model_that_says_nothing_of_its_usage_is_estimated_and_marked() -> None:
    bench = agent({"text": "done"})
    bench.resume()
    assert bench.history.totals.tokens > 0 and bench.history.totals.estimated


# --- a model that fails


def test_a_model_that_fails_is_asked_again_and_the_turn_is_counted_once() -> None:
    bench = agent(
        {"error": {"status": 429, "message": "slow down", "times": 2, "retryAfterSeconds": 30}},
        {"text": "done"},
    )
    began = bench.loop.time()
    assert bench.resume().reason == "Completed"
    assert bench.loop.time() - began >= 60
    assert bench.ids == ["user-1", "turn-1#1", "turn-1#2", "turn-1", "final"]
    assert bench.record("turn-1#1").error.reason == "RateLimited"
    totals = bench.history.totals
    assert (totals.turns, totals.retries) == (1, 2)
    assert [asked.key for asked in bench.asked] == ["turn-1#1", "turn-1#2", "turn-1#3"]


def test_turns_and_retries_bound_the_calls_of_a_run() -> None:
    bench = agent({"error": {"status": 503, "times": 0}}, {"text": "never"}, budget={"retries": 4})
    assert bench.resume().reason == "BudgetExceeded"
    assert len(bench.asked) == 5


@pytest.mark.parametrize(
    ("status", "reason"), [(401, "Unauthorized"), (403, "Forbidden"), (400, "BadRequest"), (404, "NotFound")]
)
def test_a_model_that_refuses_for_good_ends_the_run_with_that_reason(status: int, reason: str) -> None:
    bench = agent({"error": {"status": status, "message": "no such thing"}}, {"text": "never"})
    outcome = bench.resume()
    assert (outcome.outcome, outcome.reason) == (FAILED, reason)
    assert "no such thing" in outcome.message
    assert len(bench.asked) == 1


def test_an_error_within_a_good_answer_records_no_turn() -> None:
    bench = agent({"error": {"status": 200, "message": "upstream is overloaded"}}, {"text": "done"})
    bench.resume()
    assert not any(id_ == "turn-1" for id_ in bench.ids[:2])
    assert bench.record(bench.ids[1]).error.reason


# --- the output limit

CUT_CALLS = {
    "arguments that are cut": ['{"path":"a.md","content":"# Title\\nSec'],
    "arguments that are cut where they are valid": ['{"text": "short"}'],
    "two calls, the second cut": ['{"text": "whole"}', '{"text": "ha'],
}


@pytest.mark.parametrize("arguments", CUT_CALLS.values(), ids=CUT_CALLS.keys())
@pytest.mark.parametrize("word", ["length"])
def test_a_turn_that_the_limit_cut_runs_none_of_its_tools(arguments: list[str], word: str) -> None:
    calls = [{"name": "echo", "arguments": text} for text in arguments]
    bench = agent({"toolCalls": calls, "finishReason": word}, {"text": "done"})
    assert bench.resume().reason == "Completed"
    assert bench.starts("echo") == 0
    for index in range(len(arguments)):
        told = bench.result(f"call-1-{index}")
        assert told.outcome == NOT_RUN and "cut off by the output limit" in told.content
    turn = pb.AssistantTurn.FromString(bench.record("turn-1").output.inline)
    assert turn.truncated
    bench.check_transcripts()


def test_calls_that_are_cut_though_nobody_says_so_are_found_by_their_arguments() -> None:
    calls = [{"name": "echo", "arguments": '{"text": "ha'}]
    bench = agent({"toolCalls": calls, "finishReason": "tool_calls"}, {"text": "done"})
    assert bench.resume().reason == "Completed"
    assert bench.starts("echo") == 0
    assert bench.result("call-1-0").outcome == pb.TOOL_OUTCOME_ERROR
    assert "not valid JSON" in bench.result("call-1-0").content
    bench.check_transcripts()


@pytest.mark.parametrize(
    "entry",
    [
        {"text": "half of an ans", "finishReason": "length"},
        {"thinking": "hm", "finishReason": "length"},
        {"text": "", "finishReason": "length"},
        {"toolCalls": [{"name": "echo", "arguments": '{"te'}], "finishReason": "length"},
    ],
)
def test_the_same_cut_answer_for_ever_ends_after_a_few(entry: dict[str, Any]) -> None:
    turns = [{**entry, "usage": {"inputTokens": 10, "outputTokens": 5}}] * 20
    bench = agent(*turns)
    outcome = bench.resume()
    assert (outcome.outcome, outcome.reason) == (FAILED, "OutputTruncated")
    assert len(bench.asked) == TRUNCATED_TURNS_MAX
    assert bench.history.totals.tokens == 15 * TRUNCATED_TURNS_MAX
    assert bench.starts("echo") == 0
    bench.check_transcripts()


def test_a_cut_text_is_asked_for_again() -> None:
    bench = agent({"text": "half of", "finishReason": "length"}, {"text": "whole"})
    assert bench.resume().reason == "Completed"
    assert bench.answer == "whole"
    assert said(bench) == ["Go on.", CUT_OFF]
    bench.check_transcripts()


def test_a_whole_turn_between_cut_ones_starts_the_count_anew() -> None:
    cut = {"toolCalls": [call("echo", text="a")], "finishReason": "length"}
    whole = {"toolCalls": [call("echo", text="b")]}
    bench = agent(cut, cut, whole, cut, cut, {"text": "done"})
    assert bench.resume().reason == "Completed"
    assert bench.starts("echo") == 1


# --- empty answers, refusals, pauses

EMPTY_TURNS: list[dict[str, Any]] = [{"text": ""}, {"text": " \n\t"}, {"thinking": "hm"}, {}]


@pytest.mark.parametrize("empty", EMPTY_TURNS)
def test_an_empty_answer_is_asked_for_once_more(empty: dict[str, Any]) -> None:
    bench = agent(empty, {"text": "now"})
    assert bench.resume().reason == "Completed"
    assert bench.answer == "now"
    assert said(bench) == ["Go on.", EMPTY]
    bench.check_transcripts()


@pytest.mark.parametrize("empty", EMPTY_TURNS)
def test_a_second_empty_answer_ends_the_run_with_an_empty_result(empty: dict[str, Any]) -> None:
    bench = agent(empty, empty, {"text": "never"})
    assert bench.resume().reason == "Completed"
    assert bench.answer.strip() == ""
    assert len(bench.asked) == 2


def test_an_empty_answer_behind_tools_is_asked_for_once_more() -> None:
    bench = agent({"toolCalls": [call("echo", text="a")]}, {"text": ""}, {"text": "now"})
    bench.resume()
    assert bench.answer == "now"
    bench.check_transcripts()


@pytest.mark.parametrize(("word", "reason"), [("refusal", "Refused"), ("content_filter", "ContentFiltered")])
@pytest.mark.parametrize("entry", [{"text": "I cannot."}, {"text": ""}])
def test_a_refusal_ends_the_run_with_that_reason_and_is_not_tried_again(
    word: str, reason: str, entry: dict[str, Any]
) -> None:
    bench = agent({**entry, "finishReason": word}, {"text": "never"})
    outcome = bench.resume()
    assert (outcome.outcome, outcome.reason) == (FAILED, reason)
    assert len(bench.asked) == 1
    assert "turn-1" in bench.ids, "what was said and what it cost are kept"


def test_a_turn_that_pauses_goes_back_unchanged_and_goes_on() -> None:
    bench = agent({"text": "working", "finishReason": "pause"}, {"text": "done"})
    assert bench.resume().reason == "Completed"
    assert [m["role"] for m in bench.asked[1].body["messages"]] == ["system", "user", "assistant"]
    assert bench.asked[1].messages[-1][1] == bench.record("turn-1").output.inline


@pytest.mark.parametrize("word", ["stop", "other"])
def test_calls_are_made_whatever_the_reason_says(word: str) -> None:
    bench = agent({"toolCalls": [call("echo", text="a")], "finishReason": word}, {"text": "done"})
    bench.resume()
    assert bench.starts("echo") == 1


def test_a_turn_that_promises_calls_and_has_none_is_an_answer() -> None:
    bench = agent({"text": "done", "finishReason": "tool_calls"})
    assert bench.resume().reason == "Completed"
    assert bench.answer == "done"


# --- ids of the model's


@pytest.mark.parametrize("wire_id", ["call_0", "turn-2", "user-1", "x" * 300, "a b/c", "\N{SNOWMAN}", ""])
def test_ids_that_repeat_or_are_strange_change_nothing(wire_id: str) -> None:
    if len(wire_id) > 256:
        wire_id = wire_id[:256]
    turn = [{"toolCalls": [call("echo", wire_id, text=f"{k}-{i}") for i in range(2)]} for k in range(4)]
    bench = agent(*turn, {"text": "done"})
    assert bench.resume().reason == "Completed"
    assert bench.starts("echo") == 8
    told = [m["content"] for m in bench.asked[-1].body["messages"] if m["role"] == "tool"]
    assert told == [f"echo: {k}-{i}" for k in range(4) for i in range(2)]
    bench.check_transcripts()


def test_ids_that_are_invented_are_the_same_after_a_resume() -> None:
    turns = [{"toolCalls": [call("echo", "same", text=str(k))]} for k in range(3)]
    whole, crashed = agent(*turns, {"text": "done"}), agent(*turns, {"text": "done"})
    whole.resume()
    assert crashed.run(Crash(append=9)) is None
    crashed.resume()
    assert crashed.asked[-1].body == whole.asked[-1].body


# --- loops


def test_a_loop_ends_the_run_before_more_is_spent() -> None:
    bench = agent(*[{"toolCalls": [call("echo", text="again")]}] * 20)
    outcome = bench.resume()
    assert (outcome.outcome, outcome.reason) == (FAILED, "LoopDetected")
    assert len(bench.asked) == LOOP_WINDOW_TURNS
    assert bench.starts("echo") == LOOP_WINDOW_TURNS - 1, "the last of them is not made"


@pytest.mark.parametrize(
    "other",
    [
        {"toolCalls": [call("echo", text="other")]},
        {"toolCalls": [call("echo", text="again")] * 2},
        {"toolCalls": [call("broken", text="again")]},
    ],
)
def test_a_turn_that_asks_for_something_else_is_no_loop(other: dict[str, Any]) -> None:
    again = {"toolCalls": [call("echo", text="again")]}
    turns = [again] * (LOOP_WINDOW_TURNS - 1) + [other] + [again] * (LOOP_WINDOW_TURNS - 1)
    assert agent(*turns, {"text": "done"}).resume().reason == "Completed"


def test_a_loop_is_found_across_crashes() -> None:
    bench = agent(*[{"toolCalls": [call("echo", text="again")]}] * 20)
    for _ in range(3):
        bench.run(Crash(append=6))
    assert bench.resume().reason == "LoopDetected"
    assert bench.history.totals.turns == LOOP_WINDOW_TURNS


# --- budgets


def test_a_run_out_of_turns_is_parked_with_its_results_kept() -> None:
    turns = [{"toolCalls": [call("echo", text=str(k))]} for k in range(9)]
    bench = agent(*turns, {"text": "done"}, budget={"turns": 3})
    outcome = bench.resume()
    assert outcome.paused and outcome.reason == "BudgetExceeded"
    assert bench.starts("echo") == 3
    bench.budget["turns"] = 20
    assert bench.resume().reason == "Completed"
    assert bench.starts("echo") == 9
    bench.check_transcripts()


def test_an_answer_of_the_last_turn_that_the_budget_allows_still_ends_the_run() -> None:
    bench = agent({"text": "done", "usage": {"inputTokens": 500}}, budget={"tokens": 100, "turns": 1})
    assert bench.resume().reason == "Completed"
