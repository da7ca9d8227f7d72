"""Calls over HTTP whose answers are late, odd, cut off or never there."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from agentrun.tools import ToolError
from agentrun.tools.mcp.exchange import PROGRESS_TIMES_MAX
from agentrun.tools.mcp.http import RESUMES_MAX
from tests.support.mcp_calls import calling, nothing, run, server_of, until
from tests.support.stub_mcp import Behaviour, Incoming, StubMcp, cut, hang, result, status, text, tool
from tests.support.stub_tools import wait_until


def failing(stub: StubMcp, *behaviours: Behaviour, seconds: float = 5.0) -> tuple[ToolError, float]:
    """The error of one call, and how long it took."""
    server = server_of(stub)

    async def main() -> tuple[ToolError, float]:
        await server.list_tools(nothing)
        stub.next("tools/call", *behaviours)
        began = time.monotonic()
        with pytest.raises(ToolError) as caught:
            await calling(server, seconds=seconds)
        took = time.monotonic() - began
        if caught.value.reason == "Timeout":
            await until(lambda: stub.of("notifications/cancelled"))
        return caught.value, took

    found: tuple[ToolError, float] = run(main(), server)
    return found


def pinging(incoming: Incoming) -> None:
    incoming.begin()
    while not incoming.stub.stopping.wait(0.02) and incoming.raw(": ping\n\n"):
        pass


def blank_lines(incoming: Incoming) -> None:
    incoming.begin()
    while not incoming.stub.stopping.wait(0.02) and incoming.raw("event: message\ndata: \n\n"):
        pass


def logging_messages(incoming: Incoming) -> None:
    incoming.begin()
    note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}
    while not incoming.stub.stopping.wait(0.02) and incoming.event(note):
        pass


@pytest.mark.parametrize("behaviour", [hang, pinging, blank_lines, logging_messages])
def test_the_deadline_is_on_the_result_and_not_on_bytes(json_stub: StubMcp, behaviour: Behaviour) -> None:
    error, took = failing(json_stub, behaviour, seconds=0.5)
    assert (error.reason, error.retryable, error.started) == ("Timeout", True, True)
    assert error.message == "timed out after 0.5 s, may have taken effect"
    assert took < 3.0
    told = json_stub.of("notifications/cancelled")[0]["params"]["requestId"]
    assert told == json_stub.of("tools/call")[0]["id"]
    assert len(json_stub.calls) == 1


def half_a_body(incoming: Incoming) -> None:
    incoming.begin()
    incoming.raw('data: {"jsonrpc": "2.0", "id"')
    incoming.end()


def an_empty_stream(incoming: Incoming) -> None:
    incoming.begin()
    incoming.end()


@pytest.mark.parametrize("behaviour", [cut, half_a_body, an_empty_stream])
def test_a_connection_that_is_lost_fails_the_call_at_once(json_stub: StubMcp, behaviour: Behaviour) -> None:
    error, took = failing(json_stub, behaviour, seconds=60.0)
    assert (error.reason, error.retryable, error.started) == ("ConnectionLost", True, True)
    assert took < 5.0
    assert len(json_stub.calls) == 1


def test_a_call_that_is_lost_does_not_touch_its_siblings(json_stub: StubMcp) -> None:
    def slow(incoming: Incoming) -> None:
        assert wait_until(lambda: len(json_stub.calls) == 2)
        time.sleep(0.3)  # its sibling has lost its connection by then
        incoming.reply(text("late and well"))

    server = server_of(json_stub)

    async def main() -> list[Any]:
        await server.list_tools(nothing)
        json_stub.next("tools/call", slow, status(404))  # the session is lost, too
        first = asyncio.ensure_future(calling(server))
        await until(lambda: json_stub.calls)
        json_stub.next("tools/call", cut)
        second = calling(server)
        return list(await asyncio.gather(first, second, return_exceptions=True))

    first, second = run(main(), server)
    assert first.content == "late and well"
    assert isinstance(second, ToolError)


def with_another_id(incoming: Incoming) -> None:
    incoming.answer({"result": text("of another")}, id=4711)


def test_the_answer_to_another_request_is_no_answer(stub: StubMcp) -> None:
    error, _ = failing(stub, with_another_id)
    assert error.reason == ("ConnectionLost" if stub.streams else "InvalidResponse")
    assert (error.started, len(stub.calls)) == (True, 1)


def test_in_a_stream_the_answer_is_found_among_others(json_stub: StubMcp) -> None:
    def mixed(incoming: Incoming) -> None:
        incoming.begin()
        incoming.event({"jsonrpc": "2.0", "id": 4711, "result": text("of another")})
        incoming.raw("data: not a message\n\n")
        incoming.event({"jsonrpc": "2.0", "id": str(incoming.id), "result": text("ours")})
        incoming.end()

    json_stub.next("tools/call", mixed)
    server = server_of(json_stub)
    assert run(calling(server), server).content == "ours"


ODD_BODIES = {
    "no JSON": b"<html>hello</html>",
    "a list": b"[]",
    "no result": b'{"jsonrpc": "2.0", "id": ID}',
    "a result of another kind": b'{"jsonrpc": "2.0", "id": ID, "result": "yes"}',
    "nothing": b"",
}


@pytest.mark.parametrize("name", ODD_BODIES)
def test_a_body_that_is_no_answer_is_said_to_be_none(json_stub: StubMcp, name: str) -> None:
    def odd(incoming: Incoming) -> None:
        incoming.send(200, ODD_BODIES[name].replace(b"ID", str(incoming.id).encode()), "application/json")

    error, _ = failing(json_stub, odd)
    assert (error.reason, error.retryable, error.started) == ("InvalidResponse", False, True)


STATUSES = [
    (401, "Refused", False, False),
    (403, "Refused", False, False),
    (405, "Refused", False, False),
    (413, "Refused", False, False),
    (429, "RateLimited", True, False),
    (500, "ServerError", True, True),
    (502, "BadGateway", True, True),
    (504, "ServerError", True, True),
    (400, "Refused", False, True),
    (302, "Refused", False, False),
    (202, "InvalidResponse", False, True),
]


@pytest.mark.parametrize(("code", "reason", "retryable", "started"), STATUSES)
def test_what_a_status_says_of_a_call(
    json_stub: StubMcp, code: int, reason: str, retryable: bool, started: bool
) -> None:
    error, _ = failing(json_stub, status(code, b"because"))
    assert (error.reason, error.retryable, error.started) == (reason, retryable, started)
    assert str(code) in error.message
    assert len(json_stub.calls) == 1


@pytest.mark.parametrize("code", [200, 400, 404, 500])
def test_an_error_of_the_protocol_is_told_to_the_model(json_stub: StubMcp, code: int) -> None:
    def refusing(incoming: Incoming) -> None:
        message = {"jsonrpc": "2.0", "id": incoming.id, "error": {"code": -32602, "message": "Unknown tool"}}
        incoming.send(code, json.dumps(message).encode(), "application/json")

    json_stub.stateless = True
    json_stub.next("tools/call", refusing)
    server = server_of(json_stub)
    output = run(calling(server), server)
    assert (output.content, output.is_error) == ("Error -32602: Unknown tool", True)


# --- progress


def test_progress_gives_a_call_its_time_anew(json_stub: StubMcp) -> None:
    def working(incoming: Incoming) -> None:
        incoming.begin()
        for _ in range(8):
            time.sleep(0.15)
            incoming.progress()
        incoming.event(incoming.result_message(text("done")))
        incoming.end()

    json_stub.next("tools/call", working)
    server = server_of(json_stub)
    assert run(calling(server, seconds=0.6), server).content == "done"


def test_progress_for_ever_ends_at_the_hard_cap(json_stub: StubMcp) -> None:
    def for_ever(incoming: Incoming) -> None:
        incoming.begin()
        while not incoming.stub.stopping.wait(0.02) and incoming.progress():
            pass

    error, took = failing(json_stub, for_ever, seconds=0.1)
    assert error.reason == "Timeout"
    assert 0.1 * PROGRESS_TIMES_MAX <= took < 0.1 * PROGRESS_TIMES_MAX + 2.0


def test_progress_of_another_request_gives_nothing(json_stub: StubMcp) -> None:
    def of_another(incoming: Incoming) -> None:
        incoming.begin()
        params = {"progressToken": 4711, "progress": 1}
        note = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
        while not incoming.stub.stopping.wait(0.02) and incoming.event(note):
            pass

    error, took = failing(json_stub, of_another, seconds=0.3)
    assert error.reason == "Timeout"
    assert took < 2.0


# --- streams that break off


def breaking_off(incoming: Incoming) -> None:
    incoming.begin()
    incoming.event(None, id="e-1", retry_ms=10)
    incoming.end()


def test_a_stream_with_event_ids_is_taken_up_again(json_stub: StubMcp) -> None:
    def going_on(incoming: Incoming) -> None:
        number = json_stub.of("tools/call")[0]["id"]
        incoming.begin()
        incoming.event({"jsonrpc": "2.0", "id": number, "result": text("after all")}, id="e-2")
        incoming.end()

    json_stub.on_get = going_on
    json_stub.next("tools/call", breaking_off)
    server = server_of(json_stub)
    assert run(calling(server), server).content == "after all"
    assert json_stub.resumed[0]["last-event-id"] == "e-1"
    assert len(json_stub.calls) == 1


def test_a_stream_that_cannot_be_taken_up_again_is_lost(json_stub: StubMcp) -> None:
    error, _ = failing(json_stub, breaking_off)
    assert (error.reason, error.started) == ("ConnectionLost", True)
    assert len(json_stub.resumed) == 1


def test_a_stream_that_breaks_off_for_ever_is_given_up(json_stub: StubMcp) -> None:
    json_stub.on_get = an_empty_stream
    error, took = failing(json_stub, breaking_off, seconds=30.0)
    assert error.reason == "ConnectionLost"
    assert len(json_stub.resumed) == RESUMES_MAX
    assert took < 10.0


def test_what_a_server_asks_meanwhile_is_answered(json_stub: StubMcp) -> None:
    def asking(incoming: Incoming) -> None:
        incoming.begin()
        for number, method in enumerate(("ping", "sampling/createMessage", "what/is/this")):
            incoming.event({"jsonrpc": "2.0", "id": f"s{number}", "method": method, "params": {}})
        wait_until(lambda: len(json_stub.of("")) >= 3 or len(answers(json_stub)) >= 3)
        incoming.event(incoming.result_message(text("done")))
        incoming.end()

    json_stub.next("tools/call", asking)
    server = server_of(json_stub)
    assert run(calling(server), server).content == "done"
    found = answers(json_stub)
    assert found["s0"]["result"] == {}
    assert "error" in found["s1"]
    assert "error" in found["s2"]


def test_a_list_that_changes_meanwhile_changes_nothing(json_stub: StubMcp) -> None:
    """A run's tools are those of its record."""

    def changing(incoming: Incoming) -> None:
        incoming.begin()
        incoming.event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        incoming.event(incoming.result_message(text("done")))
        incoming.end()

    json_stub.next("tools/call", changing)
    server = server_of(json_stub)

    async def main() -> None:
        await server.list_tools(nothing)
        assert (await calling(server)).content == "done"
        assert (await calling(server)).content

    run(main(), server)
    assert len(json_stub.of("tools/list")) == 1


