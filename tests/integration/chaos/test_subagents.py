"""Agents within agents, killed and gone on with: one budget, one row a node, one cancel for all."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from agentrun.log.postgres import PostgresStore
from agentrun.proto import transcript_pb2 as pb
from tests.support.chaos import http_tool, manifest, query, records, rows, shown, sound, sums
from tests.support.commands import Commands
from tests.support.stub_model import Reply, Request, StubModel, completion
from tests.support.stub_tools import Answer, StubTools

MANY = 10
KILLS = 6
PAUSED = 75
TOKENS = 15
"""Of each turn of the stub."""


def stub(url: str, name: str, tools: list[dict[str, Any]], **settings: Any) -> dict[str, Any]:
    """A sub-agent at a stub."""
    model: dict[str, Any] = {"name": "openai:stub", "baseURL": url}
    if settings:
        model["settings"] = settings
    return {"name": name, "description": f"The {name}.", "model": model, "tools": tools}


def level_of(request: Request) -> str:
    """Which agent asks: the tool that it has tells."""
    tools = request.body.get("tools") or [{"function": {"name": "none"}}]
    return str(tools[0]["function"]["name"])


def three_levels(request: Request) -> Reply:
    """Ten at once at the top; each asks one below, which uses a tool."""
    level, last = level_of(request), request.messages[-1]
    if last["role"] == "tool":
        told = [str(m["content"]) for m in request.messages if m["role"] == "tool"]
        return Reply(
            body=completion(f"{level}: " + ", ".join(sorted(told)) if level == "middle" else told[0])
        )
    if level == "work":
        return Reply(body=completion("I work.", calls=[("work", '{"n": 1}')]), delay_seconds=0.05)
    count = MANY if level == "middle" else 1
    calls = [(level, json.dumps({"task": f"{last['content']} {n}"}), f"c{n}") for n in range(count)]
    return Reply(body=completion("Do it.", calls=calls), delay_seconds=0.05)


def tree(model: StubModel, tools: StubTools, **spec: Any) -> dict[str, Any]:
    kit = [http_tool("work", tools.url("/work"), "idempotent")]
    agents = [stub(model.url, "middle", [{"agent": "leaf"}]), stub(model.url, "leaf", kit)]
    return manifest(model=model.url, tools=[{"agent": "middle"}], agents=agents, concurrency=64, **spec)


def test_three_levels_ten_at_once_killed_and_resumed(agentrun: Commands, run_id: str) -> None:
    moments = random.Random(11)
    with StubModel(three_levels) as model, StubTools() as tools:
        tools.always("/work", Answer(body=b'"done"', delay_seconds=0.1))
        file = agentrun.write(tree(model, tools, budget={"retries": 50, "turns": 100}))
        kills = 0
        unfinished: Counter[str] = Counter()
        while kills < KILLS:
            before = len(rows(agentrun.dsn, run_id))
            seen = Counter(str(request.key) for request in tools.requests)
            running = agentrun.start("run", file, "--run-id", run_id)
            more = before + 1 + moments.randint(1, 25)
            running.until(lambda: running.ended or len(rows(agentrun.dsn, run_id)) >= more)  # noqa: B023
            if running.ended:
                break
            running.kill()
            kills += 1
            stands = records(agentrun.dsn, run_id)
            made = Counter(str(request.key) for request in tools.requests) - seen
            unfinished.update(key for key in made if key.partition(":")[2] not in stands)
        ended = agentrun("run", file, "--run-id", run_id)
        assert kills >= 4, "it was too quick to be killed in its middle"
        assert ended.code == 0, ended
        assert ended.out == "middle: " + ", ".join(['"done"'] * MANY) + "\n", "each child's answer, once"
        history = sound(agentrun.dsn, run_id)  # one row a node: no id stands twice
        calls = [id_ for id_, record in history.done.items() if record.kind == "tool_call"]
        assert Counter(id_.count("/") for id_ in calls) == {0: MANY, 1: MANY, 2: MANY}
        assert history.totals.turns == 2 + MANY * (2 + 2)
        assert history.totals.tokens == history.totals.turns * TOKENS, "each turn's tokens, once"
        assert history.totals.retries == kills, "the crashes, and nothing else"
        assert shown(agentrun.show(run_id)["budget"]) == sums(agentrun.events(run_id))
        for request, count in Counter(str(seen.key) for seen in tools.requests).items():
            assert count <= 1 + unfinished[request], f"{request} was called again although it was recorded"


def test_a_cancel_ends_the_whole_tree_within_a_second(agentrun: Commands) -> None:
    took = []
    for _ in range(3):  # a machine that is busy elsewhere may be late once
        run_id = str(uuid4())
        with StubModel(three_levels) as model, StubTools() as tools:
            tools.always("/work", Answer(then="hang"))
            running = agentrun.start("run", agentrun.write(tree(model, tools)), "--run-id", run_id)
            running.until(lambda: tools.count("/work") == MANY)
            asked = asyncio.run(_terminate(agentrun.dsn, run_id))
            assert running.wait().code == 1
            requests = model.count
        (row,) = query(
            agentrun.dsn,
            "SELECT extract(epoch FROM ended_at)::float8 AS at FROM run WHERE run_id = $1",
            UUID(run_id),
        )
        took.append(row["at"] - asked)
        assert agentrun.show(run_id)["phase"] == "Cancelled"
        assert requests == 1 + MANY * 2, "nothing was asked behind it"
        if took[-1] < 1.0:
            return
    raise AssertionError(f"seconds from the cancel to the end: {took}")


async def _terminate(dsn: str, run_id: str) -> float:
    """Sets the level as `cancel --now` does; the store's time then."""
    store = PostgresStore.open(dsn)
    try:
        info = await store.get_run(UUID(run_id))
        assert info is not None and info.read_at is not None
        levels = replace(info.run.levels, generation=info.run.levels.generation + 1, shutdown="Terminate")
        assert await store.set_levels(UUID(run_id), levels)
        await store.notify([UUID(run_id)])
        return info.read_at.timestamp()
    finally:
        await store.close()


