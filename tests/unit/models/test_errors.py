"""What a failed request means."""

from __future__ import annotations

import pytest

from agentrun.models.errors import MESSAGE_MAX_BYTES, classify, clip, http_error


@pytest.mark.parametrize(
    ("status", "code", "text", "reason", "retryable"),
    [
        (400, "", "", "BadRequest", False),
        (400, "context_length_exceeded", "", "ContextLengthExceeded", False),
        (400, "invalid_request_error", "prompt is too long: 210000 tokens", "ContextLengthExceeded", False),
        (400, "content_filter", "", "ContentFilter", False),
        (401, "", "", "Unauthorized", False),
        (402, "", "", "Forbidden", False),
        (403, "", "", "Forbidden", False),
        (404, "model_not_found", "", "NotFound", False),
        (408, "", "", "Timeout", True),
        (409, "", "", "ServerError", True),
        (413, "", "", "BadRequest", False),
        (422, "", "", "BadRequest", False),
        (429, "", "", "RateLimited", True),
        (429, "rate_limit_exceeded", "", "RateLimited", True),
        (429, "insufficient_quota", "", "RateLimited", False),
        (429, "", "maximum context length per minute", "RateLimited", True),
        (500, "", "", "ServerError", True),
        (501, "", "", "ServerError", False),
        (502, "", "", "ServerError", True),
        (503, "", "", "Overloaded", True),
        (504, "", "", "Timeout", True),
        (529, "overloaded_error", "", "Overloaded", True),
        (599, "", "", "ServerError", True),
        (200, "", "", "ModelError", False),
        (200, "overloaded_error", "", "Overloaded", True),
        (200, "server_error", "", "ServerError", True),
    ],
)
def test_a_status_and_its_code_have_one_meaning(
    status: int, code: str, text: str, reason: str, retryable: bool
) -> None:
    assert classify(status, code, text) == (reason, retryable)


def test_a_message_names_who_said_what_and_is_bounded() -> None:
    error = http_error("openai", 500, "wörld\n" * 1000)
    assert error.message.startswith("openai answered 500: wörld wörld")
    assert len(error.message.encode()) <= MESSAGE_MAX_BYTES


def test_a_message_can_be_stored() -> None:
    assert clip("a\0b\ud800c") == "a\ufffdb\ufffdc"
