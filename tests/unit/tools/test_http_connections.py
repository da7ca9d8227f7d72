"""A call over HTTP has its deadline on the result, and knows whether it was sent."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from agentrun.tools import (
    Effect,
    HttpSession,
    ToolError,
)
from tests.support.stub_tools import Answer, StubTools, closed_port, wait_until
from tests.unit.tools.helpers import a_call, endpoint_tool, failing, run


@pytest.fixture
def stub() -> Iterator[StubTools]:
    with StubTools() as server:
        yield server


def test_a_refused_connection_was_never_started() -> None:
    error = failing(endpoint_tool(f"http://127.0.0.1:{closed_port()}/"))
    assert (error.reason, error.retryable, error.started) == ("ConnectionError", True, False)


def test_a_name_that_does_not_resolve_was_never_started() -> None:
    error = failing(endpoint_tool("http://no-such-host.invalid/"))
    assert (error.reason, error.retryable, error.started) == ("ConnectionError", True, False)


@pytest.mark.parametrize("then", ["cut", "cut_body"])
def test_a_lost_connection_fails_at_once_and_may_have_taken_effect(stub: StubTools, then: Any) -> None:
    stub.script("/a", Answer(then=then, body=b"x" * 100))
    started = time.monotonic()
    error = failing(endpoint_tool(stub.url("/a"), timeout_seconds=30))
    assert (error.reason, error.retryable, error.started) == ("ConnectionLost", True, True)
    assert time.monotonic() - started < 5
    assert stub.count("/a") == 1


@pytest.mark.parametrize("answer", [Answer(then="hang"), Answer(then="ping"), Answer(delay_seconds=30)])
def test_the_deadline_is_on_the_result_and_not_on_idle_bytes(stub: StubTools, answer: Answer) -> None:
    stub.script("/a", answer)
    started = time.monotonic()
    error = failing(endpoint_tool(stub.url("/a"), timeout_seconds=0.3))
    assert 0.3 <= time.monotonic() - started < 3
    assert error.message == "timed out after 0.3 s, may have taken effect"
    assert (error.reason, error.retryable, error.started) == ("Timeout", True, True)
    assert stub.count("/a") == 1


def test_a_late_answer_reaches_no_other_call(stub: StubTools) -> None:
    async def scenario() -> str:
        tool = endpoint_tool(stub.url("/a"), timeout_seconds=0.5)
        with pytest.raises(ToolError, match="timed out"):
            await tool.call(a_call('{"call": 1}'))
        await asyncio.sleep(0.4)  # the late answer is on its way
        output = await tool.call(a_call('{"call": 2}'))
        await tool.close()
        return output.content

    stub.script("/a", Answer(delay_seconds=0.7))
    assert json.loads(asyncio.run(scenario())) == {"call": 2}


def test_a_cancelled_call_ends_at_once(stub: StubTools) -> None:
    async def scenario() -> float:
        tool = endpoint_tool(stub.url("/a"))
        task = asyncio.create_task(tool.call(a_call()))
        assert await asyncio.to_thread(wait_until, lambda: stub.count("/a") == 1)
        started = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await tool.close()
        return time.monotonic() - started

    stub.script("/a", Answer(then="hang"))
    assert asyncio.run(scenario()) < 1


# before_send


def test_before_send_comes_after_the_connect_and_before_the_request(stub: StubTools) -> None:
    seen: list[tuple[bool, int]] = []

    async def before_send() -> None:
        connected = await asyncio.to_thread(wait_until, lambda: stub.connections == 1)
        seen.append((connected, len(stub.requests)))

    run(endpoint_tool(stub.url("/a")), before_send=before_send)
    assert seen == [(True, 0)]


@pytest.mark.parametrize("raised", [PermissionError("fenced"), TimeoutError("fenced")])
def test_a_process_that_may_not_call_sends_nothing(stub: StubTools, raised: Exception) -> None:
    async def before_send() -> None:
        raise raised

    with pytest.raises(type(raised), match="fenced"):
        run(endpoint_tool(stub.url("/a")), before_send=before_send)
    assert stub.requests == []


def test_the_time_that_before_send_takes_is_not_the_tools(stub: StubTools) -> None:
    async def before_send() -> None:
        await asyncio.sleep(0.6)

    assert run(endpoint_tool(stub.url("/a"), timeout_seconds=0.5), before_send=before_send).content == "{}"


# The session


def test_a_set_of_tools_shares_one_client_and_its_connections(stub: StubTools) -> None:
    async def scenario() -> None:
        session = HttpSession()
        tools = [endpoint_tool(stub.url(f"/{name}"), session=session) for name in "ab"]
        for tool in tools:
            await tool.call(a_call())
        for tool in tools:
            await tool.close()
        with pytest.raises(ToolError) as error:
            await tools[0].call(a_call())
        assert (error.value.reason, error.value.started) == ("Closed", False)

    asyncio.run(scenario())
    assert stub.connections == 1


def test_forty_calls_of_50_ms_run_at_once(stub: StubTools) -> None:
    async def scenario() -> float:
        tool = endpoint_tool(stub.url("/a"), effect=Effect.READ_ONLY)
        await tool.call(a_call())  # imports the client
        started = time.monotonic()
        await asyncio.gather(*(tool.call(a_call()) for _ in range(40)))
        await tool.close()
        return time.monotonic() - started

    stub.always("/a", Answer(delay_seconds=0.05))
    assert asyncio.run(scenario()) < 1  # one after the other they would take two seconds
    assert stub.count("/a") == 41