# --- the budget of the whole tree


def spender(tokens_out: int) -> dict[str, int]:
    return {"prompt_tokens": 10, "completion_tokens": tokens_out, "total_tokens": 10 + tokens_out}


def test_fifty_at_once_with_room_for_five_spend_one_response_over_at_most(
    agentrun: Commands, run_id: str
) -> None:
    response = 10 + 90

    def reply(request: Request) -> Reply:
        if "task" in str(request.messages[-1].get("content")):
            return Reply(body=completion("a part", usage=spender(90)), delay_seconds=0.1)
        if request.messages[-1]["role"] == "tool":
            return Reply(body=completion("done", usage=spender(90)))
        calls = [("helper", json.dumps({"task": f"task {n}"}), f"c{n}") for n in range(50)]
        return Reply(body=completion("All.", calls=calls, usage=spender(90)))

    with StubModel(reply) as model:
        helper = stub(model.url, "helper", [], maxTokens=90)
        limit = response * 6  # the first turn, and five more
        what = manifest(
            model=model.url,
            settings={"maxTokens": 90},
            tools=[{"agent": "helper"}],
            agents=[helper],
            concurrency=64,
            budget={"tokens": limit},
        )
        ended = agentrun("run", agentrun.write(what), "--run-id", run_id)
        assert ended.code == PAUSED and "budget.tokens" in ended.err, ended
        used = agentrun.show(run_id)["budget"]["tokens"]["used"]
        assert limit <= used <= limit + response and used == response * model.count
        # What is done is kept: with room for all, none of it is asked again.
        ended = agentrun("resume", run_id, "--budget-tokens", response * 100)
        assert (ended.code, ended.out, model.count) == (0, "done\n", 1 + 50 + 1), ended


def test_what_sub_agents_spend_counts_once_and_stops_the_whole_tree(agentrun: Commands, run_id: str) -> None:
    """A child of two turns, then five at once; killed in their middle, and gone on with."""

    def reply(request: Request) -> Reply:
        said = sum(message["role"] == "assistant" for message in request.messages)
        if level_of(request) == "lookup":  # a child: 1,000, then 500
            if said:
                return Reply(body=completion("a part", usage=spender(490)), delay_seconds=0.3)
            calls = [("lookup", '{"topic": "moon", "seconds": 0}')]
            return Reply(body=completion("I look.", calls=calls, usage=spender(990)), delay_seconds=0.3)
        count = (1, 5)[said] if said < 2 else 0
        calls_ = [("child", json.dumps({"task": f"part {n}"}), f"c{n}") for n in range(count)]
        return Reply(body=completion("Next." if count else "done", calls=calls_, usage=spender(0)))

    lookup = {
        "name": "lookup",
        "python": {"entrypoint": "agentrun.tools.demo:lookup"},
        "effect": "read_only",
    }
    with StubModel(reply) as model:
        what = manifest(
            model=model.url,
            settings={"maxTokens": 50},
            tools=[{"agent": "child"}],
            agents=[stub(model.url, "child", [lookup], maxTokens=1000)],
            budget={"tokens": 2000, "retries": 5},
        )
        ended = agentrun("run", agentrun.write(what), "--run-id", run_id)
        assert ended.code == PAUSED and "paused (BudgetExceeded): budget.tokens" in ended.err, ended
        used = agentrun.show(run_id)["budget"]["tokens"]["used"]
        assert used == 10 + 1500 + 10 + 1000, "the child once, and one response of the five"
        kept = pb.ToolResult.FromString(records(agentrun.dsn, run_id)["call-1-0"].output.inline)
        assert kept.content == "a part", "what was done is kept"
        # Killed among the five, with room for all of them.
        running = agentrun.start("resume", run_id, "--budget-tokens", 20000)
        running.until(lambda: _turns_below(agentrun, run_id, "call-2-") >= 3)
        running.kill()
        ended = agentrun("resume", run_id)
        assert (ended.code, ended.out) == (0, "done\n"), ended
        history = sound(agentrun.dsn, run_id)
        assert history.totals.tokens == 3 * 10 + 6 * 1500, "each turn once, also after a replay"
        shows = agentrun.show(run_id)
        assert shows["budget"]["tokens"] == {"used": history.totals.tokens, "limit": 20000}
        assert shown(shows["budget"]) == sums(agentrun.events(run_id))


