"""An agent that calls an agent: a graph below the call, in one log, out of one budget."""

from __future__ import annotations

from typing import Any

import pytest

from agentrun.agent.loop import DEPTH_MAX
from agentrun.proto import log_pb2
from agentrun.proto import transcript_pb2 as pb
from tests.support.agents import TOOLS, AgentBench, Crash, agent, call, manifest, tool


def ask(name: str, task: str = "do it") -> dict[str, Any]:
    return {"toolCalls": [call(name, task=task)]}


def answering(text: str, tokens: int = 0, **more: Any) -> dict[str, Any]:
    usage = {"usage": {"inputTokens": tokens}} if tokens else {}
    return {"text": text, **usage, **more}


def helper(*turns: dict[str, Any], tools: list[Any] | None = None) -> dict[str, Any]:
    return agent(turns, [tool(name) for name in TOOLS] if tools is None else tools)


def one_level(*turns: dict[str, Any], **spec: Any) -> AgentBench:
    inner = helper({"toolCalls": [call("echo", text="in")]}, answering("inner answer"))
    outer = turns or (ask("helper"), answering("outer answer"))
    return AgentBench(manifest(outer, [{"agent": "helper"}], agents={"helper": inner}, **spec))


def three_levels() -> AgentBench:
    agents = {
        "one": helper(ask("two", "task of two"), answering("1"), tools=[{"agent": "two"}]),
        "two": helper(ask("three", "task of three"), answering("2"), tools=[{"agent": "three"}]),
        "three": helper({"toolCalls": [call("echo", text="deep")]}, answering("3")),
    }
    return AgentBench(
        manifest([ask("one", "task of one"), answering("0")], [{"agent": "one"}], agents=agents)
    )


def test_its_steps_stand_below_the_call_and_its_answer_is_the_result() -> None:
    bench = one_level()
    assert bench.resume().reason == "Completed"
    assert bench.answer == "outer answer"
    below = [id_.removeprefix("call-1-0/") for id_ in bench.ids if id_.startswith("call-1-0/")]
    assert below == ["user-1", "turn-1", "tools-1", "call-1-0", "turn-2", "final"]
    told = bench.result("call-1-0")
    assert (told.name, told.content, told.outcome) == ("helper", "inner answer", pb.TOOL_OUTCOME_OK)
    bench.check_transcripts()


def test_it_is_told_its_task_and_nothing_of_its_caller() -> None:
    bench = one_level(ask("helper", "count the sheep"), answering("x"))
    bench.resume()
    inner = next(asked for asked in bench.asked if asked.scope)
    assert [m["content"] for m in inner.body["messages"]] == ["Be brief.", "count the sheep"]


def test_three_levels_and_their_keys() -> None:
    bench = three_levels()
    assert bench.resume().reason == "Completed"
    deep = "call-1-0/call-1-0/call-1-0/call-1-0"
    assert [seen.key for seen in bench.calls] == [f"{bench.run_id}:{deep}"] * 2
    bench.check_transcripts()


@pytest.mark.parametrize("append", range(2, 24, 2))
def test_three_levels_go_on_after_a_crash(append: int) -> None:
    whole, crashed = three_levels(), three_levels()
    whole.resume()
    if crashed.run(Crash(append=append)) is None:
        crashed.resume()
    assert crashed.shape() == whole.shape()
    assert crashed.answer == "0"
    crashed.check_transcripts()


def test_its_tokens_and_turns_count_once_also_after_a_replay() -> None:
    inner = helper(answering("", 1000), answering("b", 500))
    outer = [ask("helper"), answering("done", 20)]
    outer[0]["usage"] = {"inputTokens": 10}
    bench = AgentBench(manifest(outer, [{"agent": "helper"}], agents={"helper": inner}))
    bench.run(Crash(append=7))
    bench.resume()
    totals = bench.history.totals
    assert (totals.tokens, totals.turns) == (1530, 4)


def test_the_budget_stops_calls_anywhere_in_the_tree() -> None:
    inner = helper(
        *[{"toolCalls": [call("echo", text=str(k))], "usage": {"inputTokens": 100}} for k in range(20)]
    )
    outer = {"toolCalls": [call("helper", task=str(k)) for k in range(5)], "usage": {"inputTokens": 10}}
    bench = AgentBench(
        manifest(
            [outer, answering("done")],
            [{"agent": "helper"}],
            agents={"helper": inner},
            budget={"tokens": 1000},
        )
    )
    outcome = bench.resume()
    assert outcome.paused and outcome.reason == "BudgetExceeded"
    assert 1000 <= bench.history.totals.tokens <= 1100, "by one response at most"
    assert bench.starts("echo") >= 4, "and what was done is kept"
    assert bench.history.final is None


