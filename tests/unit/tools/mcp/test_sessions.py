"""Sessions over HTTP: begun once, lost, and made anew."""

from __future__ import annotations

import asyncio
import json

import pytest

from agentrun.tools import ToolError
from agentrun.tools.base import ToolServerUnavailable
from agentrun.tools.mcp.server import IDEMPOTENCY_KEY
from tests.support.mcp_calls import calling, nothing, run, server_of, until
from tests.support.stub_mcp import SESSION, StubMcp, hang, result, status, tool

NOT_FOUND = json.dumps(
    {"jsonrpc": "2.0", "error": {"code": -32001, "message": "Session not found"}, "id": None}
).encode()
MISSING = json.dumps(
    {"jsonrpc": "2.0", "error": {"code": -32600, "message": "Bad Request: Missing session ID"}, "id": None}
).encode()


def test_calls_share_one_session_and_carry_what_identifies_them(stub: StubMcp) -> None:
    server = server_of(stub, headers={"authorization": "Bearer secret"})

    async def main() -> None:
        for amount in ("1", "2.50", "12345678901234567890123"):
            output = await calling(server, f'{{"amount": {amount}}}')
            assert (output.content, output.is_error) == (f'{{"amount": {json.loads(amount)}}}', False)

    run(main(), server)
    assert len(stub.of("initialize")) == len(stub.of("notifications/initialized")) == 1
    assert SESSION not in stub.headers_of("initialize")[0]
    for message, headers in stub.messages[1:]:
        assert headers[SESSION] == "session-1", message
        assert headers["mcp-protocol-version"]
        assert headers["authorization"] == "Bearer secret"
    metas = [message["params"]["_meta"] for message in stub.of("tools/call")]
    assert {meta[IDEMPOTENCY_KEY] for meta in metas} == {"run:call-1"}
    assert not stub.sessions, "the session was not ended"


def test_numbers_reach_the_server_as_the_model_wrote_them(json_stub: StubMcp) -> None:
    seen: list[bytes] = []
    handle = json_stub.handle

    def remembering(incoming):  # type: ignore[no-untyped-def]
        seen.append(json.dumps(incoming.message).encode())
        handle(incoming)

    json_stub.handle = remembering  # type: ignore[method-assign]
    server = server_of(json_stub)
    run(calling(server, '{"price": 19.90, "big": 0.1234567890123456789, "id": 90071992547409931}'), server)
    assert json_stub.calls[0][1]["id"] == 90071992547409931


LOST = {
    "forgotten": None,
    "404 in the protocol's form": status(404, NOT_FOUND, "application/json"),
    "404 without a body": status(404),
    "404 of a proxy": status(404, b"<html>Not Found</html>", "text/html"),
    "400 missing session": status(400, MISSING, "application/json"),
    "400 in words": status(400, b"Bad Request: No valid session ID provided"),
    "400 not initialized": status(400, b"Bad Request: Server not initialized"),
}


@pytest.mark.parametrize("how", LOST)
def test_a_lost_session_is_begun_anew_and_the_same_call_sent_once_more(stub: StubMcp, how: str) -> None:
    server = server_of(stub)

    async def main() -> None:
        await calling(server, '{"n": 1}')
        await calling(server, '{"n": 2}')
        behaviour = LOST[how]
        if behaviour is None:
            stub.forget()
        else:
            stub.next("tools/call", behaviour)
        output = await calling(server, '{"n": 3}')
        assert (output.content, output.is_error) == ('{"n": 3}', False)

    run(main(), server)
    assert [arguments["n"] for _, arguments in stub.calls] == [1, 2, 3, 3]
    assert len(stub.of("initialize")) == len(stub.of("notifications/initialized")) == 2
    assert [SESSION in headers for headers in stub.headers_of("initialize")] == [False, False]
    sessions = [headers[SESSION] for headers in stub.headers_of("tools/call")]
    assert sessions == ["session-1", "session-1", "session-1", "session-2"]


def test_parallel_calls_that_lose_their_session_share_a_new_one(stub: StubMcp) -> None:
    server = server_of(stub)

    async def main() -> None:
        await calling(server)
        stub.forget()
        outputs = await asyncio.gather(*(calling(server, f'{{"n": {n}}}') for n in range(4)))
        assert [output.content for output in outputs] == [f'{{"n": {n}}}' for n in range(4)]

    run(main(), server)
    assert len(stub.of("initialize")) == 2
    assert sorted(arguments.get("n", -1) for _, arguments in stub.calls) == [-1, 0, 0, 1, 1, 2, 2, 3, 3]


def test_a_server_that_forgets_every_session_is_given_up_after_one_new_one(stub: StubMcp) -> None:
    stub.always("tools/call", status(404, NOT_FOUND, "application/json"))
    server = server_of(stub)
    with pytest.raises(ToolError) as caught:
        run(calling(server), server)
    error = caught.value
    assert (error.reason, error.retryable, error.started) == ("SessionLost", False, False)
    assert len(stub.calls) == len(stub.of("initialize")) == 2


def test_a_server_that_is_restarting_is_waited_for(stub: StubMcp) -> None:
    server = server_of(stub)

    async def main() -> None:
        await calling(server, '{"n": 1}')
        stub.forget()
        stub.next("tools/call", status(503), status(503))
        stub.next("initialize", status(503), status(503))
        output = await calling(server, '{"n": 2}')
        assert output.content == '{"n": 2}'

    run(main(), server)
    assert len(stub.of("initialize")) == 4
    assert [arguments["n"] for _, arguments in stub.calls] == [1, 2, 2, 2, 2]


