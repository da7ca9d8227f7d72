"""All that `agentrun_api.executor.RunExecutor` promises, as tests.

A subclass whose fixture `bench` gives an `ExecutorBench` holds its executor to them. What an
executor does elsewhere (a pod, another machine) is seen here by the log and by what tools counted.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID, uuid4

import pytest

from agentrun.log.replay import History, decode
from agentrun.log.store import LogStore, RunInfo
from agentrun.log.summary import Phase
from agentrun.spec import AgentRun, parse_object
from agentrun_api.executor import RunExecutor, Signal, Stand, StartRefused

SECONDS_MAX = 60.0


class ExecutorBench(Protocol):
    """Where an executor is tried. `running` gives one that carries runs out; the next one, after
    its end, is of another process. `counter`: a file in which the tools of `demo` count."""

    counter: Path

    def running(self) -> AbstractAsyncContextManager[tuple[RunExecutor, LogStore]]: ...


def play(test: Callable[[], Awaitable[None]]) -> None:
    """Runs a coroutine, bounded in time."""

    async def bounded() -> None:
        async with asyncio.timeout(SECONDS_MAX):
            await test()

    asyncio.run(bounded())


def manifest(*turns: Any, name: str = "a-run", **spec: Any) -> AgentRun:
    """With a scripted model and the demo's tool `lookup`."""
    tools = [
        {
            "name": "lookup",
            "python": {"entrypoint": "agentrun.tools.demo:lookup"},
            "effect": "read_only",
        }
    ]
    model = {"name": "scripted:test", "script": {"turns": list(turns)}}
    return parse_object(
        {
            "apiVersion": "agentrun.dev/v1alpha1",
            "kind": "AgentRun",
            "metadata": {"name": name},
            "spec": {"prompt": "Go on.", "agent": {"model": model, "tools": tools}, **spec},
        }
    )


def look(topic: str, seconds: float = 0.01) -> dict[str, Any]:
    return {"toolCalls": [{"name": "lookup", "arguments": {"topic": topic, "seconds": seconds}}]}


ANSWER = {"text": "That is all."}


@dataclass
class Seen:
    """What a run has left."""

    info: RunInfo
    history: History

    @property
    def nodes(self) -> Counter[str]:
        return Counter(record.id for record in self.history.done.values())


async def seen(store: LogStore, run_id: UUID) -> Seen:
    info = await store.get_run(run_id)
    assert info is not None
    history = History(run_id)
    for seq, data in await store.read_rows(run_id):
        history.fold(seq, decode(run_id, seq, data))
    return Seen(info=info, history=history)


async def until(store: LogStore, run_id: UUID, condition: Callable[[Seen], bool]) -> None:
    """Waits for it; the test's own bound ends it."""
    while not condition(await seen(store, run_id)):  # noqa: ASYNC110  what is waited for is elsewhere
        await asyncio.sleep(0.05)


