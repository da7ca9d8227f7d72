"""What goes wrong with real servers, for every provider, in streams and in one piece, over HTTP."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from agentrun.models import ModelError, ModelResponse
from agentrun.proto import transcript_pb2 as pb
from tests.support.agents import CALLED
from tests.support.live_runs import LiveRun, manifest
from tests.support.stub_answers import Call, answer, replied, usage_of
from tests.support.stub_model import AnyReply, Reply, Request, StubModel
from tests.unit.models.conversations import MODELS, ask, built, text_of

CUT = '{"path":"a.md","content":"# Title\\nSec'
SHORT = '{"path": "a.md", "content": "# Title"}'

pytestmark = [
    pytest.mark.parametrize("stream", [True, False], ids=["stream", "one piece"]),
    pytest.mark.parametrize("provider", MODELS),
]


def asked(provider: str, stream: bool, reply: AnyReply) -> ModelResponse:
    """One answer of a server."""

    async def main() -> ModelResponse:
        with StubModel([reply]) as stub:
            model = built(provider, stub, settings={"stream": stream})
            try:
                return await ask(model)
            finally:
                await model.close()
                assert stub.count == 1

    return asyncio.run(main())


def got(provider: str, stream: bool, *args: Any, **what: Any) -> ModelResponse:
    return asked(provider, stream, replied(provider, answer(provider, *args, **what), stream=stream))


def calls_of(turn: pb.AssistantTurn) -> list[tuple[str, str]]:
    found = [part.tool_call for part in turn.parts if part.HasField("tool_call")]
    return [(call.name, call.arguments) for call in found]


class Conversation:
    """A run whose model says `turns`, one after the other, over a strict server."""

    def __init__(self, provider: str, stream: bool, turns: list[dict[str, Any]], **spec: Any) -> None:
        self.provider, self.stream, self.turns = provider, stream, turns
        self.spec = spec
        self.stub = StubModel(self._reply, strict=True)

    def _reply(self, request: Request) -> AnyReply:
        place = min(request.number, len(self.turns)) - 1
        return replied(self.provider, answer(self.provider, **self.turns[place]), stream=self.stream)

    def manifest(self, **spec: Any) -> dict[str, Any]:
        base_url = self.stub.url if self.provider.startswith("openai") else self.stub.origin
        settings = {"stream": self.stream}
        model = {"name": MODELS[self.provider], "baseURL": base_url, "settings": settings}
        names = ("echo", "silent")
        tools = [
            {
                "name": name,
                "python": {"entrypoint": f"tests.support.agents:{function}"},
                "effect": "read_only",
            }
            for name, function in zip(names, ("echo", "silent"), strict=True)
        ]
        return manifest(model, agent={"tools": tools}, **{**self.spec, **spec})


# --- the output limit


@pytest.mark.parametrize(
    "arguments", [[CUT], [SHORT], [SHORT, CUT]], ids=["cut", "valid and short", "the second cut"]
)
def test_a_turn_that_the_limit_cut_says_so(provider: str, stream: bool, arguments: list[str]) -> None:
    calls = [Call("zeta", text, f"c{place}") for place, text in enumerate(arguments)]
    turn = got(provider, stream, calls=calls, finish="length").turn
    assert turn.truncated and turn.finish == pb.FINISH_REASON_LENGTH
    assert [name for name, _ in calls_of(turn)] == ["zeta"] * len(arguments)
    assert [json.dumps(json.loads(a)) if a != CUT else a for _, a in calls_of(turn)] == arguments


def test_calls_of_a_cut_turn_are_not_run_and_a_model_that_is_always_cut_ends_the_run(
    provider: str, stream: bool
) -> None:
    call = Call("echo", '{"text": "a", "seconds": 0}', "c1")
    talk = Conversation(provider, stream, [{"text": "So", "calls": [call], "finish": "length"}])
    with talk.stub as stub:
        run = LiveRun(talk.manifest())
        assert run.go().reason == "OutputTruncated"
        assert not stub.refusals and stub.count == 3
    assert str(run.run_id) not in CALLED
    assert run.history.totals.tokens == 3 * 15 and run.turn(1).truncated


def test_cut_arguments_without_a_word_of_the_limit_are_calls_that_cannot_be_read(
    provider: str, stream: bool
) -> None:
    turn = got(provider, stream, calls=[Call("zeta", CUT)]).turn
    assert not turn.truncated and calls_of(turn) == [("zeta", CUT)]


def test_a_cut_turn_with_thinking_alone(provider: str, stream: bool) -> None:
    turn = got(provider, stream, thinking="hm", finish="length").turn
    assert turn.truncated and not calls_of(turn) and turn.parts[0].thinking.text == "hm"


# --- usage


@pytest.mark.parametrize(
    "usage",
    ["left out", None, {}, [], "12", (None, None), (-3, -4), ("x", "y"), (10**15, 10**15)],
    ids=str,
)
def test_usage_that_says_nothing_is_estimated_and_never_nothing(
    provider: str, stream: bool, usage: Any
) -> None:
    if stream and not isinstance(usage, dict | tuple) and usage != "left out":
        usage = None
    found = got(provider, stream, "hello there", usage=usage).usage
    assert found.estimated and found.tokens_in > 0 and found.tokens_out > 0


@pytest.mark.parametrize(
    ("said", "counted"),
    [((35, 12), (35, 12)), (("35", "12"), (35, 12)), ((35.0, 12.0), (35, 12)), ((35, 12, 109), (35, 74))],
    ids=str,
)
def test_usage_is_read_and_hidden_thinking_is_charged(
    provider: str, stream: bool, said: tuple[Any, ...], counted: tuple[int, int]
) -> None:
    if provider == "anthropic" and len(said) == 3:
        counted = (35, 12)  # it names no total
    found = got(provider, stream, "hello", usage=usage_of(provider, *said)).usage
    assert (found.tokens_in, found.tokens_out, found.estimated) == (*counted, False)


def test_a_total_alone_is_charged(provider: str, stream: bool) -> None:
    found = got(provider, stream, "hello", usage={**usage_of(provider, total=109)}).usage
    if provider == "anthropic":
        assert found.estimated
    else:
        assert found.tokens_in + found.tokens_out == 109


# --- bodies that are no answer

NO_ANSWERS: dict[str, tuple[Reply, bool]] = {
    "nothing": (Reply(body=b""), True),
    "204": (Reply(status=204), True),
    "a page": (Reply(body="<html>Please log in</html>", headers={"content-type": "text/html"}), False),
    "something else": (Reply(body={"contentType": "application/json", "method": "POST"}), True),
    "null": (Reply(body="null"), True),
    "a list": (Reply(body=[]), True),
    "half": (Reply(body='{"id": "x", "cho'), True),
    "garbage that says it is compressed": (Reply(body=b"nope", headers={"content-encoding": "gzip"}), True),
    "no choices": (Reply(body={"choices": [], "content": None, "candidates": [], "output": None}), True),
    "null inside": (
        Reply(body={"choices": [{"message": None}], "candidates": [None], "content": 7, "output": {}}),
        True,
    ),
}


@pytest.mark.parametrize("kind", NO_ANSWERS)
def test_what_is_no_answer_is_an_error(provider: str, stream: bool, kind: str) -> None:
    reply, retryable = NO_ANSWERS[kind]
    with pytest.raises(ModelError) as caught:
        asked(provider, stream, reply)
    assert (caught.value.reason, caught.value.retryable) == ("InvalidResponse", retryable)
    assert provider in caught.value.message and "Traceback" not in caught.value.message


@pytest.mark.parametrize(
    ("code", "reason", "retryable"),
    [(429, "RateLimited", True), (502, "ServerError", True), (503, "Overloaded", True),
     (401, "Unauthorized", False), (404, "NotFound", False)],
)  # fmt: skip
def test_an_error_in_a_good_reply_counts_as_what_it_names(
    provider: str, stream: bool, code: int, reason: str, retryable: bool
) -> None:
    body = {"id": "gen-1", "error": {"message": "Upstream said so", "code": code}}
    with pytest.raises(ModelError) as caught:
        asked(provider, stream, Reply(body=body))
    assert (caught.value.reason, caught.value.retryable) == (reason, retryable)
    assert provider in caught.value.message and "Upstream said so" in caught.value.message


# --- empty answers, and what is said behind them


def test_empty_answers_and_results_are_taken_back_also_after_a_resume(provider: str, stream: bool) -> None:
    turns: list[dict[str, Any]] = [
        {"text": None, "calls": [Call("silent", "{}", "c1")]},
        {"text": "", "calls": [Call("silent", "", "c2")]},
        {"text": "", "thinking": "hm"},
        {"text": " \n", "calls": [Call("silent", "{}", "c3")], "thinking": "so"},
        {"text": None},
        {"text": " \n\t"},
    ]
    talk = Conversation(provider, stream, turns, budget={"turns": 3})
    with talk.stub as stub:
        run = LiveRun(talk.manifest())
        assert run.go().reason == "BudgetExceeded"
        run.change(talk.manifest(budget={"turns": 9}))
        assert run.go().reason == "Completed"
        assert not stub.refusals and stub.count == len(turns)
        said = stub.requests[-1].raw.decode()
    assert run.answer.strip() == "" and said.count("(no output)") == 3


# --- ids of calls


def test_ids_of_any_kind_name_one_call_each(provider: str, stream: bool) -> None:
    batches: list[list[str | None]] = [
        ["abc", "abc"],
        [""],
        [None],
        ["x" * 300],
        ["a b/🙂"],
        ["turn-3"],
        ["call_0"],
        ["call_0"],
        ["abc"],
    ]
    texts = iter(range(100))
    turns: list[dict[str, Any]] = [
        {
            "text": None,
            "calls": [
                Call("echo", json.dumps({"text": f"n{next(texts)}n", "seconds": 0}), id_) for id_ in ids
            ],
        }
        for ids in batches
    ]
    talk = Conversation(provider, stream, [*turns, {"text": "done"}], budget={"turns": 5})
    with talk.stub as stub:
        run = LiveRun(talk.manifest())
        assert run.go().reason == "BudgetExceeded"
        run.change(talk.manifest(budget={"turns": 20}))
        assert run.go().reason == "Completed"
        assert not stub.refusals and stub.count == len(batches) + 1
        last = stub.requests[-1].raw.decode()
    count = sum(map(len, batches))
    assert [called.value for called in CALLED[str(run.run_id)] if called.tool == "echo"] == [
        f"n{number}n" for number in range(count)
    ]
    assert all(last.count(f"echo: n{number}n") == 1 for number in range(count))


# --- why a turn ended


@pytest.mark.parametrize("finish", ["stop", "calls", "foo_bar"])
def test_calls_are_calls_whatever_the_finish_says(provider: str, stream: bool, finish: str) -> None:
    if provider == "openai-responses" and finish == "foo_bar":
        finish = "stop"  # it has a status, and calls are items of their own
    turn = got(provider, stream, calls=[Call("zeta")], finish=finish).turn
    assert turn.finish == pb.FINISH_REASON_TOOL_CALLS and not turn.truncated and len(calls_of(turn)) == 1


def test_a_finish_that_promises_calls_which_are_not_there_is_an_end(provider: str, stream: bool) -> None:
    response = got(provider, stream, "So be it.", finish="calls")
    assert response.turn.finish == pb.FINISH_REASON_STOP and text_of(response) == "So be it."


def test_an_unknown_finish_is_an_answer_all_the_same(provider: str, stream: bool) -> None:
    response = got(provider, stream, "Well.", finish="foo_bar")
    assert text_of(response) == "Well." and not response.turn.truncated


def test_a_filter_ends_the_run_with_that_reason_and_one_request(provider: str, stream: bool) -> None:
    talk = Conversation(provider, stream, [{"text": "I", "finish": "filter"}])
    with talk.stub as stub:
        outcome = LiveRun(talk.manifest()).go()
        assert outcome.reason in ("ContentFiltered", "Refused") and stub.count == 1


def test_a_tool_that_is_not_there_is_told_with_those_that_are(provider: str, stream: bool) -> None:
    turns: list[dict[str, Any]] = [{"text": None, "calls": [Call("nope", "{}", "c1")]}, {"text": "ok"}]
    talk = Conversation(provider, stream, turns)
    with talk.stub as stub:
        assert LiveRun(talk.manifest()).go().reason == "Completed"
        said = stub.requests[-1].raw.decode()
        assert not stub.refusals and "there is no tool named" in said and "echo, silent" in said


CONTEXT = {
    "openai": {"error": {"message": "maximum context length is 4", "code": "context_length_exceeded"}},
    "openai-responses": {"error": {"message": "too long", "code": "context_length_exceeded"}},
    "anthropic": {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": "prompt is too long: 9"},
    },
    "google": {
        "error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "The input token count exceeds 4"}
    },
}


def test_a_conversation_that_is_too_long_ends_with_that_reason_at_once(provider: str, stream: bool) -> None:
    with pytest.raises(ModelError) as caught:
        asked(provider, stream, Reply(status=400, body=CONTEXT[provider]))
    assert (caught.value.reason, caught.value.retryable) == ("ContextLengthExceeded", False)
