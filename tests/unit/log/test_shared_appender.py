"""Several runs in one process share an appender: none waits for another's rest, none falls with another."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from uuid import UUID

import pytest

from agentrun.log.appender import PACK_ROWS_MAX
from agentrun.log.errors import Fenced, StoreUnavailable
from agentrun.log.memory import MemoryStore
from agentrun.log.store import Look
from tests.unit.log.appending import A, B, World, scenario

STATEMENT_SECONDS = 0.003


def slow(world: World) -> None:
    """Each append takes its time on the way."""

    async def hook(when: str, _rows: object) -> None:
        if when == "before":
            await asyncio.sleep(STATEMENT_SECONDS)

    world.store.hook = hook


async def busy(world: World, until: asyncio.Event, *, width: int = 32) -> None:
    """Run A appends without a pause, as a fast batch does."""

    async def one(number: int) -> None:
        count = 0
        while not until.is_set():
            count += 1
            await asyncio.sleep(STATEMENT_SECONDS * (number + 1) / width)
            await world.append(A, f"n{number}-{count}")

    await asyncio.gather(*(one(number) for number in range(width)))


@pytest.mark.parametrize("final", [False, True])
def test_a_busy_run_keeps_no_other_waiting(final: bool) -> None:
    @scenario
    async def test(world: World) -> None:
        await world.claim(A, B)
        slow(world)
        over = asyncio.Event()
        working = asyncio.create_task(busy(world, over))
        await asyncio.sleep(0.2)
        began = world.loop.time()
        await world.append(B, "b", final=final)
        assert world.loop.time() - began <= 3 * STATEMENT_SECONDS
        over.set()
        await working
        assert len(world.ids(A)) > 100

    test()


@scenario
async def test_a_run_with_more_rows_than_a_pack_takes_keeps_no_other_waiting(world: World) -> None:
    await world.claim(A, B)
    slow(world)
    many = [asyncio.create_task(world.append(A, f"a{i}")) for i in range(5 * PACK_ROWS_MAX)]
    await asyncio.sleep(0)
    began = world.loop.time()
    await world.append(B, "b")
    assert world.loop.time() - began <= 3 * STATEMENT_SECONDS
    await asyncio.gather(*many)
    assert world.ids(A) == [f"a{i}" for i in range(5 * PACK_ROWS_MAX)]


@scenario
async def test_final_records_of_both_go_one_after_the_other(world: World) -> None:
    await world.claim(A, B)
    slow(world)
    await asyncio.gather(*(world.append(run, "end", final=True) for run in (A, B)))
    assert world.ids(A) == world.ids(B) == ["end"]


# --- one is looked at behind a reconnect, the other is not yet


class SlowLook:
    """Looks at run B take a second, behind the database's answer."""

    def __init__(self, world: World) -> None:
        self.under_way = asyncio.Event()
        look = MemoryStore.look

        async def slow_look(run_id: UUID, *, attempt: int) -> Look | None:
            found = await look(world.store, run_id, attempt=attempt)
            if run_id == B:
                self.under_way.set()
                await asyncio.sleep(1)
            return found

        world.store.look = slow_look  # type: ignore[method-assign]


@scenario
async def test_a_run_that_is_fenced_while_another_is_looked_at_harms_it_not(world: World) -> None:
    await world.claim(A, B)
    slow = SlowLook(world)
    world.logs[B]._tail.token = None
    appends = [asyncio.create_task(world.append(run, "x")) for run in (A, B)]
    await slow.under_way.wait()
    run = world.database.runs[A]
    run.row = replace(run.row, epoch=run.row.epoch + 1)
    with pytest.raises(Fenced):
        await world.logs[A].look()
    with pytest.raises(Fenced):
        await appends[0]
    await appends[1]
    assert (world.ids(A), world.ids(B)) == ([], ["x"])


@scenario
async def test_a_run_that_comes_while_another_is_looked_at_is_looked_at_too(world: World) -> None:
    """The failover has lost rows of both: without a look there would be a hole."""
    await world.claim(A, B)
    for run in (A, B):
        await world.append(run, "lost")
    slow = SlowLook(world)
    world.lose(A, 1)
    world.lose(B, 1)
    of_b = asyncio.create_task(world.append(B, "new"))
    await slow.under_way.wait()
    await asyncio.gather(world.append(A, "new"), of_b)
    assert world.ids(A) == world.ids(B) == ["lost", "new"]


@scenario
async def test_rows_that_are_missed_while_another_run_is_looked_at_are_appended_again(
    world: World,
) -> None:
    await world.claim(A, B)
    await world.append(A, "lost")
    slow = SlowLook(world)
    world.logs[B]._tail.token = None
    of_b = asyncio.create_task(world.append(B, "x"))
    await slow.under_way.wait()
    world.lose(A, 1)
    await world.logs[A].look()
    await of_b
    assert (world.ids(A), world.ids(B)) == (["lost"], ["x"])


# --- looks beside appends


@scenario
async def test_a_look_that_overlaps_an_append_is_no_failover(world: World) -> None:
    """It was executed before the append, and its answer comes behind that of the append."""
    await world.claim(A)
    look, looks = MemoryStore.look, 0

    async def slow_look(run_id: UUID, *, attempt: int) -> Look | None:
        nonlocal looks
        looks += 1
        found = await look(world.store, run_id, attempt=attempt)
        await asyncio.sleep(1)
        return found

    world.store.look = slow_look  # type: ignore[method-assign]
    looking = asyncio.create_task(world.logs[A].look())
    await asyncio.sleep(0.5)
    for name in ("a", "b", "c"):
        await world.append(A, name)
    found = await looking
    assert found.head < world.logs[A].history.head
    assert looks == 1, "neither asked again nor recovered from"
    assert world.logs[A].fresh()


@scenario
async def test_a_look_that_finds_fewer_rows_than_were_acknowledged_before_it_is_one(world: World) -> None:
    await world.claim(A)
    await world.append(A, "a")
    await world.append(A, "b")
    world.lose(A, 2)
    with pytest.raises(StoreUnavailable, match="has lost records"):
        await world.logs[A]._look()
    await world.logs[A].look()
    assert world.ids(A) == ["a", "b"]
