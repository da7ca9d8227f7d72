"""Runs graphs and agents in simulated time, one process after another over one run's log.

    bench = AgentBench(manifest(turns=[{"toolCalls": [call("echo", text="a")]}, {"text": "done"}]))
    assert bench.run(Crash(append=3)) is None       # a process that is killed before its third append
    assert bench.run().reason == "Completed"        # another one goes on
    assert bench.starts("echo") == 1

Time costs nothing, a crash is a SIGKILL (not even a `finally` runs), and each process has
a store, an appender, an executor and a program of its own.
"""

from __future__ import annotations

import asyncio
import copy
import json
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock
from uuid import UUID, uuid4

from agentrun.agent import prepare
from agentrun.graph.budget import limits_of
from agentrun.graph.drive import Drive
from agentrun.graph.executor import Executor, Outcome, RetryWaits
from agentrun.graph.types import Handler, NodeKind, Spawned, scope_of
from agentrun.log.appender import Appender
from agentrun.log.blobs import TableBlobs
from agentrun.log.claim import claim
from agentrun.log.memory import Database, MemoryStore
from agentrun.log.replay import FORMAT, REOPENED, History
from agentrun.log.store import AttemptOutcome, LogRow, RunRow, Token
from agentrun.models import Message, Model, ModelRequest, ModelResponse, build_model
from agentrun.models.wire import chat
from agentrun.models.wire.ids import calls_of, wire_ids
from agentrun.proto import log_pb2
from agentrun.proto import transcript_pb2 as pb
from agentrun.spec import AgentRunSpec, parse_object
from agentrun.tools import ToolError
from agentrun.tools.context import ToolContext
from tests.support.sim.loop import PROCESS, SimLoop
from tests.support.sim.world import SimClock
from tests.support.strict_model import problems

STEPS_MAX = 2_000_000
Hook = Callable[[str, Sequence[LogRow]], Awaitable[None]]
During = Callable[[Executor], Awaitable[None]]


async def _nothing(_when: str, _rows: Sequence[LogRow]) -> None:
    return None


class HookedStore(MemoryStore):
    """Awaits `hook("before", rows)` and `hook("after", rows)` around each append, which may raise,
    wait or do something to the database. `statements`: the rows' places of each append, by its name."""

    def __init__(self, database: Database, hook: Hook = _nothing) -> None:
        super().__init__(database)
        self.hook = hook
        self.statements: list[tuple[str, list[int]]] = []

    async def insert_row(self, row: LogRow, token: Token) -> bool:
        await self._before("row", [row])
        result = await super().insert_row(row, token)
        await self.hook("after", [row])
        return result

    async def insert_next(self, row: LogRow, token: Token) -> bool:
        await self._before("next", [row])
        result = await super().insert_next(row, token)
        await self.hook("after", [row])
        return result

    async def insert_pack(self, rows: Sequence[LogRow], token: Token) -> bool:
        await self._before("pack", rows)
        result = await super().insert_pack(rows, token)
        await self.hook("after", rows)
        return result

    async def _before(self, name: str, rows: Sequence[LogRow]) -> None:
        self.statements.append((name, [row.seq for row in rows]))
        await self.hook("before", rows)


@dataclass(frozen=True, kw_only=True)
class Crash:
    """The process is killed at its `append`-th statement (1: its attempt record), before or after it,
    in its `step`-th step, or after so many seconds; 0: not so."""

    append: int = 0
    after: bool = False
    step: int = 0
    seconds: float = 0.0


