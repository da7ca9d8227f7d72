"""Hints come and go; what is written depends on none of them."""

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

import asyncpg
import pytest

from agentrun.log import postgres_listen
from agentrun.log.errors import StoreUnavailable
from agentrun.log.postgres import PostgresStore
from tests.contract.scenarios import bounded, claimed_run, log_row
from tests.integration.log.test_lost_connections import kill, opened
from tests.support.proxy import Proxy


class Seen:
    """The hints that a listener was given, to wait for."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[UUID | None] = asyncio.Queue()

    def __call__(self, run_id: UUID | None) -> None:
        self._queue.put_nowait(run_id)

    async def wait_for(self, run_id: UUID | None, seconds: float = 10.0) -> None:
        async with asyncio.timeout(seconds):
            while await self._queue.get() != run_id:
                pass

    @property
    def count(self) -> int:
        return self._queue.qsize()


def test_a_killed_listener_comes_back_by_itself_and_says_so(database: str) -> None:
    async def run() -> None:
        seen = Seen()
        async with opened(database) as store, opened(database) as other:
            await store.listen(seen)
            for _ in range(2):
                await kill(database, "%LISTEN%")
                await seen.wait_for(None)
                run_id = uuid4()
                await other.notify([run_id])
                await seen.wait_for(run_id)

    bounded(run())


def test_nothing_is_lost_to_a_reader_whose_listener_was_away(database: str) -> None:
    async def run() -> None:
        seen = Seen()
        async with opened(database) as reader:
            writer = PostgresStore.open(database)
            run_id = await claimed_run(writer)
            token = await writer.connect()
            await reader.listen(seen)
            assert await writer.insert_row(log_row(run_id, 1), token)
            cursor = (await reader.read_rows(run_id))[-1][0]
            await kill(database, "%run_log%")
            for seq in range(2, 22):
                assert await writer.insert_row(log_row(run_id, seq), token)
                await writer.notify([run_id])
            await seen.wait_for(None)
            rows = await reader.read_rows(run_id, after=cursor)
            assert [seq for seq, _ in rows] == list(range(2, 22))
            await writer.close()

    bounded(run())


def test_appends_send_no_hint_and_hints_are_ids_only(database: str) -> None:
    async def run() -> None:
        payloads: asyncio.Queue[object] = asyncio.Queue()
        listener = await asyncpg.connect(database)
        await listener.add_listener("agentrun", lambda *args: payloads.put_nowait(args[3]))
        async with opened(database) as store:
            run_id = await claimed_run(store)
            token = await store.connect()
            assert await store.insert_row(log_row(run_id, 1, b"x" * 300_000), token)
            assert await store.insert_pack([log_row(run_id, 2), log_row(run_id, 3)], token)
            assert await store.insert_next(log_row(run_id, 4), token)
            assert await store.insert_row(log_row(run_id, 5, final=True), token)
            runs = [uuid4() for _ in range(1000)]
            await store.notify(runs)
            assert [await payloads.get() for _ in runs] == [str(hinted) for hinted in runs]
            assert payloads.empty()
        await listener.close()

    bounded(run())


def test_a_silent_connection_of_hints_is_noticed(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_listen, "PING_SECONDS", 0.1)

    async def run() -> None:
        seen = Seen()
        with Proxy(database) as proxy:
            async with opened(proxy.dsn, 0.3) as store:
                await store.listen(seen)
                proxy.black_hole()
                await asyncio.sleep(0.8)
                proxy.heal()
                await seen.wait_for(None)
                run_id = uuid4()
                await store.notify([run_id])
                await seen.wait_for(run_id)

    bounded(run())


def test_a_server_that_is_away_for_a_while_is_asked_again(database: str) -> None:
    async def run() -> None:
        seen = Seen()
        with Proxy(database) as proxy:
            async with opened(proxy.dsn) as store:
                await store.listen(seen)
                proxy.refuse()
                await asyncio.sleep(0.5)
                assert seen.count == 0
                proxy.heal()
                await seen.wait_for(None)

    bounded(run())


def test_listening_where_nobody_answers_fails_and_can_be_tried_again(database: str) -> None:
    async def run() -> None:
        seen = Seen()
        with Proxy(database) as proxy:
            proxy.refuse()
            async with opened(proxy.dsn) as store:
                with pytest.raises(StoreUnavailable):
                    await store.listen(seen)
                proxy.heal()
                await store.listen(seen)
                run_id = uuid4()
                await store.notify([run_id])
                await seen.wait_for(run_id)
                assert seen.count == 0, "listening once is being told once"

    bounded(run())


def test_a_listener_that_fails_harms_no_other(database: str, caplog: pytest.LogCaptureFixture) -> None:
    def broken(_run_id: UUID | None) -> None:
        raise RuntimeError("a fault of the listener's own")

    async def run() -> None:
        seen = Seen()
        async with opened(database) as store:
            await store.listen(broken)
            await store.listen(seen)
            run_id = uuid4()
            await store.notify([run_id])
            await seen.wait_for(run_id)

    bounded(run())
    assert "a fault of the listener's own" in caplog.text


def test_hints_may_have_a_dsn_of_their_own(database: str) -> None:
    async def run() -> None:
        seen = Seen()
        with Proxy(database) as pooler:
            store = PostgresStore.open(pooler.dsn, listen_dsn=database, prepared_statements=False)
            run_id = await claimed_run(store)
            await store.listen(seen)
            await store.notify([run_id])
            await seen.wait_for(run_id)
            pooler.reset()
            other = PostgresStore.open(database)
            await other.notify([run_id])
            await seen.wait_for(run_id)
            assert not any("LISTEN" in statement for statement in pooler.statements)
            await other.close()
            await store.close()

    bounded(run())
