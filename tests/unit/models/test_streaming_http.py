"""Streams over HTTP: what is asked for, and servers that break off, stall, or know no streams."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

import pytest

from agentrun.models import ModelError
from agentrun.models.base import Delta, ModelResponse
from agentrun.models.streams import reader
from tests.support.stub_model import AnyReply, Reply, StubModel, error
from tests.support.stub_streams import events_of, framed
from tests.unit.models.conversations import MODELS, ask, built, said, text_of
from tests.unit.models.test_streams import BODIES, TEXT, in_one_piece, normal


def run(provider: str, stub: StubModel, *, settings: Any = None, **asked: Any) -> ModelResponse:
    async def main() -> ModelResponse:
        model = built(provider, stub, settings=settings)
        try:
            return await ask(model, **asked)
        finally:
            await model.close()

    return asyncio.run(main())


def failure(provider: str, reply: AnyReply, **asked: Any) -> tuple[ModelError, StubModel]:
    with StubModel([reply]) as stub, pytest.raises(ModelError) as caught:
        run(provider, stub, **asked)
    return caught.value, stub


def stream(provider: str) -> list[bytes]:
    return framed(events_of(provider, BODIES[provider]))


@pytest.mark.parametrize("provider", MODELS)
class TestEveryProvider:
    def test_a_stream_is_asked_for_and_is_the_answer(self, provider: str) -> None:
        shown: list[Delta] = []
        with StubModel([Reply(pieces=stream(provider))]) as stub:
            answer = run(provider, stub, on_delta=shown.append)
        assert normal(answer) == normal(in_one_piece(provider))
        assert stub.count == 1
        request = stub.requests[0]
        if provider == "google":
            assert request.path.endswith(":streamGenerateContent?alt=sse")
        else:
            assert request.body["stream"] is True
        assert request.body.get("stream_options") == (
            {"include_usage": True} if provider == "openai" else None
        )
        assert "".join(delta.text for delta in shown if delta.kind == "text") == TEXT

    def test_none_is_asked_for_where_the_manifest_wants_none(self, provider: str) -> None:
        with StubModel([said(provider, "hello")]) as stub:
            assert text_of(run(provider, stub, settings={"stream": False})) == "hello"
        request = stub.requests[0]
        assert not request.body.get("stream") and "stream_options" not in request.body
        assert "stream" not in request.path

    def test_one_byte_a_segment(self, provider: str) -> None:
        data = b"".join(stream(provider))
        with StubModel([Reply(pieces=(data[at : at + 1] for at in range(len(data))))]) as stub:
            assert normal(run(provider, stub)) == normal(in_one_piece(provider))

    def test_a_connection_that_closes_in_the_middle(self, provider: str) -> None:
        pieces = stream(provider)[:-3]
        failed, stub = failure(provider, Reply(pieces=pieces[: len(pieces) // 2], cut=True))
        assert (failed.reason, failed.retryable, stub.count) == ("ConnectionError", True, 1)
        if provider == "anthropic":
            assert failed.usage.tokens_in == 1279
        elif provider == "openai":
            assert failed.usage.estimated and failed.usage.tokens_out > 0

    def test_a_connection_that_closes_behind_the_end_marker(self, provider: str) -> None:
        with StubModel([Reply(pieces=stream(provider), cut=True)]) as stub:
            assert normal(run(provider, stub)) == normal(in_one_piece(provider))

    def test_a_server_that_does_not_close_behind_the_end_marker(
        self, provider: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(reader, "END_SECONDS", 0.2)
        endless = itertools.chain(stream(provider), itertools.repeat(b": still here\n\n"))
        started = time.monotonic()
        with StubModel([Reply(pieces=endless, piece_delay_seconds=0.01)]) as stub:
            assert normal(run(provider, stub)) == normal(in_one_piece(provider))
        assert time.monotonic() - started < 20

    def test_the_total_time_holds_while_comments_arrive(self, provider: str) -> None:
        start = stream(provider)[:4]
        endless = itertools.chain(start, itertools.repeat(b": OPENROUTER PROCESSING\n\n"))
        started = time.monotonic()
        reply = Reply(pieces=endless, piece_delay_seconds=0.02)
        failed, stub = failure(provider, reply, timeout_seconds=0.7)
        assert (failed.reason, failed.retryable, stub.count) == ("Timeout", True, 1)
        assert time.monotonic() - started < 15
        if provider == "anthropic":
            assert failed.usage.tokens_in == 1279, "what is known is charged"

    def test_an_error_in_the_stream(self, provider: str) -> None:
        overloaded = b'event: error\ndata: {"error": {"type": "overloaded_error", "message": "busy"}}\n\n'
        failed, stub = failure(provider, Reply(pieces=[*stream(provider)[:4], overloaded]))
        assert (failed.reason, failed.retryable, stub.count) == ("Overloaded", True, 1)
        assert provider in failed.message and "busy" in failed.message

    def test_a_refusal_of_streams_is_known_for_one(self, provider: str) -> None:
        failed, _ = failure(provider, error(400, "streaming is not supported by this model"))
        assert (failed.reason, failed.refused_option) == ("BadRequest", "stream")
        with StubModel([said(provider, "whole")]) as stub:
            assert text_of(run(provider, stub, without=frozenset({"stream"}))) == "whole"
        assert not stub.requests[0].body.get("stream") and "stream" not in stub.requests[0].path

    def test_another_refusal_is_none_of_an_option(self, provider: str) -> None:
        for status, text in (
            (400, "temperature is too high"),
            (429, "too many streams"),
            (500, "stream broke"),
        ):
            failed, _ = failure(provider, error(status, text))
            assert failed.refused_option == ""

    def test_a_rate_limit_is_read_before_any_stream(self, provider: str) -> None:
        failed, stub = failure(provider, error(429, "slow", retry_after="7"))
        assert (failed.reason, failed.retry_after_seconds, stub.count) == ("RateLimited", 7, 1)


def test_a_server_that_refuses_to_tell_usage_in_streams_is_asked_without() -> None:
    refusal = error(422, "body.stream_options: extra inputs are not permitted")
    failed, _ = failure("openai", refusal)
    assert failed.refused_option == "streamUsage"
    with StubModel([Reply(pieces=stream("openai"))]) as stub:
        run("openai", stub, without=frozenset({"streamUsage"}))
    assert stub.requests[0].body["stream"] is True and "stream_options" not in stub.requests[0].body


def test_a_stream_that_goes_on_for_ever_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "STREAM_MAX_BYTES", 100_000)
    chunk = b'data: {"choices": [{"delta": {"content": ""}}]}\n\n' * 100
    failed, _ = failure("openai", Reply(pieces=itertools.repeat(chunk)))
    assert (failed.reason, failed.retryable) == ("InvalidResponse", False)
    monkeypatch.setattr(reader, "STREAM_MAX_BYTES", 10_000_000)
    monkeypatch.setattr(reader, "BODY_MAX_BYTES", 100_000)
    for endless in (b"x" * 1000, b'data: {"choices": [{"delta": {"content": "' + b"x" * 1000 + b'"}}]}\n\n'):
        failed, _ = failure("openai", Reply(pieces=itertools.repeat(endless)))
        assert (failed.reason, failed.retryable) == ("InvalidResponse", False)


def test_large_answers_of_anthropic_need_no_permission_of_its_sdk() -> None:
    for settings in ({}, {"stream": False}):
        with StubModel([said("anthropic", "x")]) as stub:
            run("anthropic", stub, settings=settings, max_output_tokens=100_000)
        assert stub.requests[0].body["max_tokens"] == 100_000
