"""What a seed has drawn for one run: a small graph with all that graphs can do, and its node kinds.

`width` chains of `depth` works, a join, graphs within the graph at once, the end.
Works call a model; some fail, some are too slow for their time and heed a cancel
late, some give large outputs, some may be called once only, and ask a person before.
The answer depends on every node, so a wrong replay shows.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentrun.graph.node import NodeRun
from agentrun.graph.types import (
    NodeContext,
    NodeError,
    NodeKind,
    NodeResult,
    Question,
    Spawned,
    Usage,
    scope_of,
)
from agentrun.log.asks import read_answer
from agentrun.log.runlog import INLINE_BYTES_MAX
from agentrun.proto import log_pb2 as pb
from tests.support.sim.world import RESPONSE_TOKENS_MAX, Watched, World

HASTY_SECONDS, BRISK_SECONDS = 3.0, 5.0
"""How long a work, and a graph within, may take where they have a bound."""

RESERVED_TOKENS = 30


@dataclass
class Plan:
    """See the module's docstring. `fatal`: this node fails the run, once."""

    width: int
    depth: int
    inner: list[tuple[int, int]]
    """A graph within the graph for each, of such a width and depth."""
    failing: dict[str, int]
    hasty: set[str]
    """Works and graphs with a bound on their time."""
    deaf: set[str]
    """Works that heed a cancel late, and may give a result all the same."""
    large: set[str]
    asking: set[str]
    """Works that wait for a person, and whose call is never repeated."""
    fatal: str
    concurrency: int
    budget: dict[str, Any] = field(default_factory=dict)

    @property
    def works(self) -> list[str]:
        works = [f"work-{w}-{d}" for w in range(self.width) for d in range(self.depth)]
        for sub, (width, depth) in enumerate(self.inner):
            works += [f"sub-{sub}/work-{w}-{d}" for w in range(width) for d in range(depth)]
        return works

    @property
    def subs(self) -> list[str]:
        return [f"sub-{number}" for number in range(len(self.inner))]

    @property
    def answer(self) -> int:
        return sum(map(value_of, self.works))

    def size(self, scope: str) -> tuple[int, int]:
        """Width and depth of the graph that has this scope ("": the run's own)."""
        return self.inner[int(scope[4:-1])] if scope else (self.width, self.depth)

    def spawn(self, name: str, scope: str = "") -> Spawned:
        """The successor, of the kind that its plan says."""
        kind = "sub" if name.startswith("sub") else "work"
        return Spawned(kind="hasty " + kind if scope + name in self.hasty else kind, name=name)


def draw_plan(rng: random.Random) -> Plan:
    inner = [(rng.randint(1, 3), rng.randint(1, 2)) for _ in range(rng.choice([0, 1, 1, 2]))]
    plan = Plan(
        rng.randint(1, 4),
        rng.randint(1, 3),
        inner,
        {},
        set(),
        set(),
        set(),
        set(),
        "",
        rng.choice([1, 3, 16]),
    )
    odd = rng.choice([0.0, 0.3, 0.6])
    plan.failing = {node: rng.randint(1, 2) for node in plan.works if rng.random() < 0.15}
    plan.hasty = {node for node in plan.works if rng.random() < odd}
    plan.hasty |= {node for node in plan.subs if rng.random() < 2 * odd}
    plan.deaf = {node for node in plan.works if rng.random() < odd}
    plan.large = {node for node in plan.works if rng.random() < odd / 2}
    plan.fatal = rng.choice(plan.works) if rng.random() < 0.2 else ""
    if rng.random() < 0.3:
        works = len(plan.works)
        drawn = {
            "turns": rng.randint(1, works),
            "tokens": RESPONSE_TOKENS_MAX * rng.randint(1, works),
            "retries": rng.randint(0, 6),
        }
        plan.budget = {name: value for name, value in drawn.items() if rng.random() < 0.5}
        plan.budget["onExceeded"] = rng.choice(["Pause", "Fail"])
    plan.budget.setdefault("retries", 1000)
    _draw_asking(plan, random.Random(str(rng.getstate()[1][:4])))
    return plan


def _draw_asking(plan: Plan, rng: random.Random) -> None:
    """Drawn apart, so that histories without questions stay as they were. A try of an approved call
    that failed may be followed by another one, so such works do not fail by themselves."""
    if rng.random() < 0.3:
        plan.asking = {node for node in plan.works if rng.random() < 0.4} - {plan.fatal}
        plan.failing = {node: n for node, n in plan.failing.items() if node not in plan.asking}
        plan.hasty -= plan.asking | set(plan.subs)


def value_of(node_id: str) -> int:
    return sum(node_id.encode())