class Bench:
    """One run of a graph over a database of its own."""

    def __init__(
        self,
        handlers: Mapping[str, Any],
        root: Spawned | None = None,
        *,
        budget: Mapping[str, Any] | None = None,
        concurrency: int = 16,
        waits: RetryWaits | None = None,
        seed: int = 0,
    ) -> None:
        self.handlers: dict[str, Handler | NodeKind] = dict(handlers)
        self.root = root or Spawned(kind="start", name="start")
        self.budget = dict(budget or {})
        self.concurrency = concurrency
        self.waits = waits or RetryWaits(first=1.0, last=8.0)
        self.loop = SimLoop(random.Random(seed))  # type: ignore[abstract]
        self.database = Database(self.loop.time)
        self.run_id: UUID = uuid4()
        self.stores: list[HookedStore] = []
        self.executor: Executor | None = None
        self.drive: Drive | None = None
        self.launched: list[str] = []
        self.outcome: Outcome | None = None

    def plan(self) -> tuple[Mapping[str, NodeKind], Spawned]:
        """The kinds and the first node, as a new process builds them."""
        kinds = [h if isinstance(h, NodeKind) else NodeKind(name=n, run=h) for n, h in self.handlers.items()]
        return {kind.name: kind for kind in kinds}, self.root

    def definition(self) -> bytes:
        return b""

    def store(self, hook: Hook = _nothing) -> Any:
        """A store of a process of its own."""
        return HookedStore(self.database, hook)

    # --- running

    def run(
        self,
        crash: Crash | None = None,
        *,
        during: During | None = None,
        previous: AttemptOutcome = AttemptOutcome.DISRUPTED,
    ) -> Outcome | None:
        """One process, to its end; None: it was killed. `during` runs beside it; `previous` says
        how the process before it ended. Raises what the executor raises."""
        self.loop.steps = 0
        found = self.loop.run(self._main(crash, during, previous), steps_max=STEPS_MAX)
        assert not self.loop.errors, self.loop.errors
        if isinstance(found, BaseException):
            raise found
        assert found is None or isinstance(found, Outcome)
        self.outcome = found
        return found

    def resume(self, **more: Any) -> Outcome:
        """As `run`, of a process that is not killed."""
        found = self.run(**more)
        assert found is not None
        return found

    async def _main(self, crash: Crash | None, during: During | None, previous: AttemptOutcome) -> object:
        store = self.store()
        if await store.get_run(self.run_id) is None:
            row = RunRow(run_id=self.run_id, owner="test", name="t", definition=self.definition(), digest="")
            await store.create_run(row)
        info = await store.get_run(self.run_id)
        assert info is not None
        attempt = await store.allocate_attempt(
            self.run_id, expected=info.run.attempt, process="", previous=previous
        )
        assert attempt is not None, "the run has ended"
        process = f"p{attempt}"
        killed: asyncio.Future[None] = self.loop.create_future()

        def on_kill(_process: str) -> None:
            if not killed.done():
                killed.set_result(None)

        self.loop.on_kill = on_kill
        if crash is not None and crash.step:
            self.loop.kill_at[process] = crash.step
        if crash is not None and crash.seconds:
            self.loop.call_later(crash.seconds, self.loop.kill, process)
        token = PROCESS.set(process)
        try:
            task = self.loop.create_task(self._process(process, attempt, crash, during))
        finally:
            PROCESS.reset(token)
        await asyncio.wait([task, killed], return_when=asyncio.FIRST_COMPLETED)
        self.loop.kill(process)
        if not task.done():
            return None
        return task.exception() or task.result()

    async def _process(
        self,
        process: str,
        attempt: int,
        crash: Crash | None,
        during: During | None,
    ) -> Outcome:
        count = 0

        async def hook(when: str, _rows: Sequence[LogRow]) -> None:
            nonlocal count
            count += when == "before"
            if crash is not None and count == crash.append and (when == "after") == crash.after:
                self.loop.kill(process)
                await self.loop.create_future()

        store = self.store(hook)
        self.stores.append(store)
        kinds, root = self.plan()
        log = await claim(
            appender=Appender(store, SimClock(self.loop)),
            blobs=TableBlobs(store),
            run_id=self.run_id,
            attempt=attempt,
            writer=process.encode(),
        )
        self.executor = Executor(
            log,
            kinds,
            root,
            limits=limits_of(self.budget),
            concurrency=self.concurrency,
            waits=self.waits,
            observer=self._observe,
        )
        self.drive = Drive(self.executor, budget=self.budget)
        beside = asyncio.create_task(self._during(during)) if during else None
        try:
            return await self.drive.run()
        finally:
            if beside is not None:
                beside.cancel()

    async def _during(self, during: During) -> None:
        assert self.executor is not None
        await during(self.executor)

    def _observe(self, event: str, node_id: str, _fields: Mapping[str, Any]) -> None:
        if event == "launched":
            self.launched.append(node_id)

    def reopen(self) -> None:
        """As a new retry token does it: the run that ended goes on."""

        async def main() -> None:
            store = self.store()
            info = await store.get_run(self.run_id)
            assert info is not None
            head = self.history.head
            record = log_pb2.NodeRecord(
                format=FORMAT, id=f"reopened.{head}", kind=REOPENED, epoch=info.run.epoch + 1
            )
            row = LogRow(run_id=self.run_id, seq=head + 1, record=record.SerializeToString())
            assert await store.reopen(row)

        self.loop.run(main())

    # --- what is there afterwards

    @property
    def rows(self) -> list[tuple[int, bytes]]:
        return self.read_rows()

    def read_rows(self) -> list[tuple[int, bytes]]:
        """The log as it stands."""
        return sorted(self.database.runs[self.run_id].log.items())

    @property
    def records(self) -> list[log_pb2.NodeRecord]:
        return [log_pb2.NodeRecord.FromString(data) for _, data in self.rows]

    @property
    def ids(self) -> list[str]:
        """Of all records but those of attempts, in the order of the log."""
        return [record.id for record in self.records if record.kind != "attempt"]

    @property
    def history(self) -> History:
        """Replayed from the rows; raises what a replay raises."""
        history = History(self.run_id)
        history.fold_rows(self.rows)
        return history

    def record(self, record_id: str) -> log_pb2.NodeRecord:
        return next(record for record in self.records if record.id == record_id)

    def shape(self) -> dict[str, tuple[str, tuple[str, ...], bytes, tuple[str, ...]]]:
        """What must not depend on crashes: of each node its kind, parents, output and successors."""
        return {
            id_: (r.kind, tuple(r.parents), r.output.inline, tuple(s.id for s in r.spawned))
            for id_, r in self.history.done.items()
        }


