"""An endpoint is a tool: one attempt, its deadline on the result, its secrets kept."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from agentrun.tools import (
    RESULT_BYTES_MAX,
    Effect,
    HttpEndpoint,
    ToolSetupError,
)
from agentrun.tools.exchange import RESPONSE_BYTES_MAX
from tests.support.stub_tools import Answer, StubTools
from tests.unit.tools.helpers import NUMBERS, a_call, endpoint_tool, failing, run


@pytest.fixture
def stub() -> Iterator[StubTools]:
    with StubTools() as server:
        yield server


# Requests


@pytest.mark.parametrize("text", [NUMBERS, '{ "a":1 ,\n"b" : "\\u00e9é" }\n', "{}"])
def test_the_body_is_the_models_own_text_byte_for_byte(stub: StubTools, text: str) -> None:
    output = run(endpoint_tool(stub.url("/echo")), text)
    assert stub.bodies("/echo") == [text.encode()]
    assert output.content == text


def test_no_arguments_are_an_empty_object(stub: StubTools) -> None:
    run(endpoint_tool(stub.url("/echo")), "")
    assert stub.bodies("/echo") == [b"{}"]


def test_a_request_carries_its_key_its_headers_and_no_secret_in_any_repr(stub: StubTools) -> None:
    headers = {"Authorization": "Bearer s3cret\n", "X-Tab": "a\tb"}
    assert "s3cret" not in repr(HttpEndpoint(url=stub.url(), headers=headers))
    run(endpoint_tool(stub.url("/a"), headers=headers), key="run-1/7")
    seen = stub.requests[0]
    assert seen.headers["authorization"] == "Bearer s3cret"
    assert seen.headers["x-tab"] == "a\tb"
    assert seen.headers["user-agent"] == "agentrun"
    assert seen.headers["content-type"] == "application/json"
    assert seen.key == "run-1/7"
    assert stub.count("/a", key="run-1/7") == 1


def test_a_read_only_call_carries_a_key_too(stub: StubTools) -> None:
    run(endpoint_tool(stub.url("/a"), effect=Effect.READ_ONLY), key="run-1/8")
    assert stub.requests[0].key == "run-1/8"


def test_arguments_fill_the_path_and_the_rest_goes_in_the_query(stub: StubTools) -> None:
    tool = endpoint_tool(stub.url("/users/{id}?v=1"), method="GET")
    run(tool, '{"id": "a/../b", "big": 9007199254740993, "amount": 19.90}')
    assert stub.requests[0].target == "/users/a%2F..%2Fb?v=1&big=9007199254740993&amount=19.90"
    assert stub.requests[0].body == b""
    assert tool.definition.parameters == {
        "type": "object",
        "properties": {"id": {"type": "string"}},
        "required": ["id"],
    }


@pytest.mark.parametrize("arguments", ['{"a": 1, "a": 2}', "[1]", '{"a": ' + "[" * 200, "{", "{}"])
def test_bad_arguments_send_nothing(stub: StubTools, arguments: str) -> None:
    output = run(endpoint_tool(stub.url("/users/{id}")), arguments)
    assert output.is_error
    assert output.content.startswith("Invalid arguments: ")
    assert stub.connections == 0


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"url": "ftp://h/"}, "must begin with http"),
        ({"url": "http://h/", "method": "TRACE"}, "method must be one of"),
        ({"url": "http://h/", "headers": {"X-A": "s3cret\r\nX-B: y"}}, "header X-A: its value"),
        ({"url": "http://h/", "headers": {"X A": "y"}}, "no name of a header"),
        (
            {"url": "http://h/{id}", "parameters": {"type": "object", "properties": {"ID": {}}}},
            r"names \{id\}, which is not in the properties of parameters",
        ),
        (
            {"url": "http://h/?q={id}", "parameters": {"type": "object"}},
            r"names \{id\}, which is not in the properties",
        ),
    ],
)
def test_an_endpoint_that_cannot_be_called_is_refused_at_set_up(settings: Any, says: str) -> None:
    with pytest.raises(ToolSetupError, match=says) as error:
        endpoint_tool(**settings)
    assert "s3cret" not in str(error.value)


@pytest.mark.parametrize(
    "parameters",
    [
        None,
        {"type": "object", "properties": {"id": {"type": "string"}}},
        {"type": "object", "allOf": [{"properties": {"id": {"type": "string"}}}]},
        {"type": "object", "additionalProperties": {"type": "string"}},
    ],
)
def test_a_part_of_the_url_that_a_model_may_know_of_is_none_to_refuse(parameters: Any) -> None:
    endpoint_tool(url="http://h/{id}", parameters=parameters)


# Answers


@pytest.mark.parametrize("body", [b"", b"[]"])
def test_an_empty_result_is_passed_on_as_it_is(stub: StubTools, body: bytes) -> None:
    stub.script("/a", Answer(body=body))
    output = run(endpoint_tool(stub.url("/a")))
    assert (output.content, output.is_error) == (body.decode(), False)


def test_a_long_body_is_read_to_a_bound_and_no_further(stub: StubTools) -> None:
    stub.script("/a", Answer(body=b"x" * (RESPONSE_BYTES_MAX + 1)))
    output = run(endpoint_tool(stub.url("/a")))
    assert output.content.endswith(" bytes are kept]")
    assert len(output.content) <= RESULT_BYTES_MAX


def test_a_status_decides_between_another_try_and_an_output(stub: StubTools) -> None:
    stub.script("/a", Answer(status=503, headers={"retry-after": "3"}), Answer(status=404, body=b"gone"))
    error = failing(endpoint_tool(stub.url("/a")))
    assert (error.reason, error.retryable, error.started, error.retry_after_seconds) == (
        "Unavailable",
        True,
        False,
        3,
    )
    output = run(endpoint_tool(stub.url("/a")))
    assert output.is_error
    assert output.content == f"POST {stub.url('/a')}: 404 Not Found\ngone"
    assert stub.count("/a") == 2


def test_secrets_do_not_follow_a_redirect_to_another_host(stub: StubTools) -> None:
    with StubTools() as other:
        stub.script("/a", *[Answer(status=302, headers={"location": other.url("/b?x=1")})] * 2)
        for method in ("GET", "POST"):
            output = run(endpoint_tool(stub.url("/a"), method=method, headers={"X-Key": "s3cret"}))
            assert output.is_error
            assert f"302 Found to {other.url('/b')}, not followed" in output.content
        assert other.connections == 0


def test_only_a_get_follows_redirects_within_its_host(stub: StubTools) -> None:
    stub.always("/a", Answer(status=307, headers={"location": "/b?x=1"}))
    stub.always("/b", Answer(body=b"there"))
    assert run(endpoint_tool(stub.url("/a"), method="GET")).content == "there"
    assert "not followed" in run(endpoint_tool(stub.url("/a"), method="POST")).content
    assert [seen.target for seen in stub.requests] == ["/a", "/b?x=1", "/a"]


def test_redirects_come_to_an_end(stub: StubTools) -> None:
    stub.always("/a", Answer(status=302, headers={"location": "/a"}))
    assert failing(endpoint_tool(stub.url("/a"), method="GET")).reason == "TooManyRedirects"
    assert stub.count("/a") == 6


def test_no_cookie_is_kept_from_one_call_to_the_next(stub: StubTools) -> None:
    async def scenario() -> None:
        tool = endpoint_tool(stub.url("/a"))
        stub.always("/a", Answer(headers={"set-cookie": "session=1; Path=/"}))
        for _ in range(2):
            await tool.call(a_call())
        await tool.close()

    asyncio.run(scenario())
    assert [seen.headers.get("cookie") for seen in stub.requests] == [None, None]