def test_a_server_that_stays_away_costs_the_call_and_nothing_else(stub: StubMcp) -> None:
    server = server_of(stub, start_timeout_seconds=0.6)

    async def main() -> None:
        await calling(server)
        stub.next("tools/call", *[status(503)] * 50)
        with pytest.raises(ToolError) as caught:
            await calling(server)
        assert (caught.value.reason, caught.value.started) == ("Unavailable", False)
        stub._behaviours["tools/call"].clear()
        assert not (await calling(server)).is_error

    run(main(), server)
    assert len(stub.of("initialize")) == 1


def test_a_long_wait_that_a_server_asks_for_is_left_to_the_run(json_stub: StubMcp) -> None:
    json_stub.next("tools/call", status(503, retry_after="120"))
    server = server_of(json_stub)
    with pytest.raises(ToolError) as caught:
        run(calling(server), server)
    assert (caught.value.retryable, caught.value.started) == (True, False)
    assert caught.value.retry_after_seconds == 120
    assert len(json_stub.calls) == 1


def test_a_server_without_sessions_is_one_too(stub: StubMcp) -> None:
    stub.stateless = True
    server = server_of(stub)
    assert run(calling(server, '{"n": 1}'), server).content == '{"n": 1}'
    assert all(SESSION not in headers for _, headers in stub.messages)


def test_a_new_process_begins_a_session_of_its_own(stub: StubMcp) -> None:
    for _ in range(2):
        server = server_of(stub)
        run(calling(server), server)
    assert [h[SESSION] for h in stub.headers_of("tools/call")] == ["session-1", "session-2"]


# --- the start


def listing(stub: StubMcp, **more: float) -> list[str]:
    server = server_of(stub, **more)
    return [found.name for found in run(server.list_tools(nothing), server)]


@pytest.mark.parametrize("page_size", [0, 1, 7, 120])
def test_all_pages_of_a_list_are_read(stub: StubMcp, page_size: int) -> None:
    stub.tools, stub.page_size = [tool(f"tool-{n}") for n in range(120)], page_size
    assert listing(stub) == [f"tool-{n}" for n in range(120)]


def test_a_list_that_goes_round_in_circles_ends(json_stub: StubMcp) -> None:
    json_stub.always("tools/list", result({"tools": [tool("a")], "nextCursor": "again"}))
    assert listing(json_stub) == ["a", "a"]
    assert len(json_stub.of("tools/list")) == 2


def test_a_server_with_no_tools_gives_none(stub: StubMcp) -> None:
    stub.tools = []
    assert listing(stub) == []


@pytest.mark.parametrize(
    ("method", "behaviour"),
    [("initialize", status(503)), ("initialize", status(404)), ("tools/list", status(502))],
)
def test_a_server_that_is_not_up_yet_is_waited_for(stub: StubMcp, method: str, behaviour: object) -> None:
    stub.next(method, behaviour, behaviour)  # type: ignore[arg-type]
    assert listing(stub) == ["pay"]


def test_a_server_that_listens_later_is_found() -> None:
    with StubMcp() as gone:
        pass
    server = server_of(gone, start_timeout_seconds=20.0)

    held: list[StubMcp] = []

    async def whole() -> list[str]:
        waiting = asyncio.ensure_future(server.list_tools(nothing))
        await until(lambda: server._trouble)  # it has been refused at least once
        assert not waiting.done()
        held.append(StubMcp([tool("late")], port=gone.port).__enter__())
        return [found.name for found in await waiting]

    try:
        assert run(whole(), server) == ["late"]
    finally:
        for late in held:
            late.__exit__()


def test_a_server_that_never_listens_is_unavailable_and_may_come_back() -> None:
    with StubMcp() as gone:
        pass
    server = server_of(gone, start_timeout_seconds=0.5)
    with pytest.raises(ToolServerUnavailable) as caught:
        run(server.list_tools(nothing), server)
    assert caught.value.retryable
    assert "ConnectError" in caught.value.message
    assert "(waited 0.5 s)" in caught.value.message


@pytest.mark.parametrize("code", [401, 403])
@pytest.mark.parametrize("method", ["initialize", "tools/list"])
def test_a_server_that_refuses_us_is_not_asked_again(stub: StubMcp, method: str, code: int) -> None:
    stub.always(method, status(code, b"who are you?"))
    server = server_of(stub, start_timeout_seconds=30.0)
    with pytest.raises(ToolServerUnavailable) as caught:
        run(server.list_tools(nothing), server)
    assert not caught.value.retryable
    assert str(code) in caught.value.message
    assert len(stub.of(method)) == 1


def test_a_handshake_that_hangs_is_given_up_in_time(stub: StubMcp) -> None:
    stub.always("initialize", hang)
    server = server_of(stub, start_timeout_seconds=0.5)
    with pytest.raises(ToolServerUnavailable, match="no answer"):
        run(server.list_tools(nothing), server)


def test_a_server_of_the_newer_protocol_needs_no_handshake(json_stub: StubMcp) -> None:
    json_stub.stateless = True
    unknown = {"error": {"code": -32601, "message": "Method not found"}}
    json_stub.always("initialize", lambda incoming: incoming.answer(unknown))
    json_stub.always(
        "server/discover",
        result(
            {
                "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}},
                "ttlMs": 0,
                "cacheScope": "private",
                "resultType": "complete",
            }
        ),
    )
    server = server_of(json_stub)

    async def main() -> str:
        assert [found.name for found in await server.list_tools(nothing)] == ["pay"]
        return (await calling(server, '{"n": 1}')).content

    assert run(main(), server) == '{"n": 1}'
    assert json_stub.headers_of("tools/call")[0]["mcp-protocol-version"] == "2026-07-28"