# --- agents


@dataclass(frozen=True)
class Called:
    """A tool's function was entered."""

    tool: str
    node_id: str
    key: str
    value: Any


CALLED: dict[str, list[Called]] = {}
"""By run id, in order. Entries of `finished` have the tool's name with a "!" behind it."""


def _enter(tool: str, context: ToolContext, value: Any) -> list[Called]:
    calls = CALLED.setdefault(context.run_id, [])
    calls.append(Called(tool, context.node_id, context.idempotency_key, value))
    return calls


async def echo(text: str, context: ToolContext, seconds: float = 0.1) -> str:
    """Says the text again."""
    calls = _enter("echo", context, text)
    await asyncio.sleep(seconds)
    calls.append(Called("echo!", context.node_id, context.idempotency_key, text))
    return f"echo: {text}"


async def numbers(id: int, big: int, context: ToolContext) -> dict[str, int]:  # noqa: A002
    """Says whole numbers again."""
    _enter("numbers", context, (id, big))
    return {"id": id, "big": big}


async def broken(context: ToolContext, text: str = "") -> str:
    """Always raises."""
    _enter("broken", context, text)
    raise RuntimeError("this tool is broken")


async def flaky(times: int, context: ToolContext) -> str:
    """Cannot be reached for some tries."""
    calls = _enter("flaky", context, times)
    if sum(c.tool == "flaky" and c.key == context.idempotency_key for c in calls) <= times:
        raise ToolError("Unavailable", "nobody answers \ud800", retryable=True, started=False)
    return "at last"


async def silent(context: ToolContext) -> str:
    """Does what it does without a word."""
    _enter("silent", context, None)
    return ""


async def hang(context: ToolContext) -> str:
    """Never answers."""
    _enter("hang", context, None)
    await asyncio.sleep(1e6)
    return ""


async def lines(count: int, context: ToolContext, first: int = 0) -> str:
    """Numbered lines of 20 bytes each."""
    _enter("lines", context, count)
    return "".join(f"line {number:014}\n" for number in range(first, first + count))


TOOLS = ("echo", "numbers", "broken", "flaky", "hang")


def tool(name: str, effect: str = "read_only", **more: Any) -> dict[str, Any]:
    """A tool of a manifest: one of the functions above."""
    function = more.pop("function", name)
    return {
        "name": name,
        "python": {"entrypoint": f"tests.support.agents:{function}"},
        "effect": effect,
        **more,
    }


def call(name: str, id: str = "", **arguments: Any) -> dict[str, Any]:  # noqa: A002
    """A call in a scripted turn."""
    found: dict[str, Any] = {"name": name, "arguments": arguments}
    return {**found, "id": id} if id else found


def agent(turns: Sequence[Mapping[str, Any]], tools: Sequence[Any] = (), **more: Any) -> dict[str, Any]:
    """An agent of a manifest, with a scripted model."""
    model = {"name": "scripted:test", "script": {"turns": list(turns)}}
    return {"model": model, "tools": list(tools), "instructions": "Be brief.", **more}


