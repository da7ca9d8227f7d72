"""A conversation goes from one provider's server to another's, before and after a resume."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.live_runs import LiveRun, manifest
from tests.support.stub_answers import Call, answer, replied
from tests.support.stub_model import AnyReply, Request, StubModel, error
from tests.unit.models.conversations import MODELS

PAIRS = [(own, other) for own in MODELS for other in MODELS if own != other]
TOOL = {"name": "echo", "python": {"entrypoint": "tests.support.agents:echo"}, "effect": "read_only"}


def model(provider: str, stub: StubModel) -> dict[str, Any]:
    return {"name": MODELS[provider], "baseURL": stub.url if provider.startswith("openai") else stub.origin}


@pytest.mark.parametrize("resumed", [False, True], ids=["one process", "resumed"])
@pytest.mark.parametrize(("own", "other"), PAIRS, ids="-".join)
def test_what_one_provider_began_another_goes_on_with(own: str, other: str, resumed: bool) -> None:
    call = Call("echo", '{"text": "a", "seconds": 0}', "c1")

    def first(request: Request) -> AnyReply:
        """Thinks and calls, and then its key is no good any more."""
        if request.number > 1:
            return error(401, "this key has ended")
        return replied(own, answer(own, "I look.", calls=[call], thinking="deep thought"), stream=True)

    def second(request: Request) -> AnyReply:
        calls = [call] if request.number == 1 else []
        return replied(other, answer(other, "Then I.", calls=calls, thinking="own thought"), stream=True)

    with StubModel(first, strict=True) as one, StubModel(second, strict=True) as two:
        models = {**model(own, one), "fallbacks": [model(other, two)]}
        run = LiveRun(manifest(models, agent={"tools": [TOOL]}, budget={"turns": 2 if resumed else 9}))
        outcome = run.go()
        if resumed:
            assert outcome.reason == "BudgetExceeded"
            run.change(manifest(models, agent={"tools": [TOOL]}, budget={"turns": 9}))
            outcome = run.go()
        assert outcome.reason == "Completed"
        assert not one.refusals and not two.refusals
        assert (one.count, two.count) == (2, 2), "one that failed for good is not asked again"
        sent = [request.raw.decode() for request in two.requests]
    assert run.history.totals.retries == 1
    assert [run.turn(n).provider for n in (1, 2, 3)] == [own, other, other]
    assert [run.turn(n).state.place for n in (1, 2, 3)] == [0, 1, 1]
    assert not any("deep thought" in text for text in sent)
    assert all("I look." in text and "echo: a" in text for text in sent)
