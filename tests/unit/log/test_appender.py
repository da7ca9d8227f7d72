"""One statement under way, places that never move, and no row that is not read back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest

from agentrun.log.appender import PACK_ROWS_MAX, Appender
from agentrun.log.errors import BlobMissing, Fenced, StoreUnavailable
from agentrun.log.memory import MemoryStore
from agentrun.log.runlog import RunLog
from agentrun.log.tail import RETAINED_BYTES_MAX, RETAINED_ROWS_MAX
from agentrun.proto import log_pb2 as pb
from tests.support.sim.world import SimClock
from tests.unit.log.appending import A, B, C, World, claim_run, scenario


def raising(error: Exception) -> Callable[[], Awaitable[None]]:
    async def fault() -> None:
        raise error

    return fault


def waiting(seconds: float) -> Callable[[], Awaitable[None]]:
    async def fault() -> None:
        await asyncio.sleep(seconds)

    return fault


LOST = StoreUnavailable("the answer was lost")


# --- packing


@scenario
async def test_a_record_alone_waits_for_no_company(world: World) -> None:
    await world.claim(A)
    began = world.loop.time()
    await world.append(A, "a")
    assert world.store.statements == [("row", [3])]
    assert world.loop.time() == began


@scenario
async def test_what_gathers_while_a_statement_is_under_way_goes_as_the_next(world: World) -> None:
    await world.claim(A, B)
    world.before.append(waiting(1))
    first = asyncio.create_task(world.append(A, "a1"))
    await asyncio.sleep(0.5)
    rest = [world.append(run, name) for run, name in ((B, "b1"), (A, "a2"), (A, "a3"), (B, "b2"))]
    await asyncio.gather(first, *rest)
    assert world.store.statements == [("row", [3]), ("pack", [4, 5, 3, 4])], "sorted by run and seq"
    assert (world.ids(A), world.ids(B)) == (["a1", "a2", "a3"], ["b1", "b2"])


@scenario
async def test_one_statement_is_under_way_at_a_time(world: World) -> None:
    await world.claim(A, B, C)
    under_way: list[int] = [0, 0]

    async def slow() -> None:
        under_way[0] += 1
        under_way[1] = max(under_way)
        await asyncio.sleep(0.1)
        under_way[0] -= 1

    world.before.extend([slow] * 100)
    await asyncio.gather(*(world.append(run, f"n{i}") for i in range(30) for run in (A, B, C)))
    assert under_way[1] == 1
    assert world.ids(A) == world.ids(B) == [f"n{i}" for i in range(30)]


@scenario
async def test_a_pack_is_bounded(world: World) -> None:
    await world.claim(A)
    world.before.append(waiting(1))
    count = 2 * PACK_ROWS_MAX + 10
    await asyncio.gather(*(world.append(A, f"n{i}") for i in range(count)))
    assert [len(seqs) for _, seqs in world.store.statements] == [PACK_ROWS_MAX, PACK_ROWS_MAX, 10]
    assert world.ids(A) == [f"n{i}" for i in range(count)]


@scenario
async def test_a_final_record_goes_alone(world: World) -> None:
    await world.claim(A, B)
    world.before.append(waiting(1))
    names = [world.append(A, "a1"), world.append(A, "end", final=True), world.append(B, "b1")]
    await asyncio.gather(*names, world.append(B, "b2"))
    assert ("row", [4]) in world.store.statements
    assert world.ids(A) == ["a1", "end"] and world.ids(B) == ["b1", "b2"]
    assert world.database.runs[A].row.ended and not world.database.runs[B].row.ended


@scenario
async def test_a_cancelled_append_keeps_its_place(world: World) -> None:
    await world.claim(A)
    world.before.append(waiting(1))
    appends = [asyncio.create_task(world.append(A, f"n{i}")) for i in range(4)]
    await asyncio.sleep(0.5)
    appends[2].cancel()
    await asyncio.wait(appends)
    assert world.ids(A) == ["n0", "n1", "n2", "n3"]
    assert "n2" in world.logs[A].history.done, "and is folded like any other"


# --- conflicts


async def zombie(world: World, run_id: UUID) -> RunLog:
    """Another process takes the run over, and appends."""
    appender = Appender(MemoryStore(world.database), SimClock(world.loop))
    return await claim_run(world.database, appender, run_id, writer=b"other")


@scenario
async def test_of_a_pack_with_one_foreign_row_the_other_runs_are_not_affected(world: World) -> None:
    await world.claim(A, B, C)
    world.before.append(waiting(1))
    first = asyncio.create_task(world.append(A, "a0"))
    await asyncio.sleep(0.5)
    appends = [world.append(run, name) for run in (A, B, C) for name in ("n1", "n2")]
    gathered = asyncio.gather(first, *appends, return_exceptions=True)
    await zombie(world, B)
    results = await gathered
    assert [type(result) for result in results] == [type(None)] * 3 + [Fenced] * 2 + [type(None)] * 2
    assert world.ids(A) == ["a0", "n1", "n2"] and world.ids(C) == ["n1", "n2"]
    assert world.ids(B) == ["attempt-2.2"], "nothing of the pack stands behind the foreign row"
    with pytest.raises(Fenced):
        await world.append(B, "later")
    with pytest.raises(Fenced):
        await world.logs[B].confirm()
    await world.append(A, "a3")


@scenario
async def test_a_single_row_that_meets_a_foreign_one_is_fenced(world: World) -> None:
    await world.claim(A)
    await zombie(world, A)
    with pytest.raises(Fenced, match="record 3 is somebody else's"):
        await world.append(A, "a")
    assert world.logs[A].fenced
    assert world.ids(A) == ["attempt-2.2"]


@scenario
async def test_a_run_that_is_gone_is_fenced(world: World) -> None:
    await world.claim(A, B)
    del world.database.runs[A]
    with pytest.raises(Fenced, match="no such run"):
        await world.append(A, "a")
    await world.append(B, "b")


# --- lost replies and failovers


@pytest.mark.parametrize("count", [1, 3])
def test_a_lost_reply_is_recognised_as_our_own(count: int) -> None:
    @scenario
    async def run(world: World) -> None:
        await world.claim(A)
        world.before.append(waiting(1))
        appends = [asyncio.create_task(world.append(A, f"n{i}")) for i in range(count)]
        world.after.extend([raising(LOST), raising(LOST)])
        await asyncio.gather(*appends)
        assert world.ids(A) == [f"n{i}" for i in range(count)]

    run()


@scenario
async def test_a_lost_reply_of_the_final_record_is_recognised_as_our_own(world: World) -> None:
    await world.claim(A)
    world.after.append(raising(LOST))
    await world.append(A, "end", final=True)
    assert world.ids(A) == ["end"] and world.logs[A].history.final is not None


@scenario
async def test_a_request_that_was_lost_is_sent_again_with_its_place_and_bytes(world: World) -> None:
    await world.claim(A)
    world.before.extend([raising(LOST), raising(LOST)])
    await world.append(A, "a")
    assert world.store.statements == [("row", [3])] * 3
    assert world.ids(A) == ["a"]


@scenario
async def test_rows_that_a_failover_lost_are_appended_again_before_anything_new(world: World) -> None:
    await world.claim(A)
    for name in ("n1", "n2", "n3"):
        await world.append(A, name)
    bytes_before = dict(world.database.runs[A].log)
    world.lose(A, 2)
    world.store.statements.clear()
    await world.append(A, "n4")
    assert world.ids(A) == ["n1", "n2", "n3", "n4"]
    assert {seq: world.database.runs[A].log[seq] for seq in bytes_before} == bytes_before
    assert world.logs[A].history.head == 6 and len(world.logs[A].history.done) == 5


@scenario
async def test_a_look_that_finds_rows_lost_has_them_appended_again(world: World) -> None:
    await world.claim(A)
    for name in ("n1", "n2"):
        await world.append(A, name)
    world.lose(A, 1)
    await world.logs[A].look()
    assert world.ids(A) == ["n1", "n2"]


@scenario
async def test_lost_rows_are_not_appended_behind_a_foreign_one(world: World) -> None:
    await world.claim(A)
    for name in ("a", "b", "c"):
        await world.append(A, name)
    world.lose(A, 2)
    log = world.database.runs[A].log
    log[max(log)] = b"foreign"
    with pytest.raises(Fenced, match="record 3 is somebody else's"):
        await world.append(A, "d")
    assert max(log) == 3


@scenario
async def test_a_gap_that_is_not_at_hand_any_more_fences(world: World) -> None:
    await world.claim(A)
    for number in range(RETAINED_ROWS_MAX + 10):
        await world.append(A, f"n{number}")
    world.lose(A, RETAINED_ROWS_MAX + 5)
    with pytest.raises(Fenced, match="the store lost records"):
        await world.append(A, "more")


@scenario
async def test_as_many_lost_rows_as_are_kept_are_appended_again(world: World) -> None:
    await world.claim(A)
    names = [f"n{number}" for number in range(RETAINED_ROWS_MAX + 10)]
    for name in names:
        await world.append(A, name)
    world.lose(A, RETAINED_ROWS_MAX)
    await world.append(A, "more")
    assert world.ids(A) == [*names, "more"]


@scenario
async def test_a_failover_to_a_server_on_which_others_went_on_fences(world: World) -> None:
    await world.claim(A)
    for name in ("n1", "n2"):
        await world.append(A, name)
    world.lose(A, 2)
    await zombie(world, A)
    with pytest.raises(Fenced):
        await world.append(A, "n3")
    assert world.ids(A) == ["attempt-2.2"]


@scenario
async def test_an_outage_is_waited_out_and_told_at_its_bound(world: World) -> None:
    await world.claim(A, B)
    ends = world.loop.time() + 40

    async def away() -> None:
        if world.loop.time() < ends:
            raise StoreUnavailable("away")

    world.before.extend([away] * 1000)
    await world.append(A, "a")
    assert ends <= world.loop.time() < ends + 6
    ends = float("inf")
    began = world.loop.time()
    results = await asyncio.gather(world.append(A, "x"), world.append(B, "y"), return_exceptions=True)
    assert [type(result) for result in results] == [StoreUnavailable] * 2
    assert 60 <= world.loop.time() - began < 70
    with pytest.raises(StoreUnavailable):
        await world.append(A, "later")


# --- the fence


@scenario
async def test_a_confirmation_is_as_old_as_the_sending_of_what_confirmed(world: World) -> None:
    await world.claim(A)
    log = world.logs[A]
    world.before.append(waiting(4))
    await world.append(A, "a")
    assert log.fresh()
    await asyncio.sleep(1.5)
    assert not log.fresh(), "it was sent 5.5 s ago"
    await log.confirm()
    assert log.fresh()


@scenario
async def test_a_process_that_slept_looks_before_it_calls(world: World) -> None:
    await world.claim(A)
    await world.logs[A].confirm()
    await zombie(world, A)
    world.loop._time += 100
    with pytest.raises(Fenced, match="epoch is 2, ours is 1"):
        await world.logs[A].confirm()


@scenario
async def test_closing_waits_for_what_is_under_way(world: World) -> None:
    await world.claim(A)
    world.before.append(waiting(3))
    task = asyncio.create_task(world.append(A, "a"))
    await asyncio.sleep(1)
    await world.appender.close()
    assert world.ids(A) == ["a"]
    await task


@pytest.mark.parametrize("large", [9_000, 5 * 1024 * 1024])
@pytest.mark.parametrize("acknowledged", [True, False])
def test_blobs_that_a_failover_lost_with_their_record_are_stored_again(
    acknowledged: bool, large: int
) -> None:
    """They lie in the same database. What is too large to be kept at hand is a gap like any other."""

    @scenario
    async def test(world: World) -> None:
        await world.claim(A)
        run = world.database.runs[A]
        record = pb.NodeRecord(id="a", kind="work", output=pb.Payload(inline=b"x" * large))

        def fail_over() -> None:
            run.blobs.clear()
            world.lose(A, int(acknowledged))

        if acknowledged:
            await world.logs[A].append(record)
            fail_over()
            if large > RETAINED_BYTES_MAX:
                with pytest.raises(Fenced, match="not at hand"):
                    await world.append(A, "b")
                return
            await world.append(A, "b")
        else:

            async def lost() -> None:
                fail_over()
                raise LOST

            world.before.append(lost)
            await world.logs[A].append(record)
        stands = pb.NodeRecord.FromString(run.log[3])
        assert stands.id == "a"
        assert await world.logs[A].payload(stands.output) == b"x" * large
        assert len(run.blobs) == 1

    test()


@scenario
async def test_a_blob_that_a_failover_lost_can_be_read_before_anything_is_appended(world: World) -> None:
    await world.claim(A)
    output = pb.Payload(inline=b"x" * 9_000)
    await world.logs[A].append(pb.NodeRecord(id="a", kind="work", output=output))
    world.database.runs[A].blobs.clear()
    world.lose(A, 1)
    assert await world.logs[A].payload(world.logs[A].history.done["a"].output) == output.inline
    assert world.ids(A) == ["a"]


@scenario
async def test_nothing_is_launched_while_what_a_failover_lost_is_on_its_way_again(world: World) -> None:
    await world.claim(A)
    output = pb.Payload(inline=b"x" * 9_000)
    await world.logs[A].append(pb.NodeRecord(id="a", kind="work", output=output))
    world.database.runs[A].blobs.clear()
    world.lose(A, 1)
    world.before.extend([waiting(20), raising(LOST), waiting(3)])
    with pytest.raises(StoreUnavailable):
        await world.logs[A]._look()  # by which it is noticed
    await asyncio.sleep(1)
    assert not world.logs[A].fresh()
    reading = asyncio.create_task(world.logs[A].payload(world.logs[A].history.done["a"].output))
    await world.logs[A].confirm()
    assert world.ids(A) == ["a"]
    assert await reading == output.inline


@scenario
async def test_a_blob_that_is_not_there_is_missing_without_end(world: World) -> None:
    await world.claim(A)
    await world.logs[A].append(pb.NodeRecord(id="a", kind="work", output=pb.Payload(inline=b"x" * 9_000)))
    world.database.runs[A].blobs.clear()
    with pytest.raises(BlobMissing):
        await world.logs[A].payload(world.logs[A].history.done["a"].output)


@scenario
async def test_a_reconnect_to_the_same_server_stores_no_blob_again(world: World) -> None:
    await world.claim(A)
    puts: list[int] = []
    put = world.store.put_blob

    async def counted(run_id: UUID, digest: bytes, data: bytes) -> None:
        puts.append(len(data))
        await put(run_id, digest, data)

    world.store.put_blob = counted  # type: ignore[assignment,method-assign]
    world.before.append(raising(LOST))
    await world.logs[A].append(pb.NodeRecord(id="a", kind="work", output=pb.Payload(inline=b"x" * 9_000)))
    assert puts == [9_000]
    assert world.ids(A) == ["a"]
