"""One seeded history: a manifest's agent, a strict provider, and processes that come and go.

    History(seed, "anthropic").execute()

Each process is a new session over nothing but the log. It is killed in any step, around any
append or at any moment, drained, cancelled, or let be, until the run has ended. Between two of
them a person answers calls that wait and gives room in the budget. Then `check` looks at the
log, at what the tools have seen and at what the provider has said.
"""

from __future__ import annotations

import asyncio
import functools
import random
import ssl
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any
from unittest import mock

from agentrun.agent import prepare
from agentrun.graph.executor import Executor, Outcome, RetryWaits
from agentrun.graph.types import NodeKind, Spawned, scope_of
from agentrun.log.asks import answer_row, waiting
from agentrun.log.replay import OWN_KINDS
from agentrun.log.store import AttemptOutcome, InboxRow
from agentrun.models import transport
from agentrun.models.wire.ids import calls_of
from agentrun.proto import log_pb2
from agentrun.proto import transcript_pb2 as pb
from tests.support.agents import AgentBench, Crash, During
from tests.support.strict.anthropic import Anthropic
from tests.support.strict.chat import Chat
from tests.support.strict.google import Google
from tests.support.strict.ledger import Ledger, Shape
from tests.support.strict.responses import Responses
from tests.support.strict.tools import EFFECTS
from tests.support.strict.wire import Wire

SHAPES: Mapping[str, Callable[[], Shape]] = {
    "anthropic": Anthropic,
    "openai": Chat,
    "openai-responses": Responses,
    "google": Google,
}
PROCESSES_MAX = 7
"""So many are disturbed; those behind them are let be."""
PROCESSES_AFTER_MAX = 40
"""So many of those bring any run to its end, each answered and given room in its budget."""

_SUBS = ("helper", "deep")
_TOOLS = ("look", "put", "send", "ask_send", "resend")
_FAILURES = ("OutputTruncated", "LoopDetected", "OutputInvalid")
"""Ends that a model may bring about."""


def manifest(rng: random.Random, provider: str) -> dict[str, Any]:
    """An agent with tools of every effect, and often agents below it."""
    agents = [_agent(rng, provider, "helper", ("deep",)), _agent(rng, provider, "deep", ())]
    with_agents = rng.random() < 0.5
    own = _agent(rng, provider, "", ("helper",) if with_agents else ())
    return {
        "apiVersion": "agentrun.dev/v1alpha1",
        "kind": "AgentRun",
        "metadata": {"name": "strict"},
        "spec": {
            "prompt": rng.choice(["Go on.", "é 😀 \u2028", "  spaces  "]),
            "agent": own,
            "agents": agents if with_agents else [],
            "concurrency": rng.choice([1, 2, 5, 16]),
            "budget": {"retries": 10_000, **rng.choice([{}, {}, {"tokens": 8000}, {"turns": 3}])},
        },
    }


def _agent(rng: random.Random, provider: str, name: str, agents: tuple[str, ...]) -> dict[str, Any]:
    tools = [
        _tool(rng, "look", "read_only"),
        _tool(rng, "put", "idempotent"),
        _tool(rng, "send", "unsafe"),
        _tool(rng, "ask_send", "unsafe", onUnknown="Ask"),
        _tool(rng, "resend", "unsafe", onUnknown="Retry"),
        *({"agent": agent, **_asked(rng)} for agent in agents),
    ]
    rng.shuffle(tools)
    settings = rng.choice([{}, {"maxTokens": 500}, {"temperature": 0.25}, {"stream": False}])
    model = {"name": f"{provider}:strict", "baseURL": "http://strict.test", "settings": settings}
    instructions = rng.choice(["Be brief.", " Spaces. \n", "é \u2028 <b>"])
    agent = {"model": model, "tools": tools[: rng.choice([0, 2, 6, 6, 6])], "instructions": instructions}
    if rng.random() < 0.1:
        agent["outputSchema"] = {"type": "object", "properties": {"x": {"type": "string"}}}
    return {"name": name, "description": f"Does what {name} does.", **agent} if name else agent


def _tool(rng: random.Random, name: str, effect: str, **more: Any) -> dict[str, Any]:
    python = {"entrypoint": f"tests.support.strict.tools:{name}"}
    return {"name": name, "python": python, "effect": effect, "timeoutSeconds": 20, **more, **_asked(rng)}


def _asked(rng: random.Random) -> dict[str, Any]:
    return {"requireApproval": {"policy": "Always"}} if rng.random() < 0.15 else {}