def test_a_sub_agent_that_calls_itself_is_bounded(agentrun: Commands, run_id: str) -> None:
    def reply(request: Request) -> dict[str, Any]:
        last = request.messages[-1]
        if last["role"] == "tool":
            return completion(str(last["content"]))
        return completion("Deeper.", calls=[("self", '{"task": "again"}')])

    with StubModel(reply) as model:
        itself = stub(model.url, "self", [{"agent": "self"}])
        what = manifest(model=model.url, tools=[{"agent": "self"}], agents=[itself])
        ended = agentrun("run", agentrun.write(what), "--run-id", run_id)
        assert ended.code == 0 and "at most 8 deep" in ended.out, ended
        assert model.count == 2 * 8


def _turns_below(agentrun: Commands, run_id: str, calls: str) -> int:
    return sum(id_.startswith(calls) and "/turn-" in id_ for id_ in records(agentrun.dsn, run_id))


# --- approvals below


@pytest.mark.parametrize("kills", [0, 2])
def test_calls_that_wait_in_several_sub_agents_are_each_made_once(
    agentrun: Commands, run_id: str, kills: int
) -> None:
    def reply(request: Request) -> dict[str, Any]:
        last = request.messages[-1]
        if last["role"] == "tool":
            return completion(str(last["content"])[:40])
        if level_of(request) == "pay":
            return completion("I pay.", calls=[("pay", '{"n": 1}')])
        calls = [("clerk", json.dumps({"task": f"pay {n}"}), f"c{n}") for n in range(3)]
        return completion("All.", calls=calls)

    with StubModel(reply) as model, StubTools() as tools:
        tools.always("/pay", Answer(body=b'"paid"', delay_seconds=0.3 if kills else 0.0))
        pay = http_tool("pay", tools.url("/pay"), "idempotent", requireApproval={"policy": "Always"})
        clerk = stub(model.url, "clerk", [pay])
        what = manifest(model=model.url, tools=[{"agent": "clerk"}], agents=[clerk], budget={"retries": 9})
        ended = agentrun("run", agentrun.write(what), "--run-id", run_id)
        assert ended.code == PAUSED and "3 calls wait for an answer" in ended.err, ended
        assert tools.count("/pay") == 0
        found = agentrun("approvals", run_id, "-o", "json").json["calls"]
        # They are told in the order in which they were asked, which is anybody's.
        waits = sorted(found, key=lambda call: str(call["node"]))
        assert [call["node"] for call in waits] == [f"call-1-{n}/call-1-0" for n in range(3)]
        assert agentrun("approve", run_id, waits[0]["id"]).code == 0
        assert agentrun("deny", run_id, waits[1]["id"]).code == 0
        for _ in range(kills):
            before = tools.count("/pay")
            running = agentrun.start("resume", run_id)
            running.until(lambda: tools.count("/pay") > before)  # noqa: B023
            running.kill()
        ended = agentrun("resume", run_id)
        assert ended.code == PAUSED and "1 call waits for an answer" in ended.err, ended
        assert agentrun("approve", run_id, waits[2]["id"]).code == 0
        assert agentrun("resume", run_id).code == 0
        keys = Counter(str(seen.key) for seen in tools.requests)
        assert set(keys) == {f"{run_id}:call-1-{n}/call-1-0" for n in (0, 2)}, "the denied one never"
        assert keys[f"{run_id}:call-1-2/call-1-0"] == 1
        assert keys[f"{run_id}:call-1-0/call-1-0"] == 1 + kills, "again under its key, after each kill"
        assert sound(agentrun.dsn, run_id).totals.retries == kills
