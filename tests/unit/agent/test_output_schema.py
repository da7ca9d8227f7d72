"""Answers that must fit a schema: who is told what, how often, and what comes of it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from agentrun.agent import SetupError, prepare
from agentrun.agent.answers import ASKS_MAX, PROBLEMS_TOLD_MAX, AnswerSchema, told
from agentrun.models.options import is_strict
from agentrun.proto import log_pb2
from agentrun.proto import transcript_pb2 as pb
from agentrun.spec import parse_object
from tests.support.agents import AgentBench, Crash, call, manifest
from tests.support.live_runs import LiveRun
from tests.support.live_runs import manifest as live
from tests.support.stub_model import AnyReply, Request, StubModel, completion, error

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "people": {"type": "integer"}},
    "required": ["city", "people"],
    "additionalProperties": False,
}
GOOD = '{"city": "Bern", "people": 140000}'
BAD = '{"city": "Bern", "people": "many"}'


def bench(*turns: dict[str, Any], schema: Any = SCHEMA, **spec: Any) -> AgentBench:
    what = manifest(list(turns), **spec)
    what["spec"]["agent"]["outputSchema"] = schema
    return AgentBench(what)


def say(text: str) -> dict[str, Any]:
    return {"text": text}


# --- judging


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (GOOD, GOOD),
        (f"  {GOOD}\n", GOOD),
        (f"```json\n{GOOD}\n```", GOOD),
        (f"```\n{GOOD}\n```\n", GOOD),
        (
            '{"city": "B\u2028", "people": 9007199254740993}',
            '{"city": "B\u2028", "people": 9007199254740993}',
        ),
    ],
)
def test_an_answer_that_fits_is_the_json_alone_as_it_was_written(said: str, text: str) -> None:
    judged = AnswerSchema(SCHEMA).judge(said)
    assert (judged.text, judged.problems) == (text, [])


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (BAD, "$.people: 'many' is not of type 'integer'"),
        ('{"city": "Bern"}', "'people' is a required property"),
        (f"Here it is: {GOOD}", "the answer is not JSON"),
        (f"```python\n{GOOD}\n```", "the answer is not JSON"),
        ('{"city": NaN, "people": 1}', "NaN is not JSON"),
        ("[]", "[] is not of type 'object'"),
        ("", "the answer is not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"city": "' + "x" * 10_000 + '", "people": 1, "more": 1}', "Additional properties"),
    ],
)
def test_what_does_not_fit_is_said_in_few_words(said: str, problem: str) -> None:
    problems = AnswerSchema(SCHEMA).judge(said).problems
    assert problem in "\n".join(problems)
    assert len(told(problems)) < 4000


def test_only_so_many_problems_are_told() -> None:
    text = told([f"problem {n}" for n in range(PROBLEMS_TOLD_MAX + 5)])
    assert "problem 9" in text and "problem 10" not in text and "and 5 more" in text


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "object", "required": "a"}, "$.required: 'a' is not of type 'array'"),
        (
            {"type": "object", "properties": {"a": {"type": "text"}}},
            "$.properties.a.type: 'text' is not one of",
        ),
        ({"type": "object", "properties": {"a": {"$ref": "#/nope"}}}, "'#/nope' names nothing"),
        ({"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:1/s"}}}, "which is not fetched"),
    ],
)
@pytest.mark.parametrize("where", ["agent", "agents"])
def test_a_schema_that_is_none_is_refused_before_the_run_begins(schema: Any, why: str, where: str) -> None:
    sub = {"helper": {"model": {"name": "scripted:x", "script": {"turns": [say("x")]}}}}
    what = manifest([say("x")], [{"agent": "helper"}], agents=sub)
    spec = what["spec"]
    (spec["agent"] if where == "agent" else spec["agents"][0])["outputSchema"] = schema
    with pytest.raises(SetupError) as caught:
        prepare(parse_object(what, source="a test").spec, {})
    path = "spec.agent.outputSchema: " if where == "agent" else "spec.agents[0].outputSchema: "
    assert str(caught.value).startswith(path) and why in str(caught.value)


def test_an_agent_without_a_schema_imports_no_validator() -> None:
    code = (
        "import sys; from tests.support.agents import AgentBench, manifest;"
        "AgentBench(manifest([{'text': 'x'}])).resume();"
        "sys.exit(any(name.split('.')[0] in ('jsonschema', 'referencing') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


# --- the run


def test_an_answer_that_fits_is_the_runs_answer() -> None:
    run = bench(say(f"```json\n{GOOD}\n```"))
    assert run.resume().reason == "Completed"
    assert run.answer == GOOD
    assert '"people":{"type":"integer"}' in run.asked[0].body["messages"][0]["content"]


def test_the_model_is_told_what_does_not_fit_and_asked_again() -> None:
    run = bench(say(BAD), say(GOOD))
    assert run.resume().reason == "Completed"
    assert run.ids == ["user-1", "turn-1", "user-2", "turn-2", "final"]
    asked = pb.UserMessage.FromString(run.history.done["user-2"].output.inline).text
    assert "$.people: 'many' is not of type 'integer'" in asked
    assert run.answer == GOOD and run.history.totals.turns == 2
    run.check_transcripts()


def test_after_a_few_answers_that_do_not_fit_the_run_fails() -> None:
    run = bench(*[say(BAD)] * 9, tools=None)
    outcome = run.resume()
    assert (outcome.outcome, outcome.reason) == (log_pb2.OUTCOME_FAILED, "OutputInvalid")
    assert "'many' is not of type 'integer'" in outcome.message
    assert len(run.asked) == 1 + ASKS_MAX


def test_calls_between_the_answers_do_not_let_a_model_go_on_for_ever() -> None:
    turns = [say(BAD), {"toolCalls": [call("echo", text="a")]}] * 9
    run = bench(*turns)
    assert run.resume().reason == "OutputInvalid"
    assert sum("toolCalls" in turns[n] for n in range(len(run.asked))) == ASKS_MAX


def test_asking_again_is_within_the_turns_of_the_budget() -> None:
    run = bench(say(BAD), say(GOOD), budget={"turns": 1})
    assert run.resume().reason == "BudgetExceeded"
    assert len(run.asked) == 1


def test_an_answer_without_a_text_does_not_fit_either() -> None:
    run = bench(say(""), say(""), say(GOOD))
    assert run.resume().reason == "Completed" and run.answer == GOOD
    run = bench(*[say("")] * 9)
    assert run.resume().reason == "OutputInvalid"


def test_a_refusal_is_a_refusal() -> None:
    run = bench({"text": "no", "finishReason": "refusal"}, say(GOOD))
    assert run.resume().reason == "Refused"


def test_a_crash_anywhere_changes_nothing() -> None:
    turns = [say(BAD), {"toolCalls": [call("echo", text="a")]}, say(BAD), say(GOOD)]
    whole = bench(*turns)
    whole.resume()
    for append in range(1, len(whole.ids) + 1):
        run = bench(*turns)
        assert run.run(Crash(append=append, after=True)) is None
        assert run.resume().reason == "Completed" and run.answer == GOOD
        assert run.shape() == whole.shape()


def test_a_sub_agents_answer_fits_its_own_schema() -> None:
    def run(*turns: dict[str, Any]) -> AgentBench:
        sub = {"model": {"name": "scripted:s", "script": {"turns": list(turns)}}, "outputSchema": SCHEMA}
        outer = [{"toolCalls": [call("helper", task="count")]}, say("done")]
        found = AgentBench(manifest(outer, [{"agent": "helper"}], agents={"helper": sub}))
        assert found.resume().reason == "Completed"
        return found

    good = run(say(BAD), say(GOOD)).result("call-1-0")
    assert (good.content, good.outcome) == (GOOD, pb.TOOL_OUTCOME_OK)
    bad = run(*[say(BAD)] * 9).result("call-1-0")
    assert bad.outcome == pb.TOOL_OUTCOME_ERROR and "OutputInvalid" in bad.content


# --- what providers are told


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (SCHEMA, True),
        ({**SCHEMA, "additionalProperties": True}, False),
        ({**SCHEMA, "required": ["city"]}, False),
        ({**SCHEMA, "maxProperties": 3}, False),
        (
            {"type": "object", "properties": {"a": {"type": "string", "pattern": "x"}}, "required": ["a"]},
            False,
        ),
        ({"type": "array", "items": SCHEMA}, True),
        ({"type": "array", "items": {"type": "object"}}, False),
        ({**SCHEMA, "$defs": {"x": {"type": "object"}}}, False),
        ({"anyOf": [SCHEMA, {"type": "null"}]}, True),
    ],
)
def test_a_strict_schema_is_closed_and_plain(schema: Any, strict: bool) -> None:
    assert is_strict(schema) is strict


def compatible(stub: StubModel, **agent: Any) -> dict[str, Any]:
    return live({"name": "openai:m", "baseURL": stub.url}, agent={"outputSchema": SCHEMA, **agent})


def test_a_server_that_knows_no_schemas_is_asked_without_and_that_is_remembered() -> None:
    def reply(request: Request) -> AnyReply:
        if "response_format" in request.body:
            return error(400, "response_format: extra inputs are not permitted")
        return BAD if request.number == 2 else GOOD

    with StubModel(reply) as stub:
        run = LiveRun(compatible(stub))
        assert run.go().reason == "Completed"
    assert run.answer == GOOD
    formats = ["response_format" in request.body for request in stub.requests]
    assert formats == [True, False, False], "refused once, and not sent in later turns"
    assert run.history.totals.retries == 1
    assert stub.requests[0].body["response_format"]["json_schema"]["strict"] is True


def test_with_tools_a_server_that_imitates_openai_is_told_in_words_alone() -> None:
    tool = {"name": "echo", "python": {"entrypoint": "tests.support.agents:echo"}, "effect": "read_only"}
    replies = [completion(calls=[("echo", '{"text": "a"}')]), completion(GOOD)]
    with StubModel(replies, strict=True) as stub:
        run = LiveRun(compatible(stub, tools=[tool]))
        assert run.go().reason == "Completed" and run.answer == GOOD
    assert not any("response_format" in request.body for request in stub.requests)
    assert "JSON schema" in stub.requests[0].messages[0]["content"]
