"""A function of the image is called as its signature says, and its faults are outputs."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator

import pytest

from agentrun.tools import Effect, ToolError
from tests.support.stub_tools import wait_until
from tests.unit.tools import sample_functions
from tests.unit.tools.helpers import NUMBERS, a_call, run
from tests.unit.tools.helpers import python_tool as tool


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    sample_functions.calls.clear()
    sample_functions.release.clear()
    yield
    sample_functions.release.set()


@pytest.mark.parametrize(
    ("function", "arguments", "content"),
    [
        ("documented", '{"city": "Ulm"}', "Ulm 3 Unit.METRE None"),
        ("documented", '{"city": "Ulm", "days": 7, "unit": "ft", "schema": "b"}', "Ulm 7 Unit.FOOT b"),
        (
            "typed",
            '{"when": "2026-03-01", "where": {"street": "x"}, "tags": ["a"], "ratio": 1}',
            '["date","Address","set","float",null]',
        ),
        ("with_context", '{"text": "x"}', '["x","run-1","3","run-1/3"]'),
        ("with_optional_context", "", "3"),
        ("positional", '{"b": 5}', "[1,5,3]"),
        ("mutable_default", "{}", "[]"),
        ("opaque_default", "{}", "object"),
        ("gives_a_coroutine", '{"text": "x"}', "x"),
        ("adder", '{"n": 5}', "15"),
        ("Adder.twice", '{"n": 5}', "10"),
        ("add_five", '{"b": 2}', "7"),
    ],
)
def test_a_function_gets_what_its_annotations_say(function: str, arguments: str, content: str) -> None:
    output = run(tool(function), arguments)
    assert (output.content, output.is_error) == (content, False)


def test_numbers_come_as_the_model_wrote_them() -> None:
    output = run(tool("echo"), NUMBERS.replace('"e": 1e400, ', ""))
    assert output.content == (
        '{"id":9007199254740993,"n":1,"f":1.0,"neg":-0.0,'
        '"big":123456789012345678901234567890,"amount":"19.9","e":0.0}'
    )
    assert run(tool("raw"), f'{{"value": {NUMBERS.replace("1e400", "1e300")}}}').content == (
        '{"id":9007199254740993,"n":1,"f":1.0,"e":1e+300,"neg":-0.0,'
        '"big":123456789012345678901234567890,"amount":19.9}'
    )


def test_a_number_too_large_for_a_float_is_refused_and_never_infinite() -> None:
    output = run(tool("echo"), NUMBERS)
    assert output.is_error
    assert "1e400 is too large" in output.content


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("{}", "- city: required, and not given"),
        ('{"city": 3}', "- city: Input should be a valid string (given: 3)"),
        ('{"city": "Ulm", "days": 9}', "- days: Input should be less than or equal to 7 (given: 9)"),
        ('{"city": "Ulm", "day": 1}', "- day: there is no such argument"),
        ('{"city": "Ulm", "unit": "km"}', "- unit: Input should be 'm' or 'ft'"),
        ('{"town": "Ulm"}', "Arguments are: city (string, required), days (integer), unit (string)"),
        ('{"city": "Ulm"', "not valid JSON"),
        ('{"city": "Ulm", "city": "Bonn"}', '"city" stands more than once'),
        ('{"city": ' + "[" * 200 + "]" * 200 + "}", "nested deeper than 100"),
        ('{"city": [' + "1," * 9999 + "1]}", "…)"),
    ],
)
def test_bad_arguments_are_an_output_that_a_model_can_act_on(arguments: str, says: str) -> None:
    sent: list[int] = []

    async def before_send() -> None:
        sent.append(1)

    output = run(tool("documented"), arguments, before_send=before_send)
    assert output.is_error
    assert output.content.startswith("Invalid arguments: ")
    assert says in output.content
    assert "Traceback" not in output.content
    assert len(output.content) < 700
    assert sent == []


@pytest.mark.parametrize(
    ("function", "content"),
    [
        ("raises", "ValueError: no such order"),
        ("exits", "SystemExit: 3"),
        ("exits_in_the_loop", "SystemExit: 3"),
        ("cancels_itself", "CancelledError"),
        ("interrupts", "RuntimeError: KeyboardInterrupt in a tool"),
        ("interrupts_in_a_thread", "RuntimeError: KeyboardInterrupt in a tool's thread"),
        ("groups", "ValueError: one; TypeError: two"),
        ("gives_an_output", "half\ufffddone"),
    ],
)
def test_what_a_function_raises_is_an_output(function: str, content: str) -> None:
    output = run(tool(function))
    assert (output.content, output.is_error) == (content, True)


def test_the_files_of_an_output_stay_with_it() -> None:
    (kept,) = run(tool("gives_a_file")).attachments
    assert (kept.inline, kept.media_type) == (b"\xff", "image/png")


def test_a_tool_error_passes_through() -> None:
    with pytest.raises(ToolError) as error:
        run(tool("raises_tool_error"))
    assert (error.value.reason, error.value.started, error.value.retry_after_seconds) == ("Busy", False, 2)


@pytest.mark.parametrize(
    ("what", "content", "is_error"),
    [
        ("nan", '{"a":"NaN","b":"Infinity"}', False),
        ("bytes", '{"b":"..."}', False),
        ("time", "2026-03-01T00:00:00", False),
        ("keys", 'The call was made, but its result cannot be shown: two of its keys are "1" as text', True),
        (
            "deep",
            "The call was made, but its result cannot be shown: it is nested deeper than 100 levels",
            True,
        ),
        (
            "generator",
            "The call was made, but its result cannot be shown: it is an iterator; return a list",
            True,
        ),
        (
            "inner iterator",
            "The call was made, but its result cannot be shown: it is an iterator; return a list",
            True,
        ),
        ("empty", "", False),
        ("list", "[]", False),
        ("none", "", False),
    ],
)
def test_results_that_json_does_not_know_follow_a_rule(what: str, content: str, is_error: bool) -> None:
    output = run(tool("gives"), json.dumps({"what": what}))
    assert (output.content, output.is_error) == (content, is_error)


def test_nothing_is_called_when_this_process_may_not_call_any_more() -> None:
    async def fenced() -> None:
        raise PermissionError("fenced")

    with pytest.raises(PermissionError, match="fenced"):
        run(tool("blocks"), '{"seconds": 0}', before_send=fenced)
    assert sample_functions.calls == []


# Deadlines


@pytest.mark.parametrize(("function", "arguments"), [("blocks", '{"seconds": 60}'), ("stubborn", "{}")])
def test_a_call_past_its_deadline_is_left_behind(function: str, arguments: str) -> None:
    async def scenario() -> float:
        started = time.monotonic()
        with pytest.raises(ToolError) as error:
            await tool(function, timeout_seconds=0.05).call(a_call(arguments))
        took = time.monotonic() - started
        assert error.value.message == "timed out after 0.05 s, may have taken effect"
        assert (error.value.retryable, error.value.started) == (True, True)
        sample_functions.release.set()
        return took

    assert asyncio.run(scenario()) < 3


def test_a_coroutine_past_its_deadline_may_clean_up() -> None:
    with pytest.raises(ToolError, match="timed out"):
        run(tool("cleans_up", timeout_seconds=0.05))
    assert sample_functions.calls == ["cleaned up"]


def test_plain_functions_run_at_once_and_leave_the_loop_free() -> None:
    async def scenario() -> tuple[float, set[str]]:
        sleeper = tool("sleeps", effect=Effect.READ_ONLY)
        started = time.monotonic()
        outputs = await asyncio.gather(*(sleeper.call(a_call('{"seconds": 0.1}')) for _ in range(20)))
        return time.monotonic() - started, {output.content for output in outputs}

    took, threads = asyncio.run(scenario())
    assert took < 1
    assert str(threading.get_ident()) not in threads


def test_a_function_that_blocks_does_not_hold_up_a_cancellation() -> None:
    async def scenario() -> float:
        task = asyncio.create_task(tool("blocks").call(a_call('{"seconds": 120}')))
        await asyncio.to_thread(wait_until, lambda: bool(sample_functions.calls))
        started = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return time.monotonic() - started

    assert asyncio.run(scenario()) < 1


def test_a_call_that_is_cut_before_its_first_step_leaves_nothing_unawaited() -> None:
    async def scenario() -> None:
        task = asyncio.create_task(tool("cleans_up").call(a_call("{}")))
        await asyncio.sleep(0)  # the call has made a task of its own, and that has not begun
        (own,) = (task for task in asyncio.all_tasks() if task.get_name().startswith("tool "))
        own.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    gc.collect()  # a coroutine that nobody awaited warns now, and warnings are errors
    assert sample_functions.calls == []


def test_a_function_that_blocks_does_not_hold_up_the_interpreters_exit() -> None:
    script = textwrap.dedent(
        """
        import asyncio, time
        from agentrun.tools import ToolCall, ToolError, build_tool

        def blocks() -> None:
            time.sleep(120)

        async def main():
            short, long = (
                build_tool(name="blocks", python="__main__:blocks", timeout_seconds=seconds)
                for seconds in (0.1, 60)
            )
            call = ToolCall(arguments="", idempotency_key="k", run_id="r", node_id="n")
            waiting = asyncio.create_task(long.call(call))
            try:
                await short.call(call)
            except ToolError as error:
                print(error.reason)

        asyncio.run(main())
        """
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, "Timeout\n", "")
