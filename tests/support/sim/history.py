"""One seeded history: processes come, stall, die and come back over one run's log.

The run is a small graph with all that graphs can do: siblings, chains, joins,
tries that fail, a graph within the graph, and in some histories a node that fails
the run once. Its answer depends on every node, so a wrong replay shows.
"""

from __future__ import annotations

import asyncio
import copy
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from agentrun.graph.budget import Limits
from agentrun.graph.executor import Executor, RetryWaits
from agentrun.graph.node import NodeRun
from agentrun.graph.types import NodeContext, NodeError, NodeKind, NodeResult, Spawned
from agentrun.log.appender import Appender
from agentrun.log.blobs import TableBlobs
from agentrun.log.claim import claim
from agentrun.log.errors import Fenced, LogError, RunEnded, StoreUnavailable
from agentrun.log.memory import Database, MemoryStore
from agentrun.log.replay import FORMAT, REOPENED
from agentrun.log.runlog import RunLog
from agentrun.log.store import AttemptOutcome, LogRow, LogStore, RunRow
from agentrun.proto import log_pb2 as pb
from tests.support.sim.loop import PROCESS, SimLoop
from tests.support.sim.world import Faults, SimClock, SimStore, Violation, World

TROUBLES = [
    "kill",
    "kill at a step",
    "stop",
    "stop in flight",
    "stop in flight",
    "drain",
    "drain hard",
    "overlap",
    "leave",
]
OWNER = "sim"


@dataclass
class Plan:
    """What a seed has drawn. The graph: `width` chains of `depth` works, a join, a graph
    within, more works, the end."""

    width: int
    depth: int
    inner: int
    failing: dict[str, int]
    fatal: str
    concurrency: int


def draw_plan(rng: random.Random) -> Plan:
    width, depth, inner = rng.randint(1, 5), rng.randint(1, 3), rng.randint(0, 3)
    works = [f"work-{w}-{d}" for w in range(width) for d in range(depth)]
    works += [f"sub/in-{i}" for i in range(inner)]
    failing = {node: rng.randint(1, 2) for node in works if rng.random() < 0.15}
    fatal = rng.choice(works) if rng.random() < 0.2 else ""
    return Plan(width, depth, inner, failing, "" if "/" in fatal else fatal, rng.choice([1, 3, 16]))


class FailoverDatabase(Database):
    """May be replaced by a standby that lacks the last statements."""

    KEPT = 8

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__(now)
        self._snapshots: deque[dict[UUID, Any]] = deque(maxlen=self.KEPT)

    def snapshot(self) -> None:
        self._snapshots.append(copy.deepcopy(self.runs))

    def fail_over(self, *, lost: int) -> None:
        self.server = str(int(self.server) + 1)
        if len(self._snapshots) > lost:
            for _ in range(lost):
                self._snapshots.pop()
            self.runs = copy.deepcopy(self._snapshots[-1])


class Graph:
    """The node kinds of a plan, as one process sees them."""

    def __init__(self, world: World, plan: Plan, process: str, fatal: set[str]) -> None:
        self.world = world
        self.plan = plan
        self.process = process
        self.fatal = fatal
        self.epoch = 0

    def kinds(self) -> dict[str, NodeKind]:
        handlers = {
            "start": self.start,
            "work": self.work,
            "join": self.join,
            "sub": self.sub,
            "fan": self.fan,
            "end": self.end,
        }
        free = {"start", "join", "fan", "end"}
        return {name: NodeKind(name=name, run=run, free=name in free) for name, run in handlers.items()}

    async def start(self, node: NodeContext) -> NodeResult:
        chains = [Spawned(kind="work", name=f"work-{w}-0", input=b"0") for w in range(self.plan.width)]
        last = [f"work-{w}-{self.plan.depth - 1}" for w in range(self.plan.width)]
        return NodeResult(output=b"0", spawned=[*chains, Spawned(kind="join", name="join", parents=last)])

    async def work(self, node: NodeContext) -> NodeResult:
        await self._call(node)
        _, _, place = node.name.partition("work-")
        spawned = []
        if place:
            chain, depth = place.split("-")
            if int(depth) + 1 < self.plan.depth:
                spawned = [Spawned(kind="work", name=f"work-{chain}-{int(depth) + 1}")]
        return NodeResult(output=str(value_of(node.node_id)).encode(), spawned=spawned)

    async def _call(self, node: NodeContext) -> None:
        assert isinstance(node, NodeRun)
        rng = self.world.loop.rng
        await node.confirm()
        self.world.call(self.process, self.epoch, node, node.spawn.parents)
        try:
            await asyncio.sleep(rng.choice([0.0, 0.01, 0.5, 4.0, 12.0]) * rng.random())
        except asyncio.CancelledError:
            self.world.cancelled.append((self.process, node.node_id))
            raise
        if node.try_number <= self.plan.failing.get(node.node_id, 0):
            raise NodeError("Flaky", "another try is needed", retryable=True)
        if node.node_id == self.plan.fatal and node.node_id not in self.fatal:
            self.fatal.add(node.node_id)
            raise NodeError("Broken", "no other try is of use", retryable=False)

    async def join(self, node: NodeContext) -> NodeResult:
        total = sum([int(await node.output(name)) for name in node.outputs("work")])
        inner = "/" in node.node_id
        return NodeResult(
            output=str(total).encode(), spawned=[] if inner else [Spawned(kind="sub", name="sub")]
        )

    async def sub(self, node: NodeContext) -> NodeResult:
        output = b"0"
        if self.plan.inner:
            output = await node.subgraph(Spawned(kind="fan", name="fan"))
        return NodeResult(output=output, spawned=[Spawned(kind="end", name="end")])

    async def fan(self, node: NodeContext) -> NodeResult:
        names = [f"in-{i}" for i in range(self.plan.inner)]
        works = [Spawned(kind="work", name=name) for name in names]
        return NodeResult(spawned=[*works, Spawned(kind="join", name="sum", parents=names)])

    async def end(self, node: NodeContext) -> NodeResult:
        answer = int(await node.output("join")) + int(await node.output("sub"))
        final = pb.Final(outcome=pb.OUTCOME_SUCCEEDED, reason="Completed")
        return NodeResult(output=str(answer).encode(), final=final)