def answers(stub: StubMcp) -> dict[str, dict[str, Any]]:
    return {m["id"]: m for m, _ in list(stub.messages) if "method" not in m}


# --- before it is sent


class Stop(Exception):
    """What a process that is fenced off raises."""


def test_nothing_is_sent_by_a_process_that_may_not_call_out(stub: StubMcp) -> None:
    server = server_of(stub)

    async def refuse() -> None:
        raise Stop

    async def main() -> None:
        with pytest.raises(Stop):
            await calling(server, before_send=refuse)
        assert not stub.messages
        await server.list_tools(nothing)
        with pytest.raises(Stop):
            await calling(server, before_send=refuse)
        assert not stub.calls
        assert not (await calling(server)).is_error

    run(main(), server)


def test_the_time_that_a_confirmation_takes_is_not_the_calls(json_stub: StubMcp) -> None:
    server = server_of(json_stub)

    async def slow() -> None:
        await asyncio.sleep(0.6)

    async def main() -> None:
        await server.list_tools(nothing)
        assert not (await calling(server, seconds=0.4, before_send=slow)).is_error

    run(main(), server)


def test_a_redirect_is_followed_within_the_servers_origin_only(json_stub: StubMcp) -> None:
    with StubMcp([tool("other")]) as other:
        server = server_of(json_stub, headers={"authorization": "Bearer secret"})

        async def main() -> None:
            await server.list_tools(nothing)
            json_stub.next("tools/call", status(307, location="/mcp"))
            assert not (await calling(server)).is_error
            json_stub.next("tools/call", status(307, location=other.url))
            with pytest.raises(ToolError) as caught:
                await calling(server)
            assert not caught.value.started

        run(main(), server)
        assert len(json_stub.calls) == 3
        assert not other.messages