def test_one_that_fails_is_an_error_result_and_not_the_end() -> None:
    inner = helper({"error": {"status": 401, "message": "wrong key"}}, answering("never"))
    outer = [
        {"toolCalls": [call("helper", task="a"), call("echo", text="b")]},
        answering("without it"),
    ]
    tools = [{"agent": "helper"}, tool("echo")]
    bench = AgentBench(manifest(outer, tools, agents={"helper": inner}))
    assert bench.resume().reason == "Completed"
    told = bench.result("call-1-0")
    assert (
        told.outcome == pb.TOOL_OUTCOME_ERROR
        and "Unauthorized" in told.content
        and "wrong key" in told.content
    )
    assert bench.result("call-1-1").outcome == pb.TOOL_OUTCOME_OK
    bench.check_transcripts()


@pytest.mark.parametrize(
    ("turns", "reason"),
    [
        ([{"text": "no", "finishReason": "refusal"}], "Refused"),
        ([{"toolCalls": [call("echo", text="x")]}] * 9, "LoopDetected"),
        ([{"text": "half", "finishReason": "length"}] * 9, "OutputTruncated"),
    ],
)
def test_its_reason_is_told_to_its_caller(turns: list[dict[str, Any]], reason: str) -> None:
    bench = AgentBench(
        manifest([ask("helper"), answering("done")], [{"agent": "helper"}], agents={"helper": helper(*turns)})
    )
    assert bench.resume().reason == "Completed"
    assert f"Error: {reason}: " in bench.result("call-1-0").content


def test_a_failure_that_is_recorded_is_not_made_again_after_a_crash() -> None:
    inner = helper({"error": {"status": 401, "message": "wrong key", "times": 1}}, answering("never"))
    bench = AgentBench(
        manifest([ask("helper"), answering("done")], [{"agent": "helper"}], agents={"helper": inner})
    )
    assert bench.run(Crash(append=7)) is None
    assert bench.ids[-1] == "call-1-0/turn-1#1"
    bench.resume()
    assert sum(bool(asked.scope) for asked in bench.asked) == 1


def test_agents_that_call_each_other_for_ever_are_bounded() -> None:
    itself = agent([ask("helper"), answering("enough")], [{"agent": "helper"}])
    bench = AgentBench(
        manifest([ask("helper"), answering("done")], [{"agent": "helper"}], agents={"helper": itself})
    )
    assert bench.resume().reason == "Completed"
    deepest = max(id_.count("/") for id_ in bench.ids)
    assert deepest == DEPTH_MAX - 1
    told = [r for id_, r in bench.history.done.items() if r.kind == "tool_call" and id_.count("/") == deepest]
    assert "at most 8 deep" in pb.ToolResult.FromString(told[0].output.inline).content
    bench.check_transcripts()


@pytest.mark.parametrize(
    "arguments", ["{}", '{"task": ""}', '{"task": " "}', '{"task": 7}', '{"task": null}', '{"ta', "[]"]
)
def test_a_call_without_a_task_is_told_so(arguments: str) -> None:
    turn = {"toolCalls": [{"name": "helper", "arguments": arguments}]}
    bench = one_level(turn, answering("done"))
    assert bench.resume().reason == "Completed"
    assert bench.result("call-1-0").outcome == pb.TOOL_OUTCOME_NOT_RUN
    assert len(bench.asked) == 2


def test_a_task_of_any_text_can_be_recorded() -> None:
    turn = {"toolCalls": [{"name": "helper", "arguments": '{"task": "a\\u0000b\\ud800c"}'}]}
    bench = one_level(turn, answering("done"))
    assert bench.resume().reason == "Completed"
    assert bench.asked[1].body["messages"][1]["content"] == "a\ufffdb\ufffdc"


def test_its_retries_draw_from_the_runs_one_number() -> None:
    inner = helper({"error": {"status": 503, "times": 0}}, answering("never"))
    bench = AgentBench(
        manifest(
            [ask("helper"), answering("done")],
            [{"agent": "helper"}],
            agents={"helper": inner},
            budget={"retries": 3, "onExceeded": "Fail"},
        )
    )
    outcome = bench.resume()
    assert (outcome.outcome, outcome.reason) == (log_pb2.OUTCOME_FAILED, "BudgetExceeded")
    assert len(bench.asked) == 1 + 4