class StrictBench(AgentBench):
    """A run whose processes all talk to one strict provider."""

    def __init__(self, manifest: Mapping[str, Any], wire: Wire, *, seed: int) -> None:
        super().__init__(manifest, waits=RetryWaits(first=0.1, last=0.5), seed=seed, record=False)
        self.wire = wire
        self._kept: list[object] = []

    def plan(self) -> tuple[Mapping[str, NodeKind], Spawned]:
        client = functools.partial(transport.GuardedClient, self.wire.carrier())
        with (
            mock.patch.object(transport, "GuardedClient", client),
            mock.patch.object(ssl.SSLContext, "load_verify_locations"),  # slow, and nobody connects
        ):
            prepared = prepare(self.spec, {})
        self._kept.append(prepared)  # an SDK closes itself in a task when it is forgotten
        return prepared.kinds, prepared.root

    def post(self, row: InboxRow) -> None:
        """A person's answer; another one may have come first."""

        async def main() -> None:
            await self.store().post(self.run_id, row)

        self.loop.run(main())


class History:
    """See the module's docstring."""

    def __init__(self, seed: int, provider: str, bench: Callable[..., StrictBench] = StrictBench) -> None:
        self.rng = random.Random(f"{provider} {seed}")
        self.ledger = Ledger(SHAPES[provider](), seed, _SUBS)
        wire = Wire(self.ledger, random.Random(seed), trouble=self.rng.choice([0.0, 0.1, 0.3]))
        self.bench = bench(manifest(self.rng, provider), wire, seed=seed)
        self.cancelled = False

    def execute(self) -> None:
        """Runs it to its end, and checks it."""
        bench, previous = self.bench, AttemptOutcome.DISRUPTED
        for process in range(PROCESSES_MAX + PROCESSES_AFTER_MAX):
            crash, during = self._fate() if process < PROCESSES_MAX else (None, None)
            found = bench.run(crash, during=during, previous=previous)
            previous = AttemptOutcome.CRASHED if found is None else AttemptOutcome.PAUSED
            self._refused()
            if bench.history.final is not None:
                break
            self._steer(found, certainly=process >= PROCESSES_MAX)
        self.check()

    def _steer(self, found: Outcome | None, *, certainly: bool) -> None:
        """What a person does while no process is at work."""
        if found is not None and found.reason == "BudgetExceeded":
            for limit in ("tokens", "turns"):
                if limit in self.bench.budget:
                    self.bench.budget[limit] += 20_000 if limit == "tokens" else 3
        for asked in waiting(self.bench.history):
            if certainly or self.rng.random() < 0.7:
                self.bench.post(self._answer(asked.id))

    def _answer(self, asked: str) -> InboxRow:
        rng = self.rng
        other = f'{{"task": "Another task, {asked}."}}'  # no two agents are asked the same
        changed = rng.choice(["", "", '{"item": "changed"}', other])
        approve = rng.random() < 0.6
        return answer_row(asked, approve=approve, by="ann", reason="so", arguments=changed if approve else "")

    def _fate(self) -> tuple[Crash | None, During | None]:
        rng = self.rng
        draw = rng.random()
        if draw < 0.25:
            return Crash(step=rng.choice([rng.randint(1, 60), rng.randint(1, 900)])), None
        if draw < 0.5:
            return Crash(append=rng.randint(1, 9), after=rng.random() < 0.5), None
        if draw < 0.65:
            return Crash(seconds=rng.random() * rng.choice([0.1, 2.0, 20.0])), None
        if draw < 0.9:
            return None, self._drain(
                rng.random() * rng.choice([0.1, 2.0, 20.0]), rng.choice([0.0, 0.5, 30.0])
            )
        if draw < 0.93:
            self.cancelled = True
            return None, self._cancel(rng.random() * 5, at_once=rng.random() < 0.5)
        return None, None

    def _drain(self, seconds: float, grace: float) -> During:
        async def during(executor: Executor) -> None:
            await asyncio.sleep(seconds)
            executor.pause("Terminated", within_seconds=grace)

        return during

    def _cancel(self, seconds: float, *, at_once: bool) -> During:
        async def during(executor: Executor) -> None:
            await asyncio.sleep(seconds)
            executor.cancel("shutdown", at_once=at_once)

        return during

    # --- what has to hold

    def _refused(self) -> None:
        assert not self.ledger.refusals, "\n".join(self.ledger.refusals)

    def check(self) -> None:
        """At the end of the run."""
        self._refused()
        history = self.bench.history  # it replays: no hole, and each id stands once
        final = history.final
        assert final is not None and history.final_seq == history.head
        if final.final.outcome == log_pb2.OUTCOME_FAILED:
            assert final.final.reason in _FAILURES, final.final
        elif not self.cancelled:
            assert final.final.outcome == log_pb2.OUTCOME_SUCCEEDED, final.final
        self._check_turns()
        self._check_results(whole=final.final.outcome == log_pb2.OUTCOME_SUCCEEDED)
        self._check_effects()
        self._check_sums()

    def _turns(self) -> dict[str, pb.AssistantTurn]:
        done = self.bench.history.done
        kind = "run_assistant_turn"
        return {i: pb.AssistantTurn.FromString(r.output.inline) for i, r in done.items() if r.kind == kind}

    def _check_turns(self) -> None:
        """Each turn is an answer that the provider gave, once, and costs what it cost."""
        seen = Counter(turn.response_id for turn in self._turns().values())
        assert all(count == 1 for count in seen.values()), seen
        for node_id, turn in self._turns().items():
            given, cost = self.ledger.given[turn.response_id], self.bench.history.done[node_id].cost
            tokens_in, cached, out, reasoning = given.answer.usage
            found = (cost.tokens_in, cost.tokens_cached, cost.tokens_out, cost.tokens_reasoning)
            assert found == (tokens_in, cached, out, reasoning), (node_id, found, given.answer.usage)
            assert len(calls_of(turn)) == len(given.answer.calls)
            assert cost.turns == 1

    def _check_results(self, *, whole: bool) -> None:
        """Each call of a turn has its result before the next turn is asked for."""
        done = self.bench.history.done
        for node_id, turn in self._turns().items():
            scope = scope_of(node_id)
            number = int(node_id.rpartition("-")[2])
            answered = f"{scope}turn-{number + 1}" in done or (whole and not scope)
            wanted = [f"{scope}call-{number}-{index}" for index in range(len(calls_of(turn)))]
            missing = [call for call in wanted if call not in done]
            assert not (answered and missing), f"{node_id}: no result of {missing}"
            if self.ledger.given[turn.response_id].answer.end == "length":
                outcomes = {_result(done[call]).outcome for call in wanted if call in done}
                assert outcomes <= {pb.TOOL_OUTCOME_NOT_RUN}, f"{node_id} was cut, and its calls are made"

    def _check_effects(self) -> None:
        """An unsafe call took effect once at most, and once if its result says so."""
        effects = EFFECTS.pop(str(self.bench.run_id), [])
        keys = {effect.node_id: effect.key for effect in effects}
        assert len(set(keys.values())) == len(keys), "two calls share a key"
        assert all(effect.key == keys[effect.node_id] for effect in effects), "a call has two keys"
        counts = Counter((effect.tool, effect.node_id) for effect in effects)
        again = Counter(
            record.parents[0] for record in self.bench.records if record.error.reason == "OutcomeUnknown"
        )
        for (tool, node_id), count in counts.items():
            allowed = {"send": 1, "ask_send": 1 + again[node_id]}.get(tool, count)
            assert count <= allowed, f"{node_id} was sent {count} times"
        for node_id, record in self.bench.history.done.items():
            if record.kind != "tool_call":
                continue
            result = _result(record)
            if result.name not in _TOOLS:
                continue
            count = counts[result.name, node_id]
            if result.outcome == pb.TOOL_OUTCOME_OK:
                assert count >= 1, f"{node_id} says that it was made"
            if result.outcome in (pb.TOOL_OUTCOME_NOT_RUN, pb.TOOL_OUTCOME_DENIED):
                assert count == 0, f"{node_id} says that it was not made, and was {count} times"

    def _check_sums(self) -> None:
        records, totals = self.bench.records, self.bench.history.totals
        for name in ("tokens_in", "tokens_out", "tokens_cached", "tokens_reasoning", "turns", "retries"):
            assert getattr(totals, name) == sum(getattr(r.cost, name) for r in records), name
        nodes = [r for r in records if r.kind not in OWN_KINDS or r.kind == "finalize_run"]
        assert len({r.id for r in nodes}) == len(nodes)
        assert totals.turns == len(self._turns())


def _result(record: log_pb2.NodeRecord) -> pb.ToolResult:
    return pb.ToolResult.FromString(record.output.inline)