def value_of(node_id: str) -> int:
    return sum(node_id.encode())


def answer_of(plan: Plan) -> int:
    works = [f"work-{w}-{d}" for w in range(plan.width) for d in range(plan.depth)]
    return sum(map(value_of, works)) + sum(value_of(f"sub/in-{i}") for i in range(plan.inner))


class Run:
    """Drives one history; `violations` and exceptions are the result."""

    def __init__(self, seed: int, backing: Callable[[SimLoop], LogStore] | None = None) -> None:
        self.rng = random.Random(seed)
        self.loop = SimLoop(self.rng)  # type: ignore[abstract]
        self.database = None if backing else FailoverDatabase(self.loop.time)
        make = backing or (lambda loop: MemoryStore(self.database or Database(loop.time)))
        self.run_id = UUID(int=seed + 1)
        self.world = World(self.loop, self.run_id, make(self.loop))
        scale = self.rng.choice([0.0, 1.0, 3.0])
        self.world.faults = Faults(0.02 * scale, 0.03 * scale, 0.02 * scale, 0.05 * scale)
        if self.database is not None and self.rng.random() < 0.25:
            self.world.strict = False
            self.world.on_statement = self.database.snapshot
        self.plan = draw_plan(self.rng)
        self.fatal: set[str] = set()
        self.executors: dict[str, Executor] = {}
        self.hard: set[str] = set()
        self.count = 0

    def execute(self) -> None:
        state = random.getstate()
        random.seed(self.rng.random())
        try:
            self.loop.run(self._main())
        finally:
            random.setstate(state)
        for violation in self.world.violations:
            raise Violation(violation)
        for error in self.loop.errors:
            raise Violation(f"an error that nobody took: {error}")

    async def _main(self) -> None:
        backing = self.world.backing
        await backing.create_run(
            RunRow(run_id=self.run_id, owner=OWNER, name="sim", definition=b"", digest="")
        )
        for _ in range(self.rng.randint(1, 6)):
            process, task = await self._start()
            await self._trouble(process, task)
        self.world.faults.off = True
        for _ in range(4):
            process, task = await self._start()
            outcome = await task
            if isinstance(outcome, Violation):
                raise outcome
            if await self._over():
                break
        else:
            raise Violation(f"the run does not end: {outcome}")
        await self._judge()

    async def _start(self) -> tuple[str, asyncio.Task[object]]:
        """A process for the run, as a command or an operator starts one."""
        info = await self.world.backing.get_run(self.run_id)
        assert info is not None
        if info.run.ended:
            await self._reopen()
            info = await self.world.backing.get_run(self.run_id)
            assert info is not None
        self.count += 1
        process = f"p{self.count}"
        attempt = await self.world.backing.allocate_attempt(
            self.run_id, expected=info.run.attempt, process=process, previous=AttemptOutcome.DISRUPTED
        )
        token = PROCESS.set(process)
        try:
            task: asyncio.Task[object] = self.loop.create_task(self._process(process, attempt or 0))
        finally:
            PROCESS.reset(token)
        return process, task

    async def _process(self, process: str, attempt: int) -> object:
        """From the claim to the end, as a runner does it; what it ended with."""
        store = SimStore(self.world)
        appender = Appender(store, SimClock(self.loop), outage_seconds_max=600.0)
        graph = Graph(self.world, self.plan, process, self.fatal)
        try:
            log = await claim(
                appender=appender,
                blobs=TableBlobs(store),
                run_id=self.run_id,
                attempt=attempt,
                writer=process.encode(),
            )
            graph.epoch = log.epoch
            executor = Executor(
                log,
                graph.kinds(),
                Spawned(kind="start", name="start"),
                limits=Limits(retries=1000),
                concurrency=self.plan.concurrency,
                waits=RetryWaits(first=0.1, last=1.0),
            )
            self.executors[process] = executor
            watch = self.loop.create_task(self._watch(log, executor))
            outcome = await executor.run()
            watch.cancel()
        except (Fenced, RunEnded, StoreUnavailable) as error:
            self.hard.add(process)
            return error
        except (Violation, LogError, AssertionError) as error:
            return Violation(f"{process}: {error!r}")
        return outcome

    async def _watch(self, log: RunLog, executor: Executor) -> None:
        try:
            await log.watch()
        except LogError as error:
            executor.stop_for(error)

    async def _trouble(self, process: str, task: asyncio.Task[object]) -> None:
        """What happens to a process that runs."""
        rng = self.rng
        kind = rng.choice(TROUBLES)
        if kind == "kill at a step":
            self.loop.kill_at[process] = rng.randint(1, 400)
        await asyncio.sleep(rng.random() * rng.choice([0.02, 1.0, 15.0]))
        if kind == "kill":
            self.loop.kill(process)
        elif kind == "stop":
            self.loop.freeze(process)
            self.loop.call_later(rng.random() * rng.choice([1.0, 12.0, 40.0]), self.loop.thaw, process)
        elif kind == "stop in flight":
            self.world.stop_in_flight[process] = rng.choice([4.0, 7.0, 15.0, 40.0])
            for _ in range(200):  # the next process comes while this one is stopped
                if process in self.world.stop_in_flight and not task.done():
                    await asyncio.sleep(0.1)
        elif kind in ("drain", "drain hard") and process in self.executors:
            within = rng.random() * 3 if kind == "drain hard" else None
            if within is not None:
                self.hard.add(process)
            self._as(process, lambda: self.executors[process].pause("Drained", within_seconds=within))
        elif kind == "overlap" and not self.world.strict and self.database is not None:
            self.database.fail_over(lost=rng.choice([0, 1, 2, 5]))
        elif kind in ("leave", "kill at a step"):
            await asyncio.wait([task], timeout=rng.choice([5.0, 60.0]))
        if task.done() and isinstance(task.result(), Violation):
            raise task.result()  # type: ignore[misc]

    def _as(self, process: str, call: Callable[[], None]) -> None:
        token = PROCESS.set(process)
        try:
            self.loop.call_soon(call)
        finally:
            PROCESS.reset(token)

    async def _over(self) -> bool:
        info = await self.world.backing.get_run(self.run_id)
        await self.world.check()
        history = self.world.history
        assert info is not None and history is not None
        return (
            info.run.ended
            and history.final is not None
            and (history.final.final.outcome == pb.OUTCOME_SUCCEEDED)
        )

    async def _reopen(self) -> None:
        """A run that failed is continued, as a new retryToken does it."""
        await self.world.check()
        history = self.world.history
        assert history is not None
        if history.final is None or history.final.final.outcome == pb.OUTCOME_SUCCEEDED:
            return
        info = await self.world.backing.get_run(self.run_id)
        assert info is not None
        record = pb.NodeRecord(
            format=FORMAT, id=f"reopened.{history.head}", kind=REOPENED, epoch=info.run.epoch + 1
        )
        await self.world.backing.reopen(
            LogRow(run_id=self.run_id, seq=history.head + 1, record=record.SerializeToString())
        )
        await self.world.check()

    async def _judge(self) -> None:
        history = self.world.history
        assert history is not None and history.final is not None
        answer = history.final.output.inline.decode()
        if answer != str(answer_of(self.plan)):
            raise Violation(f"the answer is {answer}, not {answer_of(self.plan)}")
        for process, node_id in self.world.cancelled:
            if process not in self.hard and not self.loop.dead(process):
                raise Violation(f"{process} cut off {node_id}, and was not told to")
