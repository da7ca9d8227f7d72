"""Real providers over HTTP: one guarded request a call, and errors that say who said what."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from agentrun.models import ModelError, transport
from agentrun.models.base import ModelResponse
from agentrun.models.streams import reader
from tests.support.stub_model import AnyReply, Reply, Request, StubModel, completion, error
from tests.unit.models.conversations import MODELS, ask, built, said, text_of

KEY = "sk-secret-123456789"


def run(provider: str, stub: StubModel, *, asked: dict[str, Any] | None = None, **more: Any) -> ModelResponse:
    async def main() -> ModelResponse:
        model = built(provider, stub, **more)
        try:
            return await ask(model, **(asked or {}))
        finally:
            await model.close()

    return asyncio.run(main())


def failure(provider: str, reply: AnyReply, **more: Any) -> tuple[ModelError, StubModel]:
    with StubModel([reply]) as stub, pytest.raises(ModelError) as caught:
        run(provider, stub, **more)
    return caught.value, stub


@pytest.mark.parametrize("provider", MODELS)
class TestEveryProvider:
    def test_an_answer_is_a_turn(self, provider: str) -> None:
        with StubModel([said(provider, "hello")]) as stub:
            response = run(provider, stub)
        assert text_of(response) == "hello" and response.turn.provider == provider
        assert response.usage.estimated and response.usage.tokens_in > 0
        assert stub.count == 1

    @pytest.mark.parametrize("status", [429, 500, 503, 408, 409])
    def test_a_failed_request_is_not_repeated(self, provider: str, status: int) -> None:
        failed, stub = failure(provider, error(status, "no luck", retry_after="3"))
        assert stub.count == 1
        assert failed.retryable and failed.retry_after_seconds == 3
        assert provider in failed.message and "no luck" in failed.message

    def test_a_closed_connection_is_not_repeated(self, provider: str) -> None:
        failed, stub = failure(provider, Reply(hang_up=True))
        assert (failed.reason, failed.retryable, stub.count) == ("ConnectionError", True, 1)

    def test_before_send_may_refuse_and_then_nothing_leaves(self, provider: str) -> None:
        async def refuse() -> None:
            raise PermissionError("fenced")

        with StubModel([said(provider, "x")]) as stub, pytest.raises(PermissionError, match="fenced"):
            run(provider, stub, asked={"before_send": refuse})
        assert stub.count == 0

    def test_before_send_comes_once_and_before_the_request(self, provider: str) -> None:
        seen: list[int] = []

        async def note() -> None:
            await asyncio.sleep(0.05)
            seen.append(stub.count)

        with StubModel([said(provider, "x")]) as stub:
            run(provider, stub, asked={"before_send": note})
        assert seen == [0] and stub.count == 1

    def test_the_total_time_is_bounded(self, provider: str) -> None:
        started = time.monotonic()
        failed, stub = failure(provider, Reply(body={}, delay_seconds=30), asked={"timeout_seconds": 0.3})
        assert (failed.reason, failed.retryable, stub.count) == ("Timeout", True, 1)
        assert time.monotonic() - started < 15

    def test_the_key_does_not_follow_a_redirect(self, provider: str) -> None:
        with StubModel([said(provider, "stolen")]) as other:
            reply = Reply(status=307, headers={"location": f"{other.origin}/v1/chat/completions"})
            failed, stub = failure(provider, reply, api_key=KEY)
        assert (failed.reason, failed.retryable) == ("InvalidResponse", False)
        assert (stub.count, other.count) == (1, 0)

    def test_the_key_is_in_no_error(self, provider: str) -> None:
        failed, stub = failure(provider, error(401, f"bad key {KEY}"), api_key=KEY)
        assert failed.reason == "Unauthorized" and "bad key ***" in failed.message
        assert KEY not in str(failed) and KEY not in repr(failed)
        assert KEY in "".join(stub.requests[0].headers.values())

    def test_nothing_is_listening(self, provider: str) -> None:
        with StubModel([]) as stub:
            pass
        with pytest.raises(ModelError) as caught:
            run(provider, stub)
        assert (caught.value.reason, caught.value.retryable) == ("ConnectionError", True)

    def test_tools_keep_their_order(self, provider: str) -> None:
        with StubModel([said(provider, "x")]) as stub:
            run(provider, stub)
        raw = stub.requests[0].raw
        assert 0 < raw.index(b'"zeta"') < raw.index(b'"alpha"')
        assert b'"minimum":3' in raw.replace(b" ", b"")

    def test_settings_reach_the_body_and_extra_is_merged(self, provider: str) -> None:
        settings = {"temperature": 0.25, "maxTokens": 77, "toolChoice": "alpha", "extra": {"mine": {"a": 1}}}
        with StubModel([said(provider, "x")]) as stub:
            run(provider, stub, settings=settings)
        body, raw = stub.requests[0].body, stub.requests[0].raw
        assert b"0.25" in raw and b"77" in raw and body["mine"] == {"a": 1}
        choice = body.get("tool_choice") or body["toolConfig"]
        assert "alpha" in str(choice) and "zeta" not in str(choice)

    def test_a_tool_choice_that_names_no_tool_is_an_error(self, provider: str) -> None:
        failed, stub = failure(provider, said(provider, "x"), settings={"toolChoice": "nope"})
        assert (failed.reason, failed.retryable, stub.count) == ("BadRequest", False, 0)

    def test_calls_at_the_same_time_do_not_mix(self, provider: str) -> None:
        async def main() -> list[str]:
            def reply(request: Request) -> AnyReply:
                word = next(w for w in ("w1w", "w2w", "w3w", "w4w") if w.encode() in request.raw)
                return said(provider, word)

            from agentrun.proto import transcript_pb2 as pb

            with StubModel(reply, delay_seconds=0.05) as stub:
                model = built(provider, stub)
                words = [f"w{number}w" for number in range(1, 5)]
                answers = await asyncio.gather(*(ask(model, [pb.UserMessage(text=word)]) for word in words))
                await model.close()
                return [text_of(answer) for answer in answers]

        assert asyncio.run(main()) == ["w1w", "w2w", "w3w", "w4w"]


class TestBodies:
    @pytest.mark.parametrize("stream", [True, False])
    def test_an_answer_that_is_too_large(self, monkeypatch: pytest.MonkeyPatch, stream: bool) -> None:
        monkeypatch.setattr(transport, "BODY_MAX_BYTES", 10_000)
        monkeypatch.setattr(reader, "BODY_MAX_BYTES", 10_000)
        failed, _ = failure("openai", completion("x" * 20_000), settings={"stream": stream})
        assert failed.reason == "InvalidResponse" and "10000 bytes" in failed.message

    def test_a_large_failure_is_cut(self) -> None:
        failed, _ = failure("openai", Reply(status=500, body="x" * 1_000_000))
        assert failed.reason == "ServerError" and len(failed.message.encode()) <= 1024

    def test_no_content(self) -> None:
        failed, _ = failure("openai", Reply(status=204))
        assert (failed.reason, failed.retryable) == ("InvalidResponse", True)

    def test_garbage_that_says_it_is_compressed(self) -> None:
        failed, _ = failure("openai", Reply(body=b"nope", headers={"content-encoding": "gzip"}))
        assert (failed.reason, failed.retryable) == ("InvalidResponse", True)

    def test_a_body_that_breaks_off(self) -> None:
        reply = Reply(body=b'{"choices":', headers={"content-length": "500"})
        with StubModel(lambda _: reply) as stub, pytest.raises(ModelError) as caught:
            run("openai", stub, asked={"timeout_seconds": 1.0})
        assert caught.value.retryable

    def test_retry_after_as_a_date(self) -> None:
        headers = {"retry-after": "Wed, 21 Oct 2099 07:28:30 GMT"}
        failed, _ = failure("openai", Reply(status=429, body={}, headers=headers))
        assert failed.retry_after_seconds is not None and failed.retry_after_seconds > 0


class TestKeys:
    def test_a_key_of_the_environment_goes_to_no_other_address(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "GOOGLE_API_KEY"):
            monkeypatch.setenv(variable, KEY)
        for provider in MODELS:
            with StubModel([said(provider, "x")]) as stub:
                run(provider, stub)
            assert KEY not in str(stub.requests[0].headers) + stub.requests[0].path

    def test_servers_that_imitate_openai_get_the_older_limit(self) -> None:
        with StubModel(["x"]) as stub:
            run("openai", stub, asked={"max_output_tokens": 9})
        assert stub.requests[0].body["max_tokens"] == 9
        assert "max_completion_tokens" not in stub.requests[0].body

    def test_anthropic_always_gets_a_limit(self) -> None:
        with StubModel([said("anthropic", "x")]) as stub:
            run("anthropic", stub)
        assert stub.requests[0].body["max_tokens"] == 16_384