class Graph:
    """The node kinds of a plan, as one process sees them; what a session runs."""

    def __init__(self, world: World, run: Watched, plan: Plan, process: str, fatal: set[str]) -> None:
        self.world = world
        self.run = run
        self.plan = plan
        self.process = process
        self.fatal = fatal
        self.epoch = 0
        self.root = Spawned(kind="start", name="start")
        self.concurrency = plan.concurrency
        self.budget: Mapping[str, Any] = plan.budget

    @property
    def kinds(self) -> dict[str, NodeKind]:
        free = {"start": self.start, "join": self.join, "sum": self.sum, "fan": self.fan, "end": self.end}
        kinds = [NodeKind(name=name, run=run, free=True) for name, run in free.items()]
        for hasty, works, subs in [("", 0.0, 0.0), ("hasty ", HASTY_SECONDS, BRISK_SECONDS)]:
            kinds.append(NodeKind(name=hasty + "work", run=self.work, turn=True, timeout_seconds=works))
            kinds.append(NodeKind(name=hasty + "sub", run=self.sub, timeout_seconds=subs))
        return {kind.name: kind for kind in kinds}

    async def start(self, node: NodeContext) -> NodeResult:
        return NodeResult(output=b"0", spawned=self._chains("", "join"))

    async def work(self, node: NodeContext) -> NodeResult:
        called = node.node_id not in self.plan.asking or await self._may_be_called(node)
        if called:
            await node.reserve(RESERVED_TOKENS)
            await self._call(node)
        _, chain, place = node.name.split("-")
        scope = scope_of(node.node_id)
        deeper = int(place) + 1 < self.plan.size(scope)[1]
        spawned = [self.plan.spawn(f"work-{chain}-{int(place) + 1}", scope)] if deeper else []
        output = str(value_of(node.node_id)).encode()
        if node.node_id in self.plan.large:
            output = output.ljust(INLINE_BYTES_MAX + 1)
        usage = Usage(tokens_in=RESPONSE_TOKENS_MAX if called else 0)
        return NodeResult(output=output, spawned=spawned, usage=usage)

    async def _may_be_called(self, node: NodeContext) -> bool:
        """As an unsafe tool that needs approval: never twice, and never without a person's yes."""
        if node.interrupted:
            return False
        row = await node.ask(Question(reason="ApprovalRequired", what=node.name))
        if read_answer(row).decision != pb.DECISION_APPROVE:
            return False
        await node.intend()
        return True

    async def _call(self, node: NodeContext) -> None:
        assert isinstance(node, NodeRun)
        rng = self.world.loop.rng
        await node.confirm()
        self.world.call(self.run, self.process, self.epoch, node, node.spawn.parents)
        try:
            await asyncio.sleep(rng.choice([0.0, 0.01, 0.5, 4.0, 12.0]) * rng.random())
        except asyncio.CancelledError:
            self._cut_off(node)
            if node.node_id not in self.plan.deaf:
                raise
            await asyncio.sleep(rng.choice([0.01, 0.5, 3.0]) * rng.random())
            if rng.random() < 0.5:
                raise
        if node.try_number <= self.plan.failing.get(node.node_id, 0):
            usage = Usage(tokens_in=RESPONSE_TOKENS_MAX)
            raise NodeError("Flaky", "another try is needed", retryable=True, usage=usage)
        if node.node_id == self.plan.fatal and node.node_id not in self.fatal:
            self.fatal.add(node.node_id)
            raise NodeError("Broken", "no other try is of use", retryable=False)

    def _cut_off(self, node: NodeRun) -> None:
        """It may be for its own time, or that of the graph around it."""
        if node.node_id not in self.plan.hasty and node.scope[:-1] not in self.plan.hasty:
            self.run.cut_off.append((self.process, node.node_id))

    async def join(self, node: NodeContext) -> NodeResult:
        works = [name for kind in ("work", "hasty work") for name in node.outputs(kind)]
        total = sum([int(await node.output(name)) for name in works])
        subs = [self.plan.spawn(name) for name in self.plan.subs]
        end = Spawned(kind="end", name="end", parents=self.plan.subs)
        return NodeResult(output=str(total).encode(), spawned=[*subs, end])

    async def sub(self, node: NodeContext) -> NodeResult:
        return NodeResult(output=await node.subgraph(Spawned(kind="fan", name="fan")))

    async def fan(self, node: NodeContext) -> NodeResult:
        return NodeResult(spawned=self._chains(scope_of(node.node_id), "sum"))

    def _chains(self, scope: str, behind: str) -> list[Spawned]:
        width, depth = self.plan.size(scope)
        first = [self.plan.spawn(f"work-{w}-0", scope) for w in range(width)]
        last = [f"work-{w}-{depth - 1}" for w in range(width)]
        return [*first, Spawned(kind=behind, name=behind, parents=last)]

    async def sum(self, node: NodeContext) -> NodeResult:
        works = [name for kind in ("work", "hasty work") for name in node.outputs(kind)]
        total = sum([int(await node.output(name)) for name in works])
        return NodeResult(output=str(total).encode())

    async def end(self, node: NodeContext) -> NodeResult:
        answer = sum([int(await node.output(name)) for name in ["join", *self.plan.subs]])
        final = pb.Final(outcome=pb.OUTCOME_SUCCEEDED, reason="Completed")
        return NodeResult(output=str(answer).encode(), final=final)
