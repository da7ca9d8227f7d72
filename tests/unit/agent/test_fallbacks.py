"""Fallbacks: whom a try asks is read from the log, and each try is one retry of the run's budget."""

from __future__ import annotations

from typing import Any

import pytest

from agentrun.agent.choice import OWN_MODEL_AGAIN_TURNS, after_failure, answered, begin, exhausted
from agentrun.models import ModelError
from agentrun.proto import log_pb2
from agentrun.proto import transcript_pb2 as pb
from tests.support.agents import AgentBench, Crash, call, manifest

BUSY = ModelError("Overloaded", "busy", retryable=True)
DEAD = ModelError("Unauthorized", "no", retryable=False)


def model(name: str, *turns: dict[str, Any]) -> dict[str, Any]:
    return {"name": f"scripted:{name}", "script": {"turns": list(turns)}}


def bench(*models: dict[str, Any], **spec: Any) -> AgentBench:
    what = manifest([], **spec)
    what["spec"]["agent"]["model"] = {**models[0], "fallbacks": list(models[1:])}
    return AgentBench(what)


def failing(status: int, times: int = 0, **error: Any) -> dict[str, Any]:
    return {"error": {"status": status, "times": times, **error}}


def turn(run: AgentBench, number: int) -> pb.AssistantTurn:
    return pb.AssistantTurn.FromString(run.history.done[f"turn-{number}"].output.inline)


# --- the decision


@pytest.mark.parametrize(
    ("errors", "asked"),
    [
        ([], [0]),
        ([BUSY], [0, 1]),
        ([BUSY, BUSY], [0, 1, 2]),
        ([BUSY, BUSY, BUSY], [0, 1, 2, 0]),
        ([BUSY, BUSY, BUSY, BUSY], [0, 1, 2, 0, 1]),
        ([DEAD, BUSY, BUSY, BUSY], [0, 1, 2, 1, 2]),
        ([DEAD, DEAD, BUSY, BUSY], [0, 1, 2, 2, 2]),
        ([BUSY, DEAD, BUSY, DEAD, BUSY], [0, 1, 2, 0, 2, 2]),
    ],
)
def test_each_try_asks_the_model_with_the_fewest_failures(errors: list[ModelError], asked: list[int]) -> None:
    seen, memo = [0], b""
    for error in errors:
        memo = after_failure(begin(memo, None, 3), error, 3).SerializeToString()
        seen.append(begin(memo, None, 3).place)
    assert seen == asked


def test_when_all_have_failed_for_good_no_model_is_left_and_a_run_that_goes_on_asks_them_again() -> None:
    state = begin(b"", None, 2)
    for place in (0, 1):
        assert not exhausted(state, 2)
        assert state.place == place
        state = after_failure(state, DEAD, 2)
    assert exhausted(state, 2)
    assert begin(state.SerializeToString(), None, 2) == pb.ModelState()


def test_an_option_that_a_server_refuses_costs_the_same_model_one_try_once() -> None:
    refused = ModelError("BadRequest", "what?", retryable=False, refused_option="stream")
    state = after_failure(begin(b"", None, 2), refused, 2)
    assert (state.place, [(r.place, r.option) for r in state.refused]) == (0, [(0, "stream")])
    assert after_failure(state, refused, 2).place == 1, "it says so again, without having been asked for it"


def test_after_some_turns_by_a_fallback_the_agents_own_model_is_first_again() -> None:
    state = after_failure(begin(b"", None, 2), BUSY, 2)
    for _ in range(OWN_MODEL_AGAIN_TURNS):
        assert state.place == 1
        said = answered(state)
        assert said is not None
        state = begin(b"", pb.AssistantTurn(state=said), 2)
    assert state.place == 0
    assert after_failure(state, BUSY, 2).place == 1
    assert answered(state) is None, "a turn by the agent's own model says nothing of models"


def test_a_model_that_failed_for_good_is_not_asked_first_again() -> None:
    said = pb.ModelState(place=1, given_up=[0], turns_away=OWN_MODEL_AGAIN_TURNS)
    assert begin(b"", pb.AssistantTurn(state=said), 2).place == 1


