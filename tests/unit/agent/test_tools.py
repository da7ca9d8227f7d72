"""A batch of tool calls: at once, one result a call, in the order of the calls, whatever becomes of each."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from agentrun.proto import transcript_pb2 as pb
from agentrun.spec import OnUnknown
from agentrun.tools import ToolError
from agentrun.tools.context import ToolContext
from tests.support import agents
from tests.support.agents import AgentBench, Crash, call, manifest, tool

BIG = 123456789012345678901234567890
DONE = {"text": "done"}


def bench(*calls: dict[str, Any], tools: list[Any] | None = None, **spec: Any) -> AgentBench:
    """A turn of these calls, then the answer."""
    return AgentBench(manifest([{"toolCalls": list(calls)}, DONE], tools, **spec))


def outcomes(run: AgentBench, count: int) -> list[int]:
    return [run.result(f"call-1-{index}").outcome for index in range(count)]


def test_forty_calls_at_once_take_the_time_of_one() -> None:
    run = bench(*(call("echo", text=str(i), seconds=5.0) for i in range(40)), concurrency=40)
    began = run.loop.time()
    run.resume()
    assert run.loop.time() - began < 6
    assert run.starts("echo") == 40


def test_results_stand_in_the_order_of_the_calls_whatever_finishes_first() -> None:
    run = bench(*(call("echo", text=str(i), seconds=float(9 - i)) for i in range(5)))
    run.resume()
    assert run.ids[3:8] == [f"call-1-{i}" for i in (4, 3, 2, 1, 0)]
    told = [m["content"] for m in run.asked[-1].body["messages"] if m["role"] == "tool"]
    assert told == [f"echo: {i}" for i in range(5)]
    run.check_transcripts()


def test_one_that_fails_one_that_hangs_and_one_that_is_not_there_cost_the_others_nothing() -> None:
    tools = [
        *(tool(name) for name in ("echo", "broken")),
        tool("hang", "unsafe", timeoutSeconds=20),
    ]
    calls = [call("echo", text="a"), call("broken"), call("hang"), call("nope"), call("echo", text="b")]
    run = bench(*calls, tools=tools)
    began = run.loop.time()
    assert run.resume().reason == "Completed"
    assert run.loop.time() - began < 22
    assert outcomes(run, 5) == [
        pb.TOOL_OUTCOME_OK,
        pb.TOOL_OUTCOME_ERROR,
        pb.TOOL_OUTCOME_TIMED_OUT,
        pb.TOOL_OUTCOME_NOT_RUN,
        pb.TOOL_OUTCOME_OK,
    ]
    assert "this tool is broken" in run.result("call-1-1").content
    assert "timed out after 20 s, may have taken effect" in run.result("call-1-2").content
    assert run.result("call-1-3").content.endswith(
        "no tool named 'nope'. Tools: echo, broken, hang, read_result."
    )
    run.check_transcripts()


def test_an_agent_without_tools_is_told_that_there_are_none() -> None:
    run = bench(call("nope"), tools=[])
    run.resume()
    assert "there are none" in run.result("call-1-0").content


@pytest.mark.parametrize(
    "arguments",
    ['{"text": ', "[1]", "null", '{"text": 1, "text": 2}', "{" * 5000, '{"text": "a", "more": 1}', "x\u2028"],
)
def test_arguments_that_cannot_be_are_an_error_that_the_model_is_told_of(arguments: str) -> None:
    run = AgentBench(manifest([{"toolCalls": [{"name": "echo", "arguments": arguments}]}, DONE]))
    assert run.resume().reason == "Completed"
    assert run.result("call-1-0").outcome == pb.TOOL_OUTCOME_ERROR
    assert run.starts("echo") == 0
    run.check_transcripts()


def test_whole_numbers_arrive_exactly_live_and_out_of_the_log() -> None:
    raw = '{"id": 9007199254740993, "big": %d}' % BIG  # noqa: UP031
    for crash in (None, Crash(append=3, after=True)):
        run = AgentBench(manifest([{"toolCalls": [{"name": "numbers", "arguments": raw}]}, DONE]))
        if crash:
            assert run.run(crash) is None
        run.resume()
        assert [seen.value for seen in run.calls] == [(9007199254740993, BIG)]
        sent = [m for m in run.asked[-1].body["messages"] if m.get("tool_calls")]
        assert sent[0]["tool_calls"][0]["function"]["arguments"] == raw, "byte for byte"
        assert json.loads(run.result("call-1-0").content) == {"id": 9007199254740993, "big": BIG}


def test_a_tool_that_answers_at_last_is_tried_again_under_the_same_key() -> None:
    run = bench(call("flaky", times=2), call("flaky", times=1))
    assert run.resume().reason == "Completed"
    assert outcomes(run, 2) == [pb.TOOL_OUTCOME_OK] * 2
    keys = [seen.key for seen in run.calls]
    assert sorted(keys.count(key) for key in set(keys)) == [2, 3], "equal over tries, unique over calls"
    assert run.history.totals.retries == 3
    assert "call-1-0#2" in run.ids


def test_a_tool_that_never_answers_is_told_after_three_tries() -> None:
    run = bench(call("flaky", times=99))
    assert run.resume().reason == "Completed"
    assert run.starts("flaky") == 3
    assert run.result("call-1-0").content == "Error: nobody answers \ufffd"


def test_a_tool_that_fails_when_no_retry_is_left_parks_the_run() -> None:
    run = bench(call("flaky", times=99), budget={"retries": 1})
    outcome = run.resume()
    assert outcome.paused and outcome.reason == "BudgetExceeded"
    assert run.starts("flaky") == 2


# --- unsafe calls


def unsafe(*, on_unknown: str = "Report") -> AgentBench:
    tools = [tool("send", "unsafe", function="echo", onUnknown=on_unknown)]
    return bench(call("send", text="mail"), tools=tools)


def test_an_unsafe_call_is_made_behind_a_durable_intent() -> None:
    run = unsafe()
    run.resume()
    assert run.ids[3:5] == ["call-1-0!intent", "call-1-0"]
    assert run.starts("echo") == 1


def test_a_crash_before_the_intent_repeats_nothing() -> None:
    run = unsafe()
    assert run.run(Crash(append=5)) is None
    assert run.starts("echo") == 0
    run.resume()
    assert run.starts("echo") == 1
    assert run.result("call-1-0").outcome == pb.TOOL_OUTCOME_OK


@pytest.mark.parametrize("append", [Crash(append=5, after=True), Crash(append=6)])
def test_a_call_whose_result_never_came_is_told_as_unknown_and_not_repeated(append: Crash) -> None:
    run = unsafe()
    assert run.run(append) is None
    before = run.starts("echo")
    assert run.resume().reason == "Completed"
    assert run.starts("echo") == before
    told = run.result("call-1-0")
    assert told.outcome == pb.TOOL_OUTCOME_UNKNOWN and "The outcome is unknown" in told.content
    run.check_transcripts()


def test_a_result_that_was_recorded_is_no_unknown_one() -> None:
    run = unsafe()
    assert run.run(Crash(append=6, after=True)) is None
    run.resume()
    assert run.starts("echo") == 1
    assert run.result("call-1-0").outcome == pb.TOOL_OUTCOME_OK


def test_with_retry_as_its_policy_an_unknown_call_is_made_again_out_of_the_budget() -> None:
    run = unsafe(on_unknown="Retry")
    for count in (1, 2):
        assert run.run(Crash(append=6 if count == 1 else 4)) is None
        assert run.starts("echo") == count
    assert run.resume().reason == "Completed"
    assert run.starts("echo") == 3
    assert len({seen.key for seen in run.calls}) == 1
    assert run.history.totals.retries == 2
    assert [id_ for id_ in run.ids if "call" in id_] == [
        "call-1-0!intent",
        "call-1-0#1",
        "call-1-0#2!intent",
        "call-1-0#2",
        "call-1-0#3!intent",
        "call-1-0",
    ]


@pytest.mark.parametrize("effect", ["read_only", "idempotent"])
def test_a_call_that_may_be_repeated_is_repeated_under_the_same_key(effect: str) -> None:
    run = bench(call("echo", text="a"), tools=[tool("echo", effect)])
    assert run.run(Crash(append=5)) is None
    run.resume()
    assert run.starts("echo") == 2
    assert len({seen.key for seen in run.calls}) == 1
    assert "call-1-0!intent" not in run.ids


@pytest.mark.parametrize(
    ("started", "on_unknown", "starts", "outcome"),
    [
        (True, "Report", 1, pb.TOOL_OUTCOME_UNKNOWN),
        (False, "Report", 3, pb.TOOL_OUTCOME_ERROR),
        (True, "Retry", 3, pb.TOOL_OUTCOME_UNKNOWN),
    ],
)
def test_an_unsafe_call_that_failed_on_its_way_is_repeated_only_where_it_is_safe(
    started: bool, on_unknown: str, starts: int, outcome: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cut(text: str, context: ToolContext) -> str:
        agents._enter("cut", context, text)
        raise ToolError("ConnectionLost", "the connection was lost", retryable=True, started=started)

    monkeypatch.setattr(agents, "echo", cut)
    run = unsafe(on_unknown=on_unknown)
    assert run.resume().reason == "Completed"
    assert run.starts("cut") == starts
    assert run.result("call-1-0").outcome == outcome
    assert OnUnknown(on_unknown)


def test_after_two_of_three_results_only_the_third_call_is_made_again() -> None:
    tools = [tool(name, "idempotent", function="echo") for name in ("mail", "row", "notify")]
    calls = [call(name, text=name, seconds=s) for name, s in (("mail", 0.1), ("row", 0.2), ("notify", 9.0))]
    run = bench(*calls, tools=tools)
    assert run.run(Crash(append=6, after=True)) is None
    assert run.ids[3:] == ["call-1-0", "call-1-1"]
    run.resume()
    values = [seen.value for seen in run.calls if seen.tool == "echo"]
    assert values == ["mail", "row", "notify", "notify"]
    run.check_transcripts()


def test_a_cancel_in_the_middle_of_a_batch_keeps_what_is_in_flight() -> None:
    run = bench(call("echo", text="a", seconds=10.0), call("echo", text="b", seconds=20.0), concurrency=1)

    async def cancel(executor: Any) -> None:
        await asyncio.sleep(5)
        executor.cancel()

    assert run.resume(during=cancel).reason == "Cancelled"
    assert run.ids[3:] == ["call-1-0", "end.1"]
    assert run.starts("echo") == 1
