"""What a store promises about the log, tokens, inbox, summary, hints and blobs."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from agentrun.log.errors import StoreUnavailable
from agentrun.log.store import InboxRow, LogStore
from tests.contract.scenarios import claimed_run, log_row, new_run, scenario


class LogContract:
    """A subclass has the fixture `opener`."""

    # --- rows

    @scenario
    async def test_a_row_goes_into_a_free_place_and_reads_back(self, store: LogStore) -> None:
        run_id = await claimed_run(store)
        token = await store.connect()
        record = bytes(range(256)) * 100
        assert await store.insert_row(log_row(run_id, 1, record), token)
        assert await store.insert_row(log_row(run_id, 2, b"\0"), token)
        assert await store.read_rows(run_id) == [(1, record), (2, b"\0")]
        look = await store.look(run_id, attempt=1)
        assert look is not None and look.head == 2 and not look.ended

    @scenario
    async def test_a_taken_place_is_false_and_the_row_in_it_stays(self, one: LogStore, two: LogStore) -> None:
        run_id = await claimed_run(one)
        assert await one.insert_row(log_row(run_id, 1, b"mine"), await one.connect())
        for record in (b"mine", b"yours"):
            assert not await two.insert_row(log_row(run_id, 1, record), await two.connect())
        assert await two.read_rows(run_id) == [(1, b"mine")]

    @scenario
    async def test_of_many_that_insert_at_the_same_place_one_wins(self, one: LogStore, two: LogStore) -> None:
        run_id = await claimed_run(one)
        tokens = {one: await one.connect(), two: await two.connect()}
        for seq in range(1, 11):
            results = await asyncio.gather(
                *(
                    store.insert_row(log_row(run_id, seq, name), tokens[store])
                    for store, name in ((one, b"a"), (two, b"b"), (one, b"c"), (two, b"d"))
                )
            )
            assert sorted(results) == [False, False, False, True]
            assert len(await one.read_rows(run_id, after=seq - 1)) == 1

    @scenario
    async def test_a_final_row_ends_the_run(self, store: LogStore) -> None:
        run_id = await claimed_run(store)
        token = await store.connect()
        assert await store.insert_row(log_row(run_id, 1), token)
        assert await store.insert_row(log_row(run_id, 2, final=True), token)
        info = await store.get_run(run_id)
        assert info is not None and info.run.ended and info.run.ended_at is not None
        assert [seq for seq, _ in await store.read_rows(run_id)] == [1, 2]

    @scenario
    async def test_a_final_row_that_is_not_inserted_ends_nothing(self, store: LogStore) -> None:
        run_id = await claimed_run(store)
        token = await store.connect()
        assert await store.insert_row(log_row(run_id, 1, b"other"), token)
        assert not await store.insert_row(log_row(run_id, 1, final=True), token)
        elsewhere = replace(token, server="2001-01-01T00:00:00.000001+00:00")
        assert not await store.insert_row(log_row(run_id, 2, final=True), elsewhere)
        look = await store.look(run_id, attempt=1)
        assert look is not None and (look.ended, look.head) == (False, 1)

    @scenario
    async def test_a_final_row_sent_again_is_false_and_the_run_stays_ended(self, store: LogStore) -> None:
        run_id = await claimed_run(store)
        token = await store.connect()
        assert await store.insert_row(log_row(run_id, 1, final=True), token)
        assert not await store.insert_row(log_row(run_id, 1, final=True), token)
        look = await store.look(run_id, attempt=1)
        assert look is not None and look.ended

    # --- packs

    @scenario
    async def test_a_pack_goes_in_as_a_whole_over_several_runs(self, store: LogStore) -> None:
        runs = sorted([await claimed_run(store) for _ in range(3)])
        token = await store.connect()
        rows = [log_row(run_id, seq) for run_id in runs for seq in (1, 2, 3)]
        assert await store.insert_pack(rows, token)
        for run_id in runs:
            assert await store.read_rows(run_id) == [(seq, b"record %d" % seq) for seq in (1, 2, 3)]

    @scenario
    async def test_what_is_new_of_many_runs_is_read_at_once_so_much_of_each(self, store: LogStore) -> None:
        first, second, quiet = sorted([await claimed_run(store) for _ in range(3)])
        token = await store.connect()
        rows = [log_row(run_id, seq) for run_id in (first, second) for seq in (1, 2, 3)]
        assert await store.insert_pack(rows, token)
        heads = {first: 0, second: 2, quiet: 0, UUID(int=7): 0}
        found = await store.read_new(heads, limit=2)
        assert sorted(found) == [(first, 1, b"record 1"), (first, 2, b"record 2"), (second, 3, b"record 3")]
        assert [seq for run_id, seq, _ in found if run_id == first] == [1, 2]
        assert await store.read_new({}, limit=2) == []

    @scenario
    async def test_one_taken_place_keeps_a_whole_pack_out(self, one: LogStore, two: LogStore) -> None:
        first, second = sorted([await claimed_run(one), await claimed_run(one)])
        assert await two.insert_row(log_row(second, 2, b"theirs"), await two.connect())
        rows = [log_row(first, 1), log_row(first, 2), log_row(second, 1), log_row(second, 2)]
        assert not await one.insert_pack(rows, await one.connect())
        assert await one.read_rows(first) == []
        assert await one.read_rows(second) == [(2, b"theirs")]

    @scenario
    async def test_of_overlapping_packs_at_once_one_goes_in(self, one: LogStore, two: LogStore) -> None:
        tokens = {one: await one.connect(), two: await two.connect()}
        for _ in range(10):
            run_id = await claimed_run(one)
            results = await asyncio.gather(
                one.insert_pack([log_row(run_id, seq, b"one") for seq in (1, 2, 3)], tokens[one]),
                two.insert_pack([log_row(run_id, seq, b"two") for seq in (1, 2)], tokens[two]),
            )
            assert sorted(results) == [False, True]
            assert len({record for _, record in await one.read_rows(run_id)}) == 1

    # --- the next place

    @scenario
    async def test_next_is_the_place_behind_the_greatest_only(self, store: LogStore) -> None:
        run_id = await claimed_run(store)
        token = await store.connect()
        assert not await store.insert_next(log_row(run_id, 2), token)
        assert await store.insert_next(log_row(run_id, 1), token)
        assert not await store.insert_next(log_row(run_id, 1, b"other"), token)
        assert not await store.insert_next(log_row(run_id, 3), token)
        assert await store.insert_next(log_row(run_id, 2), token)
        assert await store.read_rows(run_id) == [(1, b"record 1"), (2, b"record 2")]

    @scenario
    async def test_of_many_that_want_the_next_place_one_gets_it(self, one: LogStore, two: LogStore) -> None:
        run_id = await claimed_run(one)
        tokens = {one: await one.connect(), two: await two.connect()}
        for seq in range(1, 11):
            results = await asyncio.gather(
                *(store.insert_next(log_row(run_id, seq), tokens[store]) for store in (one, two, one, two))
            )
            assert sorted(results) == [False, False, False, True]

    # --- tokens

    @scenario
    async def test_the_token_stays_while_the_connection_does(self, store: LogStore) -> None:
        token = await store.connect()
        assert await store.connect() == token
        run_id = await claimed_run(store)
        assert await store.insert_row(log_row(run_id, 1), token)
        assert await store.connect() == token

    @scenario
    async def test_an_old_token_appends_nothing(self, store: LogStore) -> None:
        run_id = await claimed_run(store)
        old = await store.connect()
        store.give_up(old)
        new = await store.connect()
        assert new.serial != old.serial and new.server == old.server
        store.give_up(old)
        assert await store.connect() == new, "giving up what is given up changes nothing"
        for attempt in (
            store.insert_row(log_row(run_id, 1), old),
            store.insert_row(log_row(run_id, 1, final=True), old),
            store.insert_pack([log_row(run_id, 1), log_row(run_id, 2)], old),
            store.insert_next(log_row(run_id, 1), old),
        ):
            with pytest.raises(StoreUnavailable):
                await attempt
        assert await store.read_rows(run_id) == []
        assert await store.insert_row(log_row(run_id, 1), new)

    @scenario
    async def test_a_connection_that_was_given_up_appends_nothing(self, store: LogStore) -> None:
        run_id = await claimed_run(store)
        token = await store.connect()
        store.give_up(token)
        with pytest.raises(StoreUnavailable):
            await store.insert_row(log_row(run_id, 1), token)
        assert await store.read_rows(run_id) == []

    @scenario
    async def test_the_token_of_another_server_appends_nothing(self, store: LogStore) -> None:
        run_id = await claimed_run(store)
        token = await store.connect()
        for server in ("2001-01-01T00:00:00.000001+00:00", "no server's name"):
            elsewhere = replace(token, server=server)
            assert not await store.insert_row(log_row(run_id, 1), elsewhere)
            assert not await store.insert_pack([log_row(run_id, 1), log_row(run_id, 2)], elsewhere)
            assert not await store.insert_next(log_row(run_id, 1), elsewhere)
        assert await store.read_rows(run_id) == []
        assert await store.insert_row(log_row(run_id, 1), token)

    # --- reading

    @scenario
    async def test_rows_are_read_in_order_from_a_place_up_to_a_limit(self, store: LogStore) -> None:
        run_id = await claimed_run(store)
        token = await store.connect()
        for seq in (3, 1, 2, 5):
            assert await store.insert_row(log_row(run_id, seq), token)
        assert [seq for seq, _ in await store.read_rows(run_id)] == [1, 2, 3, 5]
        assert [seq for seq, _ in await store.read_rows(run_id, after=2)] == [3, 5]
        assert [seq for seq, _ in await store.read_rows(run_id, after=1, limit=2)] == [2, 3]
        assert await store.read_rows(run_id, after=5) == []
        look = await store.look(run_id, attempt=1)
        assert look is not None and look.head == 5

    # --- inbox, summary, hints, blobs

    @scenario
    async def test_a_message_is_added_once_and_messages_keep_their_order(self, store: LogStore) -> None:
        run_id = await new_run(store)
        for name in ("b", "a", "c"):
            assert await store.post(run_id, InboxRow(id=name, kind="message", payload=b"\0" + name.encode()))
        assert not await store.post(run_id, InboxRow(id="a", kind="approval", payload=b"other"))
        rows = await store.inbox(run_id)
        assert [(row.id, row.kind, row.payload) for row in rows] == [
            (name, "message", b"\0" + name.encode()) for name in ("b", "a", "c")
        ]
        assert all(row.created_at is not None for row in rows)
        other = await new_run(store)
        assert await store.inbox(other) == []
        look = await store.look(run_id, attempt=0)
        info = await store.get_run(run_id)
        assert look is not None and info is not None
        counts = {standing.run_id: standing.inbox for standing in await store.standings([run_id, other])}
        assert (look.inbox, info.inbox, counts) == (len(rows), len(rows), {run_id: len(rows), other: 0})
        assert await store.post(other, InboxRow(id="a", kind="message", payload=b""))

    @scenario
    async def test_a_summary_gives_way_to_no_older_one(self, store: LogStore) -> None:
        run_id = await new_run(store)

        async def after(epoch: int, head: int, summary: str) -> str:
            await store.put_summary(run_id, epoch=epoch, head=head, summary=summary)
            info = await store.get_run(run_id)
            assert info is not None
            return info.summary

        assert await after(2, 10, "two, ten") == "two, ten"
        assert await after(1, 99, "an older epoch") == "two, ten"
        assert await after(2, 9, "an older head") == "two, ten"
        assert await after(2, 10, "the same place again") == "the same place again"
        assert await after(2, 11, "a newer head") == "a newer head"
        assert await after(3, 1, "a newer epoch") == "a newer epoch"

    @scenario
    async def test_hints_reach_every_listener(self, one: LogStore, two: LogStore) -> None:
        first: asyncio.Queue[UUID | None] = asyncio.Queue()
        second: asyncio.Queue[UUID | None] = asyncio.Queue()
        await one.listen(first.put_nowait)
        await one.listen(second.put_nowait)
        runs = {uuid4(), uuid4()}
        await two.notify([])
        await two.notify(list(runs))
        for seen in (first, second):
            assert {await seen.get(), await seen.get()} == runs

    @scenario
    async def test_a_blob_is_kept_under_run_and_hash(self, store: LogStore) -> None:
        one, other = await new_run(store), await new_run(store)
        data = b"\0\xff" * 100_000
        await store.put_blob(one, b"hash", data)
        await store.put_blob(one, b"hash", data)
        assert await store.get_blob(one, b"hash") == data
        assert await store.get_blob(one, b"other") is None
        assert await store.get_blob(other, b"hash") is None
        await store.put_blob(one, b"empty", b"")
        assert await store.get_blob(one, b"empty") == b""
