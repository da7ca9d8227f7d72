"""Connections that end, hang or lead elsewhere: who is told what, and what stands in the log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import UUID

import asyncpg
import pytest

from agentrun.local.embedded import EmbeddedPostgres
from agentrun.log.errors import StoreRefused, StoreUnavailable
from agentrun.log.postgres import PostgresStore
from tests.contract.scenarios import bounded, claimed_run, log_row, new_run
from tests.integration.log.conftest import execute
from tests.support.proxy import Proxy

APPEND = "INSERT INTO run_log"
SOON_SECONDS = 0.3
"""The bound on statements where a test waits for it."""


@asynccontextmanager
async def opened(dsn: str, seconds: float = 10.0) -> AsyncIterator[PostgresStore]:
    store = PostgresStore.open(
        dsn,
        application_name="under-test",
        statement_timeout_seconds=seconds,
        connect_timeout_seconds=seconds,
    )
    try:
        yield store
    finally:
        await store.close()


async def kill(dsn: str, last_statement: str = "%") -> None:
    """Ends the backends of the store under test whose last statement is like this."""
    await execute(
        dsn,
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name = 'under-test' "
        f"AND query LIKE '{last_statement}'",
    )


async def stands(dsn: str, run_id: UUID) -> list[int]:
    """The places that are taken in the log, as another process sees them."""
    async with opened(dsn) as store:
        return [seq for seq, _ in await store.read_rows(run_id)]


def test_an_idle_append_link_that_was_killed_is_replaced_at_connect(database: str) -> None:
    async def run() -> None:
        async with opened(database) as store:
            run_id = await claimed_run(store)
            old = await store.connect()
            assert await store.insert_row(log_row(run_id, 1), old)
            await kill(database)
            with pytest.raises(StoreUnavailable):
                await store.insert_row(log_row(run_id, 2), old)
            new = await store.connect()
            assert new.serial > old.serial and new.server == old.server
            with pytest.raises(StoreUnavailable):
                await store.insert_row(log_row(run_id, 2), old)
            assert await store.insert_row(log_row(run_id, 2), new)
            assert [seq for seq, _ in await store.read_rows(run_id)] == [1, 2]

    bounded(run())


def test_an_idle_side_link_that_was_killed_is_replaced_at_the_next_statement(database: str) -> None:
    async def run() -> None:
        async with opened(database) as store:
            run_id = await new_run(store)
            for _ in range(3):
                await kill(database)
                await asyncio.sleep(0.05)
                assert await store.get_run(run_id) is not None

    bounded(run())


@pytest.mark.parametrize("kind", ["row", "final", "pack", "next"])
def test_a_killed_statement_is_unavailable_and_stands_nowhere(database: str, kind: str) -> None:
    async def run() -> None:
        async with opened(database) as store:
            run_id = await claimed_run(store)
            token = await store.connect()
            blocker = await asyncpg.connect(database)
            async with blocker.transaction():
                await blocker.execute("LOCK TABLE run_log IN EXCLUSIVE MODE")
                statement = asyncio.ensure_future(append(store, run_id, kind))
                await asyncio.sleep(0.1)
                await kill(database, f"%{APPEND}%")
                with pytest.raises(StoreUnavailable):
                    await statement
            await blocker.close()
            assert await store.connect() != token
            assert await stands(database, run_id) == []
            look = await store.look(run_id, attempt=1)
            assert look is not None and not look.ended

    bounded(run())


async def append(store: PostgresStore, run_id: UUID, kind: str) -> bool:
    token = await store.connect()
    if kind == "pack":
        return await store.insert_pack([log_row(run_id, 1), log_row(run_id, 2)], token)
    if kind == "next":
        return await store.insert_next(log_row(run_id, 1), token)
    return await store.insert_row(log_row(run_id, 1, final=kind == "final"), token)


@pytest.mark.parametrize("kind", ["row", "final", "pack", "next"])
def test_a_lost_reply_leaves_the_row_and_a_lost_request_does_not(database: str, kind: str) -> None:
    async def run() -> None:
        with Proxy(database) as proxy:
            async with opened(proxy.dsn) as store:
                run_id = await claimed_run(store)
                proxy.lose_request(APPEND)
                with pytest.raises(StoreUnavailable):
                    await append(store, run_id, kind)
                assert proxy.fault_was_taken() and await stands(database, run_id) == []
                proxy.lose_reply(APPEND)
                with pytest.raises(StoreUnavailable):
                    await append(store, run_id, kind)
                assert proxy.fault_was_taken() and (await stands(database, run_id))[0] == 1
                assert not await append(store, run_id, kind), "its place is taken, by itself"

    bounded(run())


def test_a_statement_that_went_silent_ends_in_time_and_the_next_link_is_new(database: str) -> None:
    async def run() -> None:
        with Proxy(database) as proxy:
            async with opened(proxy.dsn, SOON_SECONDS) as store:
                run_id = await claimed_run(store)
                old = await store.connect()
                proxy.black_hole()
                for call in (
                    lambda: store.insert_row(log_row(run_id, 1), old),
                    lambda: store.look(run_id, attempt=1),
                    lambda: store.connect(),
                    lambda: store.look(run_id, attempt=1),
                ):
                    began = time.monotonic()
                    with pytest.raises(StoreUnavailable):
                        await call()
                    assert 0.5 * SOON_SECONDS < time.monotonic() - began < 5 * SOON_SECONDS
                proxy.heal()
                assert (await store.connect()).serial > old.serial
                assert await store.look(run_id, attempt=1) is not None

    bounded(run())


def test_a_statement_that_arrives_late_still_finds_its_place_or_not(database: str) -> None:
    async def run() -> None:
        with Proxy(database) as proxy:
            async with opened(proxy.dsn, SOON_SECONDS) as store:
                run_id = await claimed_run(store)
                proxy.hold(APPEND)
                with pytest.raises(StoreUnavailable):
                    await store.insert_row(log_row(run_id, 1, b"late"), await store.connect())
                assert await store.insert_row(log_row(run_id, 1, b"in time"), await store.connect())
                proxy.release()
                await asyncio.sleep(0.1)
                assert await store.read_rows(run_id) == [(1, b"in time")]

    bounded(run())


def test_those_who_wait_behind_a_lost_link_fail_with_it(database: str) -> None:
    async def run() -> None:
        with Proxy(database) as proxy:
            async with opened(proxy.dsn, SOON_SECONDS) as store:
                run_id = await new_run(store)
                proxy.black_hole()
                began = time.monotonic()
                results = await asyncio.gather(
                    *(store.get_run(run_id) for _ in range(10)), return_exceptions=True
                )
                assert all(isinstance(result, StoreUnavailable) for result in results)
                assert time.monotonic() - began < 5 * SOON_SECONDS, "not ten bounds one after the other"
                proxy.heal()
                assert await store.get_run(run_id) is not None

    bounded(run())


def test_a_cancelled_statement_gives_up_its_link(database: str) -> None:
    async def run() -> None:
        async with opened(database) as store:
            run_id = await claimed_run(store)
            old = await store.connect()
            blocker = await asyncpg.connect(database)
            async with blocker.transaction():
                await blocker.execute("LOCK TABLE run_log IN EXCLUSIVE MODE")
                statement = asyncio.ensure_future(store.insert_row(log_row(run_id, 1), old))
                await asyncio.sleep(0.1)
                statement.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await statement
                with pytest.raises(StoreUnavailable):
                    await store.insert_row(log_row(run_id, 2), old)
            await blocker.close()
            assert (await store.connect()).serial > old.serial

    bounded(run())


def test_closing_cuts_off_what_is_under_way_and_opens_nothing_again(database: str) -> None:
    async def run() -> None:
        store = PostgresStore.open(database)
        run_id = await claimed_run(store)
        token = await store.connect()
        blocker = await asyncpg.connect(database)
        async with blocker.transaction():
            await blocker.execute("LOCK TABLE run_log IN EXCLUSIVE MODE")
            statement = asyncio.ensure_future(store.insert_row(log_row(run_id, 1), token))
            await asyncio.sleep(0.1)
            await store.close()
            with pytest.raises(StoreUnavailable):
                await statement
        await blocker.close()
        for call in (store.connect(), store.get_run(run_id)):
            with pytest.raises(StoreRefused, match="closed"):
                await call
        await store.close()

    bounded(run())


def test_a_store_holds_two_connections_whatever_is_asked_at_once(database: str) -> None:
    async def run() -> None:
        async with opened(database) as store:
            run_id = await claimed_run(store)
            token = await store.connect()
            await store.listen(lambda _: None)
            await asyncio.gather(
                *(store.get_run(run_id) for _ in range(20)),
                *(store.insert_row(log_row(run_id, seq), token) for seq in range(1, 21)),
                *(store.notify([run_id]) for _ in range(5)),
            )
            watcher = await asyncpg.connect(database)
            count = await watcher.fetchval(
                "SELECT count(*) FROM pg_stat_activity "
                "WHERE datname = current_database() AND application_name = 'under-test'"
            )
            await watcher.close()
            assert count == 2

    bounded(run())


def test_a_crash_of_the_server_keeps_what_was_acknowledged(postgres: EmbeddedPostgres, database: str) -> None:
    async def run() -> None:
        async with opened(database) as store:
            run_id = await claimed_run(store)
            old = await store.connect()
            assert await store.insert_row(log_row(run_id, 1), old)
            await asyncio.to_thread(postgres.restart_immediate)
            with pytest.raises(StoreUnavailable):
                await store.insert_row(log_row(run_id, 2), old)
            new = await store.connect()
            assert new.server != old.server
            assert not await store.insert_row(log_row(run_id, 2), replace(new, server=old.server))
            look = await store.look(run_id, attempt=1)
            assert look is not None and (look.head, look.server) == (1, new.server)
            assert await store.insert_row(log_row(run_id, 2), new)

    bounded(run())


def test_a_crash_in_the_middle_of_a_statement_is_unavailable(
    postgres: EmbeddedPostgres, database: str
) -> None:
    async def run() -> None:
        async with opened(database) as store:
            run_id = await claimed_run(store)
            token = await store.connect()
            blocker = await asyncpg.connect(database)
            await blocker.execute("BEGIN; LOCK TABLE run_log IN EXCLUSIVE MODE; LOCK TABLE run_attempt")
            calls = [
                asyncio.ensure_future(store.insert_row(log_row(run_id, 1), token)),
                asyncio.ensure_future(store.look(run_id, attempt=1)),
            ]
            await asyncio.sleep(0.1)
            await asyncio.to_thread(postgres.restart_immediate)
            for call in calls:
                with pytest.raises(StoreUnavailable):
                    await call
            blocker.terminate()
            assert await store.insert_row(log_row(run_id, 1), await store.connect())

    bounded(run())


def test_connecting_gives_up_a_side_link_that_leads_to_an_older_server(database: str) -> None:
    async def run() -> None:
        async with opened(database) as store:
            run_id = await new_run(store)
            side, before = store._side, store._side.serial
            assert side.started is not None
            side.started = side.started.replace(year=2001)
            await store.connect()
            assert await store.get_run(run_id) is not None
            assert side.serial == before + 1

    bounded(run())