class ExecutorContract:
    """See the module's docstring."""

    @pytest.fixture
    def bench(self) -> ExecutorBench:
        raise NotImplementedError

    def count(self, bench: ExecutorBench, what: str = "start") -> Counter[str]:
        """Calls of the tool by topic."""
        lines = bench.counter.read_text().splitlines() if bench.counter.exists() else []
        return Counter(line for line in lines if line.startswith(what))

    def test_a_run_is_carried_out_to_its_end(self, bench: ExecutorBench) -> None:
        async def test() -> None:
            async with bench.running() as (executor, store):
                started = await executor.start(manifest(look("moon"), look("honey"), ANSWER))
                assert started.created
                assert await executor.wait(started.run_id) == Stand(phase=Phase.SUCCEEDED, reason="Completed")
                found = await seen(store, started.run_id)
                assert found.info.run.ended
                assert set(found.nodes.values()) == {1}
                assert found.history.totals.turns == 3
            assert len(self.count(bench)) == 2

        play(test)

    def test_the_same_start_gives_the_same_run_however_often_and_at_once(self, bench: ExecutorBench) -> None:
        async def test() -> None:
            async with bench.running() as (executor, _):
                wanted = manifest(look("moon"), ANSWER)
                starts = await asyncio.gather(*(executor.start(wanted, key="k") for _ in range(5)))
                assert len({start.run_id for start in starts}) == 1
                assert [start.created for start in starts].count(True) == 1
                await executor.wait(starts[0].run_id)
                again = await executor.start(wanted, key="k")
                assert (again.run_id, again.created) == (starts[0].run_id, False)
                other = await executor.start(manifest(look("moon"), ANSWER, name="another-run"), key="l")
                assert other.run_id != again.run_id and other.created

        play(test)

    def test_one_key_for_two_manifests_is_refused(self, bench: ExecutorBench) -> None:
        async def test() -> None:
            async with bench.running() as (executor, store):
                first = await executor.start(manifest(ANSWER), key="k")
                with pytest.raises(StartRefused) as refused:
                    await executor.start(manifest({"text": "Another answer."}), key="k")
                assert refused.value.reason == "Conflict"
                await executor.wait(first.run_id)
                assert (await seen(store, first.run_id)).info.run.attempt == 1

        play(test)

    def test_a_run_keeps_the_id_that_its_manifest_gives(self, bench: ExecutorBench) -> None:
        async def test() -> None:
            async with bench.running() as (executor, _):
                run_id = uuid4()
                started = await executor.start(manifest(ANSWER, runID=str(run_id)))
                assert started.run_id == run_id
                assert (await executor.wait(run_id)).phase is Phase.SUCCEEDED

        play(test)

    def test_a_suspended_run_parks_and_goes_on_where_it_was(self, bench: ExecutorBench) -> None:
        async def test() -> None:
            async with bench.running() as (executor, store):
                turns = [look("moon"), look("honey", 1.0), look("octopus"), ANSWER]
                run_id = (await executor.start(manifest(*turns))).run_id
                await until(store, run_id, lambda found: "call-1-0" in found.nodes)
                info = (await seen(store, run_id)).info
                for _ in range(3):
                    await executor.signal(info.run, Signal(suspend=True))
                stand = await executor.wait(run_id)
                assert (stand.phase, stand.reason) == (Phase.PAUSED, "Suspended")
                parked = await seen(store, run_id)
                assert "turn-4" not in parked.nodes
                for _ in range(3):
                    await executor.signal(info.run, Signal(suspend=False))
                assert (await executor.wait(run_id)).phase is Phase.SUCCEEDED
                assert set((await seen(store, run_id)).nodes.values()) == {1}
            assert sorted(self.count(bench, "end").values()) == [1, 1, 1]

        play(test)

    @pytest.mark.parametrize("how", ["Stop", "Terminate"])
    def test_a_live_run_is_ended(self, bench: ExecutorBench, how: str) -> None:
        async def test() -> None:
            async with bench.running() as (executor, store):
                run_id = (await executor.start(manifest(look("moon", 2.0), look("honey"), ANSWER))).run_id
                await until(store, run_id, lambda found: "tools-1" in found.nodes)
                info = (await seen(store, run_id)).info
                await executor.signal(info.run, Signal(shutdown=how))
                await executor.signal(info.run, Signal(shutdown="Stop"))
                assert (await executor.wait(run_id)).phase is Phase.CANCELLED
                found = await seen(store, run_id)
                assert found.info.run.ended
                assert ("call-1-0" in found.nodes) == (how == "Stop")

        play(test)

    def test_a_parked_run_is_ended(self, bench: ExecutorBench) -> None:
        async def test() -> None:
            async with bench.running() as (executor, store):
                run_id = (await executor.start(manifest(look("moon"), ANSWER, suspend=True))).run_id
                assert (await executor.wait(run_id)).reason == "Suspended"
                info = (await seen(store, run_id)).info
                await executor.signal(info.run, Signal(shutdown="Stop"))
                assert (await executor.wait(run_id)).phase is Phase.CANCELLED
            assert not self.count(bench)

        play(test)

    def test_a_run_over_its_budget_goes_on_when_there_is_room(self, bench: ExecutorBench) -> None:
        async def test() -> None:
            async with bench.running() as (executor, store):
                wanted = manifest(look("moon"), look("honey"), ANSWER, budget={"turns": 1})
                run_id = (await executor.start(wanted)).run_id
                stand = await executor.wait(run_id)
                assert (stand.phase, stand.reason) == (Phase.PAUSED, "BudgetExceeded")
                info = (await seen(store, run_id)).info
                await executor.signal(info.run, Signal(budget={"turns": 1}))
                assert (await executor.wait(run_id)).reason == "BudgetExceeded"
                await executor.signal(info.run, Signal(budget={"turns": 5}))
                assert (await executor.wait(run_id)).phase is Phase.SUCCEEDED
            assert sorted(self.count(bench).values()) == [1, 1]

        play(test)

    def test_another_process_goes_on_with_what_one_left(self, bench: ExecutorBench) -> None:
        async def test() -> None:
            turns = [look("moon"), look("honey", 1.0), look("octopus"), ANSWER]
            async with bench.running() as (executor, store):
                run_id = (await executor.start(manifest(*turns, terminationGracePeriodSeconds=10))).run_id
                await until(store, run_id, lambda found: "tools-2" in found.nodes)
            async with bench.running() as (executor, store):
                assert (await executor.wait(run_id)).phase is Phase.SUCCEEDED
                assert set((await seen(store, run_id)).nodes.values()) == {1}
            assert sorted(self.count(bench, "end").values()) == [1, 1, 1]

        play(test)

    def test_a_run_that_is_not_there_is_a_key_error(self, bench: ExecutorBench) -> None:
        async def test() -> None:
            async with bench.running() as (executor, _):
                with pytest.raises(KeyError):
                    await executor.wait(uuid4())

        play(test)
