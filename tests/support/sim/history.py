"""One seeded history: processes come, stall, die and come back over the logs of one to three runs.

A process is a session for each of its runs, over one store and one appender, as a
runner with several runs is. Their owner suspends, cancels, raises budgets and reopens
at any moment; in the end all faults cease, and each run must have come to its one end.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock
from uuid import UUID

from agentrun.graph.executor import Executor
from agentrun.graph.session import Session
from agentrun.log.appender import Appender
from agentrun.log.blobs import TableBlobs
from agentrun.log.errors import Fenced, RunEnded, StoreUnavailable
from agentrun.log.memory import Database, MemoryStore
from agentrun.log.replay import FORMAT, REOPENED, History
from agentrun.log.runlog import RunLog
from agentrun.log.store import AttemptOutcome, LogRow, LogStore, RunRow
from agentrun.proto import log_pb2 as pb
from tests.support.sim.case import Case, FailoverDatabase
from tests.support.sim.loop import PROCESS, SimLoop
from tests.support.sim.people import People
from tests.support.sim.plan import Graph, draw_plan
from tests.support.sim.store import SimStore
from tests.support.sim.world import Faults, SimClock, Violation, Watched, World

TROUBLES = (
    ["kill", "kill at a step", "stop", "stop in flight", "stop in flight", "drain", "drain hard"] * 3
    + ["leave", "at a final record", "suspend", "raise"] * 3
    + ["cancel", "terminate", "Stop", "Terminate"]
)
AT_FINAL = ["terminate", "stop at once", "drain hard", "freeze", "kill", "Terminate"]
OWNER = "sim"
STEPS_MAX = 300_000
OUTAGE_SECONDS_MAX = 600.0
DEAF_SECONDS_MAX = 4.0
"""By then also a node that heeds a cancel late has ended, if no statement of its is slow."""

LEFT_CHECKS_MAX = 20
ROUNDS_MAX = 20
"""By then every run has come to its end: each round ends one, or answers all that it asks."""


class Run:
    """Drives one history; `violations` and exceptions are the result."""

    def __init__(self, seed: int, backing: Callable[[SimLoop], LogStore] | None = None) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.loop = SimLoop(self.rng)  # type: ignore[abstract]
        self.database = None if backing else FailoverDatabase(self.loop.time)
        make = backing or (lambda loop: MemoryStore(self.database or Database(loop.time)))
        self.world = World(self.loop, make(self.loop))
        scale = self.rng.choice([0.0, 1.0, 3.0])
        slow = self.rng.choice([0.0, 0.05, 0.15, 0.4])
        self.world.faults = Faults(0.02 * scale, 0.03 * scale, 0.02 * scale, slow, 0.1 * scale)
        if self.database is not None and self.rng.random() < 0.25:
            self.world.strict = False
            self.world.on_statement = self.database.snapshot
        self.pack_rows_max = self.rng.choice([1, 2, 512, 512])
        count = self.rng.choice([1, 1, 1, 2, 3] if self.world.strict else [1, 2, 3])
        self.cases = [self._case(seed, number) for number in range(count)]
        self.sessions: dict[tuple[str, UUID], Session] = {}
        self.executors: dict[tuple[str, UUID], Executor] = {}
        self.count = 0

    def _case(self, seed: int, number: int) -> Case:
        run_id = UUID(int=(number << 64) + seed + 1)
        plan = draw_plan(self.rng)
        asking = frozenset(plan.asking)
        watched = Watched(run_id, History(run_id), frozenset(plan.works), asking=asking)
        self.world.runs[run_id] = watched
        case = Case(watched, plan)
        case.told_budget(plan.budget)
        return case

    def execute(self) -> None:
        state = random.getstate()
        random.seed(self.rng.random())
        try:
            with mock.patch("agentrun.log.appender.PACK_ROWS_MAX", self.pack_rows_max):
                self.loop.run(self._main(), steps_max=STEPS_MAX)
        finally:
            random.setstate(state)
        for violation in self.world.violations:
            raise Violation(violation)
        for error in self.loop.errors:
            raise Violation(f"an error that nobody took: {error}")

    async def _main(self) -> None:
        for case in self.cases:
            row = RunRow(run_id=case.run_id, owner=OWNER, name="sim", definition=b"", digest="")
            await self.world.backing.create_run(row)
        people = People(self.world, self.cases, self.seed)
        answering = self.loop.create_task(people.answer_for_ever()) if people.asked else None
        for _ in range(self.rng.randint(1, 5)):
            count = self.rng.randint(1, len(self.cases))
            process, task = await self._start(self.rng.sample(self.cases, count))
            await self._trouble(process, task, self.rng.choice(self.cases))
        self.world.faults.off = True
        self.world.at_final.clear()
        waiting = self.cases
        for _ in range(ROUNDS_MAX):
            for case in waiting:
                await people.answer(case, 1.0)
                await self._set_levels(case, budget=self._raised(case, 10_000), suspend=False)
            _, task = await self._start(waiting)
            if isinstance(error := await task, Violation):
                raise error
            waiting = [case for case in waiting if not await self._over(case)]
            if not waiting:
                break
        else:
            raise Violation(f"runs do not end: {[case.watched.returned for case in waiting]}")
        if answering is not None:
            answering.cancel()
        for case in self.cases:
            await self._judge(case)

    # --- processes

    async def _start(self, cases: list[Case]) -> tuple[str, asyncio.Task[object]]:
        """A process for the runs, as a command or an operator starts one."""
        self.count += 1
        process = f"p{self.count}"
        attempts = [(case, await self._allocate(case, process)) for case in cases]
        token = PROCESS.set(process)
        try:
            task: asyncio.Task[object] = self.loop.create_task(self._process(process, attempts))
        finally:
            PROCESS.reset(token)
        return process, task

    async def _allocate(self, case: Case, process: str) -> int:
        backing = self.world.backing
        info = await backing.get_run(case.run_id)
        assert info is not None
        if info.run.ended:
            await self._reopen(case)
            info = await backing.get_run(case.run_id)
            assert info is not None
        died = self.loop.dead(case.process) and self.rng.random() < 0.8
        previous = AttemptOutcome.CRASHED if died else AttemptOutcome.DISRUPTED
        case.process = process
        attempt = await backing.allocate_attempt(
            case.run_id, expected=info.run.attempt, process=process, previous=previous
        )
        return attempt or 0

    async def _process(self, process: str, attempts: list[tuple[Case, int]]) -> object:
        """All of its sessions to their ends; a Violation where one of them saw it."""
        store = SimStore(self.world)
        appender = Appender(store, SimClock(self.loop), outage_seconds_max=OUTAGE_SECONDS_MAX)
        store.appender = appender
        tasks = [
            self.loop.create_task(self._session(process, case, attempt, store, appender))
            for case, attempt in attempts
        ]
        results = [await task for task in tasks]
        await appender.close()
        for _ in range(LEFT_CHECKS_MAX):
            await asyncio.sleep(DEAF_SECONDS_MAX)
            left = [task for task in self.loop.tasks_of(process) if task is not asyncio.current_task()]
            if not left:
                break
        else:
            return Violation(f"{process} has ended and left {left}")
        return next((result for result in results if isinstance(result, Violation)), None)

    async def _session(
        self, process: str, case: Case, attempt: int, store: SimStore, appender: Appender
    ) -> object:
        """From the claim to the end, as a runner does it; what it ended with."""
        graph = Graph(self.world, case.watched, case.plan, process, case.fatal)

        def claimed(log: RunLog, executor: Executor) -> None:
            graph.epoch = log.epoch
            self.executors[process, case.run_id] = executor

        session = Session(
            store,
            graph,
            run_id=case.run_id,
            attempt=attempt,
            grace_seconds=3.0,
            blobs=TableBlobs(store),
            on_claimed=claimed,
            appender=appender,
        )
        self.sessions[process, case.run_id] = session
        try:
            outcome = await session.run()
            self.world.ended(case.watched, process, graph.epoch, outcome)
        except (Fenced, RunEnded, StoreUnavailable) as error:
            case.watched.told.add(process)
            return await self._justified(process, case, attempt, error)
        except Exception as error:
            return Violation(f"{process}: {error!r}")
        return outcome

    async def _justified(self, process: str, case: Case, attempt: int, error: Exception) -> object:
        """Nobody is fenced off for another run's sake, or for none."""
        info = await self.world.backing.get_run(case.run_id)
        assert info is not None
        if self.world.strict and isinstance(error, Fenced) and attempt and info.run.attempt == attempt:
            return Violation(f"{process} is the newest of its run, and ended with {error!r}")
        if isinstance(error, RunEnded) and not case.watched.finals:
            return Violation(f"{process} found an end where there is none: {error!r}")
        if isinstance(error, StoreUnavailable):
            return Violation(f"{process} gave up a store that was never away for long: {error!r}")
        return error

    # --- trouble

    async def _trouble(self, process: str, task: asyncio.Task[object], case: Case) -> None:
        """What happens to a process that runs, or to a run of its."""
        rng = self.rng
        kind = rng.choice(TROUBLES)
        for _ in range(0 if self.world.strict else rng.randint(0, 4)):
            lost = rng.choice([0, 1, 2, 5, 8])
            context = self.loop.context_of("network")
            self.loop.call_later(rng.random() * 20, lambda lost=lost: self._fail_over(lost), context=context)
        if kind == "kill at a step":
            self.loop.kill_at[process] = rng.randint(1, 400)
        elif kind == "at a final record":
            what = rng.choice(AT_FINAL)
            self.world.at_final[process] = lambda run_id: self._at_final(process, run_id, what)
        await asyncio.sleep(rng.random() * rng.choice([0.02, 1.0, 15.0]))
        if kind == "stop in flight":
            self.world.stop_in_flight[process] = rng.choice([4.0, 7.0, 15.0, 40.0])
            for _ in range(200):  # the next process comes while this one is stopped
                if process in self.world.stop_in_flight and not task.done():
                    await asyncio.sleep(0.1)
        elif kind in ("leave", "kill at a step", "at a final record"):
            await asyncio.wait([task], timeout=rng.choice([5.0, 60.0]))
        elif kind in ("suspend", "raise", "Stop", "Terminate"):
            await self._steer(case, kind)
        else:
            self._happen(process, case, kind)
        if kind in ("suspend", "raise", "Stop", "Terminate", "cancel", "terminate", "drain", "drain hard"):
            await asyncio.wait([task], timeout=rng.choice([0.0, 1.0, 20.0]))
        if task.done() and isinstance(task.result(), Violation):
            raise task.result()  # type: ignore[misc]

    def _fail_over(self, lost: int) -> None:
        if not self.world.faults.off and self.database is not None:
            self.database.fail_over(lost=lost)

    def _happen(self, process: str, case: Case, kind: str) -> None:
        """To the process, at once."""
        session = self.sessions.get((process, case.run_id))
        executor = self.executors.get((process, case.run_id))
        if kind == "kill":
            self.loop.kill(process)
        elif kind in ("stop", "freeze"):
            self.loop.freeze(process)
            seconds = self.rng.random() * self.rng.choice([1.0, 12.0, 40.0])
            self.loop.call_later(seconds, self.loop.thaw, process, context=self.loop.context_of("network"))
        elif kind == "drain" and executor is not None:
            self._as(process, executor.pause, "Drained")
        elif kind in ("drain hard", "stop at once") and session is not None:
            case.watched.told.add(process)
            self._as(process, session.stop if kind == "drain hard" else session.stop_at_once)
        elif kind in ("cancel", "terminate") and executor is not None:
            case.watched.cancel_asked = True
            if kind == "terminate":
                case.watched.told.add(process)
            at_once = kind == "terminate"
            self._as(process, lambda: executor.cancel("by hand", at_once=at_once))

    def _as(self, process: str, call: Callable[..., Any], *args: Any) -> None:
        self.loop.call_soon(call, *args, context=self.loop.context_of(process))

    def _at_final(self, process: str, run_id: UUID, what: str) -> None:
        """While the run's final record is under way."""
        case = next(case for case in self.cases if case.run_id == run_id)
        if what == "Terminate":
            context = self.loop.context_of("network")
            self.loop.call_soon(lambda: self.loop.create_task(self._steer(case, what)), context=context)
        else:
            self._happen(process, case, what)

    # --- the owner

    async def _steer(self, case: Case, kind: str) -> None:
        if kind == "suspend":
            await self._set_levels(case, suspend=not case.levels.suspend)
        elif kind == "raise":
            await self._set_levels(case, budget=self._raised(case, self.rng.randint(1, 5)))
        else:
            case.watched.cancel_asked = True
            if kind == "Terminate":
                case.watched.told.update(f"p{number}" for number in range(1, 100))
            await self._set_levels(case, shutdown=kind)

    def _raised(self, case: Case, by: int) -> dict[str, Any]:
        more = {"turns": by, "tokens": 10 * by, "retries": by}
        return {name: value + more.get(name, 0) for name, value in case.budget.items() if name in more}

    async def _set_levels(self, case: Case, *, budget: dict[str, Any] | None = None, **changes: Any) -> None:
        if budget is not None:
            case.told_budget(budget)
            changes["budget"] = json.dumps(budget)
        case.levels = replace(case.levels, generation=case.levels.generation + 1, **changes)
        await self.world.backing.set_levels(case.run_id, case.levels)
        self.world.hint([case.run_id])

    async def _reopen(self, case: Case) -> None:
        """A run that failed is continued, as a new retryToken does it."""
        await self.world.check(case.run_id)
        history = case.watched.history
        if history.final is None or history.final.final.outcome != pb.OUTCOME_FAILED:
            return
        info = await self.world.backing.get_run(case.run_id)
        assert info is not None
        record = pb.NodeRecord(
            format=FORMAT, id=f"reopened.{history.head}", kind=REOPENED, epoch=info.run.epoch + 1
        )
        await self.world.backing.reopen(
            LogRow(run_id=case.run_id, seq=history.head + 1, record=record.SerializeToString())
        )
        await self.world.check(case.run_id)

    # --- the end

    async def _over(self, case: Case) -> bool:
        await self.world.check(case.run_id)
        final = case.watched.history.final
        return final is not None and final.final.outcome != pb.OUTCOME_FAILED

    async def _judge(self, case: Case) -> None:
        watched, plan = case.watched, case.plan
        final = watched.history.final
        assert final is not None
        answer = final.output.inline.decode()
        if final.final.outcome == pb.OUTCOME_SUCCEEDED and answer != str(plan.answer):
            raise Violation(f"the answer is {answer}, not {plan.answer}")
        reasons = {"Completed", "Broken" if plan.fatal else "", "Cancelled" if watched.cancel_asked else ""}
        reasons.add("BudgetExceeded" if plan.budget.get("onExceeded") == "Fail" else "")
        for found in (found for finals in watched.finals.values() for found in finals):
            if found.reason not in reasons:
                raise Violation(f"the run ended with {found.reason}: {found.message}")
        attempts = await self.world.backing.attempts(case.run_id)
        crashes = [row for row in attempts if row.outcome is AttemptOutcome.CRASHED]
        before = [row for row in crashes if row.attempt < watched.history.attempt]
        if self.world.strict and watched.crashes_drawn != len(before):
            raise Violation(f"{len(before)} crashes, and {watched.crashes_drawn} retries drawn for them")
        self.world.judge(watched)
