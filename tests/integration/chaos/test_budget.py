"""Limits: a run parks before it overspends, and goes on when there is room, without repeating a call."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.support.chaos import lookup, manifest, shown, sound, sums
from tests.support.commands import Commands
from tests.support.stub_model import Reply, Request, StubModel, completion, error

PAUSED = 75
ONE_ANSWER = {"prompt_tokens": 100, "completion_tokens": 60, "total_tokens": 160}


def talk(turns: int) -> Any:
    """`turns` turns that call a tool, then the answer; each of them costs 160 tokens."""

    def reply(request: Request) -> dict[str, Any]:
        said = sum(message["role"] == "assistant" for message in request.messages)
        if said >= turns:
            return completion("done", usage=ONE_ANSWER)
        arguments = f'{{"topic": "t{said}", "seconds": 0}}'
        return completion("Next.", calls=[("lookup", arguments)], usage=ONE_ANSWER)

    return reply


@pytest.mark.parametrize("how", ["manifest", "option"])
def test_it_parks_within_one_answer_of_the_limit_and_goes_on_when_it_is_raised(
    agentrun: Commands, run_id: str, how: str
) -> None:
    with StubModel(talk(5), strict=True) as stub:
        what = manifest(model=stub.url, tools=[lookup()], budget={"tokens": 500, "retries": 3})
        ended = agentrun("run", agentrun.write(what), "--run-id", run_id)
        assert ended.code == PAUSED and "budget.tokens" in ended.err, ended
        shows = agentrun.show(run_id)
        assert (shows["phase"], shows["reason"]) == ("Paused", "BudgetExceeded")
        assert shows["budget"]["tokens"] == {"used": 640, "limit": 500}, "four answers of 160"
        if how == "manifest":
            what["spec"]["budget"]["tokens"] = 2000
            ended = agentrun("run", agentrun.write(what), "--run-id", run_id)
        else:
            ended = agentrun("resume", run_id, "--budget-tokens", 2000)
        assert (ended.code, ended.out) == (0, "done\n"), ended.err
        assert stub.count == 6 and not stub.refusals, "no call was repeated"
        assert dict(agentrun.calls()) == {f"call-{n}-0": 1 for n in range(1, 6)}
        shows = agentrun.show(run_id)
        assert shows["budget"]["tokens"] == {"used": 960, "limit": 2000}
        assert shown(shows["budget"]) == sums(agentrun.events(run_id))
        assert sound(agentrun.dsn, run_id).totals.retries == 0


def test_many_at_once_overspend_by_one_answer_at_most(agentrun: Commands, run_id: str) -> None:
    """Eight sub-agents want to ask at the same time, and there is room for a few."""

    usage = {"prompt_tokens": 10, "completion_tokens": 60, "total_tokens": 70}

    def reply(request: Request) -> Reply:
        told = str(request.messages[-1].get("content"))
        if "task" in told:
            return Reply(body=completion("a part", usage=usage), delay_seconds=0.2)
        calls = [("helper", f'{{"task": "task {n}"}}', f"c{n}") for n in range(8)]
        return Reply(body=completion("Together.", calls=calls, usage=usage))

    with StubModel(reply) as stub:
        model = {"name": "openai:stub", "baseURL": stub.url, "settings": {"maxTokens": 60}}
        what = manifest(
            model=stub.url,
            settings={"maxTokens": 60},
            tools=[{"agent": "helper"}],
            agents=[{"name": "helper", "description": "Helps.", "model": model}],
            budget={"tokens": 330},
        )
        ended = agentrun("run", agentrun.write(what), "--run-id", run_id)
        assert ended.code == PAUSED, ended
        used = agentrun.show(run_id)["budget"]["tokens"]["used"]
        assert 330 <= used <= 330 + 70 and used == 70 * stub.count


def test_one_number_bounds_all_tries_and_retry_after_is_honoured(agentrun: Commands, run_id: str) -> None:
    asked_at: list[float] = []

    def reply(request: Request) -> Reply:
        asked_at.append(time.monotonic())
        return error(429, "slow down", **({"retry_after": "3"} if request.number == 1 else {}))

    with StubModel(reply) as stub:
        what = manifest(model=stub.url, budget={"retries": 2})
        ended = agentrun("run", agentrun.write(what), "--run-id", run_id)
        assert ended.code == PAUSED and "budget.retries: 2 of 2" in ended.err, ended
        assert "slow down" in ended.err, "what the provider says is told"
        assert stub.count == 3
        assert asked_at[1] - asked_at[0] >= 3.0, "Retry-After is the shortest wait"
        shows = agentrun.show(run_id)
        assert (shows["reason"], shows["budget"]["retries"]) == ("BudgetExceeded", {"used": 2, "limit": 2})
        assert agentrun("resume", run_id).code == PAUSED and stub.count == 3, "there is no room yet"


def test_a_limit_may_fail_the_run_instead(agentrun: Commands, run_id: str) -> None:
    with StubModel(talk(5)) as stub:
        budget = {"turns": 2, "onExceeded": "Fail"}
        what = manifest(model=stub.url, tools=[lookup()], budget=budget)
        ended = agentrun("run", agentrun.write(what), "--run-id", run_id)
        assert ended.code == 1 and "budget.turns" in ended.err, ended
        assert stub.count == 2
        assert agentrun.show(run_id)["phase"] == "Failed"
        again = agentrun("run", agentrun.folder / "run.yaml", "--run-id", run_id)
        assert again.code == 1 and stub.count == 2, "its outcome is reported, and nothing runs"
