"""The schema is made once, whoever comes first, and a strange one is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import uuid4

import asyncpg
import pytest

from agentrun.log import migrations
from agentrun.log.errors import StoreRefused, StoreUnavailable
from agentrun.log.migrations import LOCK_KEY, Migration, migrate
from agentrun.log.postgres import SQL, PostgresStore
from tests.contract.scenarios import bounded, claimed_run
from tests.integration.log.conftest import execute
from tests.integration.log.test_refusals import as_role
from tests.support.proxy import Proxy

OPENERS = 12
ROUNDS = 5
TABLES = {"agentrun_schema", "run", "run_attempt", "run_blob", "run_inbox", "run_log", "run_summary"}


async def tables(dsn: str) -> set[str]:
    conn = await asyncpg.connect(dsn)
    try:
        rows = await conn.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        return {row[0] for row in rows}
    finally:
        await conn.close()


async def applied(dsn: str) -> list[int]:
    conn = await asyncpg.connect(dsn)
    try:
        return [row[0] for row in await conn.fetch("SELECT version FROM agentrun_schema ORDER BY version")]
    finally:
        await conn.close()


async def open_and_close(dsn: str, *, migrate: bool = True) -> None:
    store = PostgresStore.open(dsn, migrate=migrate)
    try:
        await store.connect()
    finally:
        await store.close()


@pytest.mark.parametrize("_round", range(ROUNDS))
def test_any_number_of_first_processes_make_one_schema(make_database: Callable[[], str], _round: int) -> None:
    dsn = make_database()

    async def run() -> None:
        stores = [PostgresStore.open(dsn) for _ in range(OPENERS)]
        await asyncio.gather(
            *(store.connect() for store in stores), *(store.list_runs() for store in stores[:4])
        )
        await asyncio.gather(*(store.close() for store in stores))
        assert await tables(dsn) == TABLES
        assert await applied(dsn) == [migration.version for migration in migrations.migrations()]

    bounded(run())


def test_a_current_schema_costs_one_select_and_waits_for_no_lock(database: str) -> None:
    async def run() -> None:
        await open_and_close(database)
        holder = await asyncpg.connect(database)
        await holder.execute("SELECT pg_advisory_lock($1)", LOCK_KEY)
        with Proxy(database) as proxy:
            await open_and_close(proxy.dsn)
            assert [text.split()[0] for text in proxy.statements] == ["SELECT", "SELECT"]
            assert "agentrun_schema" in proxy.statements[1]
        await holder.close()

    bounded(run())


def test_a_newer_schema_is_refused_by_name(make_database: Callable[[], str]) -> None:
    dsn = make_database()

    async def run() -> None:
        await open_and_close(dsn)
        await execute(dsn, "INSERT INTO agentrun_schema VALUES (9999, 'from_the_future', 'x')")
        for mode in (True, False):
            with pytest.raises(StoreRefused, match=r"newer \(9999, from_the_future\)"):
                await open_and_close(dsn, migrate=mode)

    bounded(run())


def test_a_process_of_an_older_build_starts_beside_newer_ones(
    make_database: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    dsn = make_database()
    first, second = migrations.migrations()[:2]
    assert second.compatible and not first.compatible

    async def run() -> None:
        with monkeypatch.context() as older:
            older.setattr(migrations, "migrations", lambda: (first,))
            before = PostgresStore.open(dsn)
            run_id = await claimed_run(before)
        assert await applied(dsn) == [1]
        await open_and_close(dsn)
        assert await applied(dsn) == [migration.version for migration in migrations.migrations()]
        with monkeypatch.context() as older:
            older.setattr(migrations, "migrations", lambda: (first,))
            after = PostgresStore.open(dsn, migrate=False)
            assert await after.get_run(run_id) is not None
            await claimed_run(after)
        # It works on, also over a connection that it makes only now.
        before.give_up(await before.connect())
        await before.connect()
        assert len(await before.live_runs("")) == 2
        for store in (before, after):
            await store.close()

    bounded(run())


def test_a_ledger_of_the_first_builds_gets_its_new_column(make_database: Callable[[], str]) -> None:
    dsn = make_database()
    first = migrations.migrations()[0]

    async def run() -> None:
        await execute(
            dsn,
            "CREATE TABLE agentrun_schema (version integer PRIMARY KEY, name text NOT NULL, "
            "sha256 text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())",
        )
        await execute(dsn, first.text)
        await execute(dsn, f"INSERT INTO agentrun_schema VALUES (1, '{first.name}', '{first.sha256}')")
        await open_and_close(dsn)
        assert await applied(dsn) == [migration.version for migration in migrations.migrations()]
        await open_and_close(dsn, migrate=False)

    bounded(run())


def test_runs_that_have_not_ended_are_found_without_a_look_at_the_others(
    make_database: Callable[[], str],
) -> None:
    dsn = make_database()
    made = "INSERT INTO run (run_id, owner, name, definition, digest, ended) "

    async def run() -> None:
        await open_and_close(dsn)
        await execute(
            dsn,
            made + "SELECT gen_random_uuid(), 'a/b', '', repeat('x', 500)::bytea, '', n % 500 > 0 "
            "FROM generate_series(1, 5000) AS n",
        )
        await execute(dsn, "VACUUM ANALYZE run")
        conn = await asyncpg.connect(dsn)
        plan = "\n".join(row[0] for row in await conn.fetch("EXPLAIN " + SQL["live_runs"], "a/"))
        assert "run_live" in plan and "Seq Scan on run " not in plan, plan
        # What a live run's process writes stays on the run's page and out of the index.
        async with conn.transaction():
            await conn.execute("UPDATE run SET epoch = epoch + 1, suspend = true WHERE NOT ended")
            hot = await conn.fetchval("SELECT pg_stat_get_xact_tuples_hot_updated('run'::regclass)")
            assert hot == 10
        await conn.close()

    bounded(run())


def test_a_migration_that_was_applied_with_other_text_is_refused(make_database: Callable[[], str]) -> None:
    dsn = make_database()

    async def run() -> None:
        await open_and_close(dsn)
        await execute(dsn, "UPDATE agentrun_schema SET sha256 = 'other' WHERE version = 1")
        with pytest.raises(StoreRefused, match=r"migration 1 \(run_log\).*another text"):
            await open_and_close(dsn)

    bounded(run())


def test_a_missing_schema_is_refused_where_nobody_may_make_it(make_database: Callable[[], str]) -> None:
    dsn, role = make_database(), f"role_{uuid4().hex}"

    async def run() -> None:
        with pytest.raises(StoreRefused, match=r"lacks migration 1 \(run_log\)"):
            await open_and_close(dsn, migrate=False)
        await execute(dsn, f"REVOKE CREATE ON SCHEMA public FROM PUBLIC; CREATE ROLE {role} LOGIN")
        with pytest.raises(StoreRefused, match="grant CREATE on the schema"):
            await open_and_close(as_role(dsn, role))
        assert await tables(dsn) == set()

    bounded(run())


@pytest.mark.parametrize(
    "where", ["pg_advisory_xact_lock", "CREATE TABLE IF NOT EXISTS", "CREATE TABLE run ", "COMMIT"]
)
def test_a_boot_that_was_cut_off_is_made_good_by_the_next(
    make_database: Callable[[], str], where: str
) -> None:
    dsn = make_database()

    async def run() -> None:
        with Proxy(dsn) as proxy:
            for lose in (proxy.lose_request, proxy.lose_reply):
                lose(where)
                with pytest.raises(StoreUnavailable):
                    await open_and_close(proxy.dsn)
                assert proxy.fault_was_taken()
        store = PostgresStore.open(dsn)
        await claimed_run(store)
        await store.close()
        assert await tables(dsn) == TABLES

    bounded(run())


def test_later_migrations_are_applied_in_order_all_or_none(make_database: Callable[[], str]) -> None:
    dsn = make_database()
    known = migrations.migrations()
    second = Migration(len(known) + 1, "second", "CREATE TABLE second (id int)")
    third = Migration(len(known) + 2, "third", "ALTER TABLE second ADD COLUMN more int")
    broken = Migration(len(known) + 2, "broken", "ALTER TABLE nowhere ADD COLUMN more int")

    async def run() -> None:
        conn = await asyncpg.connect(dsn)
        await migrate(conn)
        with pytest.raises(asyncpg.UndefinedTableError):
            await migrate(conn, (*known, second, broken))
        assert await tables(dsn) == TABLES
        await migrate(conn, (*known, second, third))
        assert await applied(dsn) == [migration.version for migration in (*known, second, third)]
        await conn.close()
        with pytest.raises(StoreRefused, match="newer"):
            await open_and_close(dsn)

    bounded(run())
