"""An attempt of a run on a store in memory: how it ends, and what is written of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import pytest

from agentrun.graph.executor import Outcome
from agentrun.graph.session import Session
from agentrun.graph.types import NodeContext, NodeKind, NodeResult, Spawned
from agentrun.log.claim import claim
from agentrun.log.errors import CorruptLog, Fenced, RunEnded, StoreUnavailable
from agentrun.log.memory import Database, MemoryStore
from agentrun.log.runlog import RunLog
from agentrun.log.store import AttemptOutcome, AttemptRow, Hint, LogRow, RunRow
from agentrun.proto import log_pb2 as pb


class Steps:
    """A program of one step, which waits until `finish`."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.finish = asyncio.Event()
        self.calls = 0

    async def step(self, node: NodeContext) -> NodeResult:
        self.calls += 1
        self.started.set()
        await self.finish.wait()
        return NodeResult(output=b"done", media_type="text/plain")


@dataclass(frozen=True)
class Program:
    kinds: Mapping[str, NodeKind]
    root: Spawned = field(default_factory=lambda: Spawned(kind="step"))
    concurrency: int = 4
    budget: Mapping[str, Any] = field(default_factory=dict)


class Case:
    """One run on one store, and sessions of it."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.store = store or MemoryStore(Database(lambda: 1000.0))
        self.steps = Steps()
        self.run_id = uuid4()

    async def attempt(self, **settings: Any) -> Session:
        """A session with an attempt of its own."""
        row = RunRow(run_id=self.run_id, owner="local/x", name="x", definition=b"", digest="")
        await self.store.create_run(row)
        info = await self.store.get_run(self.run_id)
        assert info is not None
        number = await self.store.allocate_attempt(
            self.run_id, expected=info.run.attempt, process="", previous=AttemptOutcome.CRASHED
        )
        assert number is not None
        program = Program({"step": NodeKind(name="step", run=self.steps.step)})
        return Session(self.store, program, run_id=self.run_id, attempt=number, **settings)

    async def attempts(self) -> list[AttemptRow]:
        return await self.store.attempts(self.run_id)


def play(main: Callable[[Case], Coroutine[Any, Any, None]], store: MemoryStore | None = None) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await main(Case(store))

    asyncio.run(bounded())


def test_a_run_goes_to_its_end() -> None:
    async def main(case: Case) -> None:
        case.steps.finish.set()
        outcome = await (await case.attempt()).run()
        assert outcome.outcome == pb.OUTCOME_SUCCEEDED
        assert [row.outcome for row in await case.attempts()] == [AttemptOutcome.SUCCEEDED]

    play(main)


def test_a_stop_lets_what_is_in_flight_finish() -> None:
    async def main(case: Case) -> None:
        session = await case.attempt()
        running = asyncio.create_task(session.run())
        await case.steps.started.wait()
        session.stop()
        case.steps.finish.set()
        outcome = await running
        assert outcome.paused and outcome.reason == "Terminated"
        rows = await case.attempts()
        assert [(row.outcome, row.reason) for row in rows] == [(AttemptOutcome.PAUSED, "Terminated")]
        # What had finished is not done again.
        assert (await (await case.attempt()).run()).outcome == pb.OUTCOME_SUCCEEDED
        assert case.steps.calls == 1

    play(main)


@pytest.mark.parametrize("how", ["the grace is over", "a second signal"])
def test_what_does_not_finish_is_given_up_and_runs_again(how: str) -> None:
    async def main(case: Case) -> None:
        session = await case.attempt(grace_seconds=0.02 if how == "the grace is over" else 3600)
        running = asyncio.create_task(session.run())
        await case.steps.started.wait()
        session.stop()
        if how == "a second signal":
            session.stop_at_once()
        assert (await running).paused
        assert [row.outcome for row in await case.attempts()] == [AttemptOutcome.PAUSED]
        case.steps.finish.set()
        await (await case.attempt()).run()
        assert case.steps.calls == 2

    play(main)


class Hanging(MemoryStore):
    """Its answers to a claim never come."""

    def __init__(self) -> None:
        super().__init__(Database(lambda: 1000.0))
        self.asked = asyncio.Event()

    async def claim(self, run_id: UUID, *, attempt: int, claimer: bytes) -> int | None:
        self.asked.set()
        await asyncio.Event().wait()
        return None


def test_a_stop_during_the_claim_ends_the_attempt_at_once() -> None:
    async def main(case: Case) -> None:
        store = case.store = Hanging()
        session = await case.attempt()
        running = asyncio.create_task(session.run())
        await store.asked.wait()
        session.stop()
        assert await running == Outcome(outcome=pb.OUTCOME_UNSPECIFIED, reason="Terminated")
        assert [row.outcome for row in await case.attempts()] == [AttemptOutcome.PAUSED]

    play(main)


class Silent(MemoryStore):
    """Listening never gets on."""

    async def listen(self, hint: Hint) -> None:
        await asyncio.Event().wait()


def test_a_stop_at_once_when_the_claim_is_just_through_waits_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main(case: Case) -> None:
        case.store = Silent(Database(lambda: 1000.0))
        session = await case.attempt(grace_seconds=3600)
        claimed = []

        async def claim_and_stop(**settings: Any) -> RunLog:
            claimed.append(await claim(**settings))
            # Heard between the end of the claim's task and the moment that its result is taken.
            asyncio.get_running_loop().call_soon(session.stop_at_once)
            return claimed[0]

        monkeypatch.setattr("agentrun.graph.session.claim", claim_and_stop)
        assert await session.run() == Outcome(outcome=pb.OUTCOME_UNSPECIFIED, reason="Terminated")
        assert claimed and case.steps.calls == 0
        assert [row.outcome for row in await case.attempts()] == [AttemptOutcome.PAUSED]

    play(main)


def test_a_stop_before_anything_began_ends_the_attempt_at_once() -> None:
    async def main(case: Case) -> None:
        session = await case.attempt()
        session.stop()
        assert (await session.run()).reason == "Terminated"
        assert await case.store.read_rows(case.run_id) == []
        assert [row.outcome for row in await case.attempts()] == [AttemptOutcome.PAUSED]

    play(main)


def test_a_cancellation_from_outside_is_not_taken_for_a_stop() -> None:
    async def main(case: Case) -> None:
        store = case.store = Hanging()
        running = asyncio.create_task((await case.attempt()).run())
        await store.asked.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    play(main)


def test_an_older_attempt_is_fenced_off_and_writes_nothing() -> None:
    async def main(case: Case) -> None:
        old = await case.attempt()
        await case.attempt()
        with pytest.raises(Fenced):
            await old.run()
        assert case.steps.calls == 0
        assert [row.outcome for row in await case.attempts()] == [AttemptOutcome.CRASHED, None]

    play(main)


def test_a_run_that_has_ended_meanwhile_says_so() -> None:
    async def main(case: Case) -> None:
        case.steps.finish.set()
        first = await case.attempt()
        await first.run()
        with pytest.raises(RunEnded):
            await first.run()

    play(main)


def test_a_log_that_cannot_be_read_is_no_crash_of_the_process() -> None:
    async def main(case: Case) -> None:
        session = await case.attempt()
        row = LogRow(run_id=case.run_id, seq=1, record=b"\xff no record")
        assert await case.store.insert_row(row, await case.store.connect())
        with pytest.raises(CorruptLog):
            await session.run()
        rows = await case.attempts()
        assert [(row.outcome, row.reason.partition(":")[0]) for row in rows] == [
            (AttemptOutcome.FAILED, "CorruptLog")
        ]

    play(main)


class Deaf(MemoryStore):
    """Has no hints to give."""

    async def listen(self, hint: Any) -> None:
        raise StoreUnavailable("not now")


def test_a_run_needs_no_hints() -> None:
    async def main(case: Case) -> None:
        case.steps.finish.set()
        assert (await (await case.attempt()).run()).outcome == pb.OUTCOME_SUCCEEDED

    play(main, Deaf(Database(lambda: 1000.0)))
