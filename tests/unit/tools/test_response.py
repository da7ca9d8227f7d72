"""What a response means follows from its status, type and length."""

from __future__ import annotations

import time
from email.utils import formatdate

import pytest

from agentrun.tools import RESULT_BYTES_MAX, ToolError
from agentrun.tools.response import RETRY_AFTER_SECONDS_MAX, read_response, retry_after_seconds


@pytest.mark.parametrize(
    ("content_type", "body", "content"),
    [
        ("application/json", b'{"a": 1}', '{"a": 1}'),
        ("application/problem+json; charset=utf-8", b"{}", "{}"),
        ("text/plain; charset=iso-8859-1", b"caf\xe9", "café"),
        ("text/plain; charset=no-such-thing", "café".encode(), "café"),
        ("text/plain; charset=base64", b"abc", "abc"),
        ("text/plain", b"a\0b\xff", "a\ufffdb\ufffd"),
        ("", b"plain", "plain"),
        ("", b"a\0b", "[application/octet-stream, 3 bytes]"),
        ("", b"\xff\xff", "[application/octet-stream, 2 bytes]"),
        ("image/png", b"x" * 5321, "[image/png, 5321 bytes]"),
        ("application/json", b"", ""),
        ("image/png", b"", ""),
        ("application/json", b"[]", "[]"),
    ],
)
def test_text_is_passed_on_and_anything_else_described(content_type: str, body: bytes, content: str) -> None:
    output = read_response("GET x", 200, {"content-type": content_type}, body)
    assert (output.content, output.is_error) == (content, False)


def test_a_body_that_was_cut_says_so() -> None:
    text = read_response("GET x", 200, {}, b"x" * 1000, cut=True).content
    assert text == "x" * 1000 + "\n[cut: only the first 1000 bytes are kept]"
    picture = read_response("GET x", 200, {"content-type": "image/png"}, b"x" * 1000, cut=True)
    assert picture.content == "[image/png, more than 1000 bytes]"
    long = read_response("GET x", 200, {}, b"x" * (RESULT_BYTES_MAX + 1)).content
    assert len(long) <= RESULT_BYTES_MAX
    assert long.endswith(f"of {RESULT_BYTES_MAX + 1} bytes are kept]")


@pytest.mark.parametrize(
    ("status", "reason", "started"),
    [
        (408, "RequestTimeout", True),
        (429, "RateLimited", False),
        (502, "BadGateway", True),
        (503, "Unavailable", False),
        (504, "GatewayTimeout", True),
    ],
)
def test_a_status_that_asks_for_another_try_is_an_error(status: int, reason: str, started: bool) -> None:
    with pytest.raises(ToolError) as error:
        read_response("POST x", status, {"retry-after": "7"}, b"busy" * 1000)
    raised = error.value
    assert (raised.reason, raised.retryable, raised.started) == (reason, True, started)
    assert raised.retry_after_seconds == 7
    assert raised.message.startswith(f"POST x: {status} ")
    assert len(raised.message) <= 600


@pytest.mark.parametrize(
    ("status", "headers", "content"),
    [
        (404, {}, "POST x: 404 Not Found\nno such order"),
        (422, {}, "POST x: 422 "),
        (500, {}, "POST x: 500 Internal Server Error\nno such order"),
        (599, {}, "POST x: 599\nno such order"),
        (304, {}, "POST x: 304 Not Modified"),
        (
            302,
            {"location": "https://user:pass@other.example/login?token=secret"},
            "POST x: 302 Found to https://other.example/login, not followed",
        ),
        (302, {"location": "/login?token=secret"}, "POST x: 302 Found to /login, not followed"),
        (302, {"location": "http://[broken"}, "(an address that is not valid), not followed"),
    ],
)
def test_any_other_status_is_an_output_that_says_so(
    status: int, headers: dict[str, str], content: str
) -> None:
    output = read_response("POST x", status, headers, b"no such order")
    assert output.is_error
    assert content in output.content
    assert "secret" not in output.content


@pytest.mark.parametrize(
    ("value", "date", "seconds"),
    [
        ("120", None, 120),
        ("1.5", None, 1.5),
        ("0", None, 0),
        ("Wed, 21 Oct 2026 07:28:30 GMT", "Wed, 21 Oct 2026 07:28:00 GMT", 30),
        ("Wed, 21 Oct 2026 07:28:00 GMT", "Wed, 21 Oct 2026 07:28:30 GMT", 0),
        ("9" * 400, None, RETRY_AFTER_SECONDS_MAX),
        ("Wed, 21 Oct 9999 07:28:00 GMT", None, RETRY_AFTER_SECONDS_MAX),
        ("-5", None, None),
        ("soon", None, None),
        ("nan", None, None),
        ("", None, None),
        ("²", None, None),
    ],
)
def test_retry_after_is_read_in_both_forms(value: str, date: str | None, seconds: float | None) -> None:
    headers = {"retry-after": value} | ({"date": date} if date else {})
    assert retry_after_seconds(headers) == seconds


def test_a_date_without_the_servers_clock_is_taken_by_ours() -> None:
    found = retry_after_seconds({"retry-after": formatdate(time.time() + 60, usegmt=True)})
    assert found is not None
    assert 50 < found <= 60