# --- the run


def test_the_next_model_answers_at_once_and_the_record_says_which() -> None:
    run = bench(model("a", failing(503)), model("b", {"text": "hello"}))
    began = run.loop.time()
    assert run.resume().reason == "Completed"
    assert run.loop.time() - began < 0.5, "nobody waits for a model that has not been asked"
    assert (run.answer, turn(run, 1).model, turn(run, 1).state.place) == ("hello", "scripted:b", 1)
    assert run.ids == ["user-1", "turn-1#1", "turn-1", "final"]
    failed = run.record("turn-1#1").error
    assert failed.retryable and failed.reason == "Overloaded" and "(next: scripted:b)" in failed.message
    assert (run.history.totals.turns, run.history.totals.retries) == (1, 1)


@pytest.mark.parametrize("status", [401, 403, 404, 400])
def test_an_error_that_no_try_mends_goes_to_the_next_model(status: int) -> None:
    run = bench(
        model("a", failing(status)), model("b", {"toolCalls": [call("echo", text="x")]}, {"text": "ok"})
    )
    assert run.resume().reason == "Completed"
    assert run.history.totals.retries == 1, "and is not asked again in later turns"
    assert list(turn(run, 2).state.given_up) == [0]


def test_a_conversation_that_is_too_long_for_one_goes_to_the_next() -> None:
    too_long = failing(400, message="prompt is too long: 210000 tokens")
    run = bench(model("a", too_long), model("b", {"text": "ok"}))
    assert run.resume().reason == "Completed"
    assert run.record("turn-1#1").error.reason == "ContextLengthExceeded"


def test_when_all_fail_for_good_the_run_fails_with_the_last_reason() -> None:
    run = bench(model("a", failing(401)), model("b", failing(404, message="no such model")))
    outcome = run.resume()
    assert (outcome.outcome, outcome.reason) == (log_pb2.OUTCOME_FAILED, "NotFound")
    assert "no such model" in outcome.message
    assert len(run.asked) == 2


def test_turns_and_retries_bound_the_calls_over_all_models() -> None:
    run = bench(
        model("a", failing(503)), model("b", failing(429)), model("c", failing(500)), budget={"retries": 4}
    )
    assert run.resume().reason == "BudgetExceeded"
    assert len(run.asked) == 5
    assert [asked.key for asked in run.asked] == [
        "turn-1#1", "turn-1#1", "turn-1#1", "turn-1#2", "turn-1#2"
    ]  # fmt: skip


def test_a_model_that_was_asked_before_is_asked_again_after_a_wait() -> None:
    run = bench(model("a", failing(503, times=1), {"text": "better"}), model("b", failing(401)))
    began = run.loop.time()
    assert run.resume().reason == "Completed"
    assert run.loop.time() - began > 0.5
    assert turn(run, 1).state.place == 0 and list(turn(run, 1).state.given_up) == [1]


def test_a_process_that_dies_between_the_tries_changes_nothing() -> None:
    def fresh() -> AgentBench:
        return bench(
            model("a", failing(401)),
            model("b", failing(503, times=1), {"toolCalls": [call("echo", text="x")]}, {"text": "ok"}),
            model("c", failing(500)),
        )

    whole = fresh()
    whole.resume()
    for append in range(1, len(whole.ids) + 1):
        for after in (False, True):
            run = fresh()
            assert run.run(Crash(append=append, after=after)) is None
            assert run.resume().reason == "Completed"
            assert run.shape() == whole.shape()
            run.check_transcripts()


def test_a_sub_agent_has_fallbacks_of_its_own() -> None:
    sub = {"model": {**model("a", failing(404)), "fallbacks": [model("b", {"text": "from b"})]}}
    turns: list[dict[str, Any]] = [{"toolCalls": [call("helper", task="do it")]}, {"text": "done"}]
    run = AgentBench(manifest(turns, [{"agent": "helper"}], agents={"helper": sub}))
    assert run.resume().reason == "Completed"
    assert run.result("call-1-0").content == "from b"
