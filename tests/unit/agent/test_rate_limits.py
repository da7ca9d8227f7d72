"""A model that asks for a pause gets one from every node of the run; counted at the server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from agentrun.models.limits import PAUSE_SECONDS_MAX, RateLimits
from tests.support.agents import in_simulated_time
from tests.support.live_runs import LiveRun, manifest
from tests.support.sim.loop import SimLoop
from tests.support.stub_model import AnyReply, Reply, Request, StubModel, completion, error

PAUSE_SECONDS = 1.0


def model(stub: StubModel, name: str = "limited") -> dict[str, Any]:
    return {"name": f"openai:{name}", "baseURL": stub.url}


def three_agents(stub: StubModel) -> dict[str, Any]:
    """Two that share a model, and one that does not."""
    subs: list[dict[str, Any]] = [
        {"name": "first", "model": model(stub)},
        {
            "name": "second",
            "model": model(stub),
            "tools": [
                {"name": "echo", "python": {"entrypoint": "tests.support.agents:echo"}, "effect": "read_only"}
            ],
        },
        {"name": "other", "model": model(stub, "free")},
    ]
    tools = [{"agent": sub["name"]} for sub in subs]
    return manifest(model(stub, "root"), agent={"tools": tools}, agents=subs)


class Server:
    """Refuses the first question of the agent `first`, and has `second` ask again meanwhile."""

    def __init__(self, refusal: Callable[[], Reply]) -> None:
        self.refusal = refusal
        self.refused_at = 0.0

    def __call__(self, request: Request) -> AnyReply:
        task = str(request.messages[-1]["content"])
        if request.body["model"] == "root":
            if request.messages[-1]["role"] == "tool":
                return "all done"
            tasks = ("first", "second", "other")
            return completion(calls=[(name, f'{{"task": "{name}"}}', name) for name in tasks])
        if task == "first" and not self.refused_at:
            self.refused_at = time.monotonic()
            return self.refusal()
        if task == "second":
            call = completion(calls=[("echo", '{"text": "x", "seconds": 0.01}')])
            return Reply(body=call, delay_seconds=0.3)  # until the refusal is known
        if task == "other":
            return Reply(body=completion("other"), delay_seconds=0.2)
        return "limited"


def in_a_moment() -> str:
    """An HTTP date has whole seconds: at least PAUSE_SECONDS from now."""
    return format_datetime(datetime.now(UTC) + timedelta(seconds=PAUSE_SECONDS + 1), usegmt=True)


@pytest.mark.parametrize(
    "headers",
    [
        lambda: {"retry-after": "1"},
        lambda: {"retry-after-ms": "1000"},
        lambda: {"retry-after": in_a_moment()},
        lambda: {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1s"},
    ],
    ids=["seconds", "milliseconds", "date", "reset"],
)
def test_nobody_of_a_run_asks_a_limited_model_before_its_time(headers: Any) -> None:
    server = Server(lambda: error(429, "slow down", **headers()))
    with StubModel(server) as stub:
        run = LiveRun(three_agents(stub))
        assert run.go().reason == "Completed"
    limited = [request for request in stub.requests if request.body["model"] == "limited"]
    assert len(limited) == 4 and stub.count == 4 + 1 + 2, "`first` twice, `second` twice, and no more"
    # The first question of each may leave before the refusal is known; what follows may not.
    first_again = [r for r in limited if r.messages[-1]["content"] == "first"][1]
    second_again = next(r for r in limited if r.messages[-1]["role"] == "tool")
    assert min(first_again.at, second_again.at) - server.refused_at >= PAUSE_SECONDS
    free = next(r for r in stub.requests if r.body["model"] == "free")
    assert free.at < first_again.at, "another model is asked meanwhile"
    assert run.history.totals.retries == 1, "one retry, for the one that failed"


def test_who_waits_for_a_limited_model_is_stopped_at_once() -> None:
    """By a drain: a node that waits has not begun."""
    from agentrun.graph.budget import Budget, Limits
    from agentrun.graph.types import NotLaunched
    from agentrun.log.replay import Totals

    async def main(loop: SimLoop) -> None:
        began = loop.time()
        budget = Budget(Limits(), Totals())
        waiting = asyncio.create_task(budget.wait(3600))
        await asyncio.sleep(10)
        budget.set_limits(Limits(tokens=5))  # wakes those who wait for room, and nobody else
        await asyncio.sleep(10)
        assert not waiting.done()
        budget.close(NotLaunched())
        with pytest.raises(NotLaunched):
            await waiting
        assert loop.time() - began < 30

    in_simulated_time(main)


def test_a_pause_is_only_ever_made_longer() -> None:
    async def main(_loop: SimLoop) -> None:
        limits = RateLimits()
        limits.pause("m", 10)
        limits.pause("m", 3)
        assert limits.left("m") == pytest.approx(10)
        assert limits.left("other") == 0
        await asyncio.sleep(4)
        assert limits.left("m") == pytest.approx(6)
        await asyncio.sleep(6)
        assert limits.left("m") == 0
        limits.pause("m", float("inf"))
        assert limits.left("m") <= PAUSE_SECONDS_MAX

    in_simulated_time(main)


def test_a_fallback_is_asked_while_the_own_model_pauses() -> None:
    def reply(request: Request) -> AnyReply:
        return error(429, "slow", retry_after="600") if request.body["model"] == "limited" else "free"

    with StubModel(reply) as stub:
        own = {**model(stub), "fallbacks": [model(stub, "free")]}
        run = LiveRun(manifest(own))
        assert run.go(seconds_max=20).reason == "Completed"
    assert run.answer == "free" and stub.count == 2