def test_secrets_are_in_nothing_that_is_told(json_stub: StubMcp) -> None:
    secret = "tok-1234567890"
    server = server_of(
        json_stub, headers={"authorization": f"Bearer {secret}"}, secrets=[f"Bearer {secret}\n"]
    )
    json_stub.tools = [tool("pay", description=f"Uses {secret}.")]

    async def main() -> list[str]:
        listed = await server.list_tools(nothing)
        json_stub.next("tools/call", result(f"I got {secret}"))
        told = [listed[0].description, (await calling(server)).content]
        json_stub.next("tools/call", status(500, secret.encode()))
        with pytest.raises(ToolError) as caught:
            await calling(server)
        refusing: Callable[[Incoming], None] = lambda i: i.answer(  # noqa: E731
            {"error": {"code": 1, "message": secret}}
        )
        json_stub.next("tools/call", refusing)
        return [*told, str(caught.value), repr(caught.value), (await calling(server)).content]

    told = run(main(), server)
    assert all("***" in text for text in told), told
    assert secret not in "".join(told)
    assert json_stub.headers_of("tools/call")[0]["authorization"] == f"Bearer {secret}"


@pytest.mark.parametrize("arguments", ["[1]", "{", '{"a": 1, "a": 2}', '{"a": NaN}'])
def test_arguments_that_are_none_are_told_and_not_sent(json_stub: StubMcp, arguments: str) -> None:
    server = server_of(json_stub)
    output = run(calling(server, arguments), server)
    assert output.is_error
    assert output.content.startswith("Invalid arguments: ")
    assert not json_stub.messages


def test_closing_does_not_wait_for_a_call_or_a_server(json_stub: StubMcp) -> None:
    server = server_of(json_stub)

    async def main() -> float:
        await server.list_tools(nothing)
        json_stub.next("tools/call", hang)
        task = asyncio.ensure_future(calling(server, seconds=60.0))
        await until(lambda: json_stub.calls)
        began = time.monotonic()
        task.cancel()
        await asyncio.wait({task}, timeout=5.0)
        await server.close()
        assert task.cancelled()
        with pytest.raises(ToolError, match="closed"):
            await calling(server)
        return time.monotonic() - began

    assert run(main(), server) < 1.5