def manifest(
    turns: Sequence[Mapping[str, Any]],
    tools: Sequence[Any] | None = None,
    *,
    agents: Mapping[str, Mapping[str, Any]] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A manifest; without `tools`: all of the functions above, read only."""
    tools = [tool(name) for name in TOOLS] if tools is None else tools
    subs = [{"name": name, "description": name, **sub} for name, sub in (agents or {}).items()]
    return {
        "apiVersion": "agentrun.dev/v1alpha1",
        "kind": "AgentRun",
        "metadata": {"name": "test"},
        "spec": {"prompt": "Go on.", "agent": agent(turns, tools), "agents": subs, **spec},
    }


@dataclass(frozen=True)
class Asked:
    """A request as the model was sent it, kept as bytes: the loop's own list goes on growing."""

    key: str
    scope: str
    messages: list[tuple[str, bytes]]
    body: dict[str, Any]


@dataclass
class RecordingModel:
    """Keeps every request, and refuses what a strict provider would refuse."""

    model: Model
    asked: list[Asked]
    refusals: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.model.name

    async def request(self, request: ModelRequest) -> ModelResponse:
        messages = [(type(m).__name__, m.SerializeToString()) for m in request.messages]
        body = chat_body(request)
        self.asked.append(Asked(request.key, scope_of(request.key), messages, copy.deepcopy(body)))
        self.refusals += problems("/chat/completions", body, None)
        return await self.model.request(request)

    async def close(self) -> None:
        await self.model.close()


def chat_body(request: ModelRequest) -> dict[str, Any]:
    """The request in OpenAI's form. A result goes to the call at its own place, and must bear its name."""
    ids = iter(wire_ids(request.messages))
    waiting: list[tuple[str, str]] = []
    messages: list[dict[str, Any]] = [{"role": "system", "content": request.instructions}]
    messages += [_chat_message(message, ids, waiting) for message in request.messages]
    return {"messages": messages, "tools": [tool.name for tool in request.tools]}


def _chat_message(message: Message, ids: Any, waiting: list[tuple[str, str]]) -> dict[str, Any]:
    if isinstance(message, pb.ToolResult):
        wire_id, name = waiting.pop(0)
        assert name == message.name, f"the result of {message.name} stands behind the call of {name}"
        return {"role": "tool", "tool_call_id": wire_id, "content": message.content or "(no output)"}
    if isinstance(message, pb.UserMessage):
        return {"role": "user", "content": message.text or "(empty)"}
    own = next(ids)
    waiting.extend(zip(own, (part.name for part in calls_of(message)), strict=True))
    written: dict[str, Any] = json.loads(chat.write(message, own, own=True))
    return written


class AgentBench(Bench):
    """One run of a manifest. `asked`: what the models were asked, over all processes."""

    def __init__(
        self,
        manifest: Mapping[str, Any],
        *,
        waits: RetryWaits | None = None,
        seed: int = 0,
        record: bool = True,
    ) -> None:
        self.manifest = parse_object(manifest, source="a test")
        spec = self.manifest.spec
        budget = spec.budget.model_dump(mode="json", by_alias=True, exclude_none=True)
        super().__init__({}, budget=budget, concurrency=spec.concurrency, waits=waits, seed=seed)
        self.asked: list[Asked] = []
        self.refusals: list[str] = []
        self._record = record

    @property
    def spec(self) -> AgentRunSpec:
        return self.manifest.spec

    def plan(self) -> tuple[Mapping[str, NodeKind], Spawned]:
        def recording(*args: Any, **more: Any) -> Any:
            return RecordingModel(build_model(*args, **more), self.asked, self.refusals)

        with mock.patch("agentrun.agent.program.build_model", recording if self._record else build_model):
            prepared = prepare(self.spec, {})
        return prepared.kinds, prepared.root

    @property
    def calls(self) -> list[Called]:
        """What the tools have seen, over all processes."""
        return CALLED.get(str(self.run_id), [])

    def starts(self, name: str) -> int:
        """How often a tool was entered."""
        return sum(seen.tool == name for seen in self.calls)

    @property
    def answer(self) -> str:
        final = self.history.final
        assert final is not None
        return pb.RunResult.FromString(final.output.inline).text

    def result(self, node_id: str) -> pb.ToolResult:
        """What the model was told of a call."""
        return pb.ToolResult.FromString(self.history.done[node_id].output.inline)

    def check_transcripts(self) -> None:
        """Every request was one that a strict provider takes, and went on from the one before it."""
        assert not self.refusals, self.refusals
        newest: dict[str, list[tuple[str, bytes]]] = {}
        for asked in self.asked:
            before = newest.get(asked.scope, [])
            assert asked.messages[: len(before)] == before, f"{asked.key}: what was said has changed"
            newest[asked.scope] = asked.messages


def in_simulated_time(main: Callable[[SimLoop], Awaitable[None]]) -> None:
    """Runs a coroutine in a loop of its own, in which time costs nothing."""
    loop = SimLoop(random.Random(0))  # type: ignore[abstract]

    async def run() -> None:
        await main(loop)

    loop.run(run(), steps_max=STEPS_MAX)
    assert not loop.errors, loop.errors
