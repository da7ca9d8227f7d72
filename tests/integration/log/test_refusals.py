"""What the server or the driver refuses: for now, or for good, and never with a password."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import pytest

from agentrun.local.embedded import EmbeddedPostgres
from agentrun.log.errors import LogError, StoreRefused, StoreUnavailable
from agentrun.log.postgres import PostgresStore
from agentrun.log.postgres_errors import explain
from agentrun.log.store import InboxRow, Levels
from tests.contract.scenarios import bounded, claimed_run, log_row, new_run
from tests.integration.log.conftest import execute

TRANSIENT = (
    "08000 08001 08003 08004 08006 08P01 25006 25P02 40001 40P01 53000 53100 53200 53300 54000 55P03 "
    "57014 57P01 57P02 57P03 57P05 58000 58030"
)
FOR_GOOD = "28P01 28000 3D000 3F000 42501 42P01 42703 42601 22021 26000 57P04 XX000"


@pytest.mark.parametrize("state", TRANSIENT.split())
def test_what_passes_by_itself_is_unavailable(state: str) -> None:
    error = asyncpg.PostgresError.new({"C": state, "M": "said the server"})
    meaning = explain(error, "append link")
    assert isinstance(meaning, StoreUnavailable) and f"said the server ({state})" in str(meaning)


@pytest.mark.parametrize("state", FOR_GOOD.split())
def test_what_does_not_is_refused_with_its_cause(state: str) -> None:
    error = asyncpg.PostgresError.new({"C": state, "M": "said the server"})
    meaning = explain(error, "append link")
    assert isinstance(meaning, StoreRefused) and f"said the server ({state})" in str(meaning)


@pytest.mark.parametrize(
    "error",
    [
        ConnectionResetError("reset"),
        TimeoutError(),
        asyncpg.InterfaceError("connection is closed"),
        asyncpg.exceptions.ProtocolError("what?"),
        asyncpg.exceptions.TargetServerAttributeNotMatched("no primary"),
    ],
)
def test_a_broken_connection_is_unavailable(error: Exception) -> None:
    assert isinstance(explain(error, "side link"), StoreUnavailable)


@pytest.mark.parametrize(
    "dsn",
    [
        "mysql://user:s3cret@127.0.0.1/db",
        "user:s3cret@127.0.0.1",
        "postgresql://user:s3cret@127.0.0.1:s3cret/db",
        "postgresql://user:s3cret@127.0.0.1:54x/db",
        "postgresql://user:s3cret@127.0.0.1/db?sslmode=s3cret",
        "postgresql://user:s3cret@[::1/db",
        "postgresql://user:s3cret@127.0.0.1:1/db",
        "",
    ],
)
def test_no_error_shows_the_password(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPORT", "1")  # where no server is, whatever a DSN leaves open
    monkeypatch.setenv("PGHOST", "127.0.0.1")
    with pytest.raises(LogError) as caught:
        bounded(PostgresStore.open(dsn).connect())
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))


def test_no_server_at_the_address_is_unavailable() -> None:
    for dsn in (
        "postgresql://u@127.0.0.1:1/db",
        "postgresql://u@/db?host=/nowhere",
        "postgresql://u@no.invalid/db",
    ):
        with pytest.raises(StoreUnavailable):
            bounded(PostgresStore.open(dsn).connect())


def test_a_database_that_is_not_there_is_refused_by_name(database: str) -> None:
    with pytest.raises(StoreRefused, match="no such database"):
        bounded(PostgresStore.open(database.replace("/test_", "/missing_")).connect())


def test_a_server_that_takes_no_writes_is_unavailable_until_it_does(
    postgres: EmbeddedPostgres, make_database: Callable[[], str]
) -> None:
    database = make_database()
    name = urlsplit(database).path.lstrip("/")

    async def run() -> None:
        store = PostgresStore.open(database)
        run_id = await claimed_run(store)
        await store.close()
        await execute(database, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        store = PostgresStore.open(database)
        token = await store.connect()
        for attempt in (0, 1):
            with pytest.raises(StoreUnavailable, match="25006"):
                await store.look(run_id, attempt=attempt)
        with pytest.raises(StoreUnavailable, match="25006"):
            await store.insert_row(log_row(run_id, 1), token)
        await execute(postgres.dsn, f"ALTER DATABASE {name} RESET default_transaction_read_only")
        look = await store.look(run_id, attempt=0)
        assert look is not None and look.head == 0
        assert await store.insert_row(log_row(run_id, 1), await store.connect())
        await store.close()

    bounded(run())


@pytest.fixture
def role(database: str) -> str:
    """A role that owns nothing; it stays until the server goes."""
    name = f"role_{uuid4().hex}"
    bounded(execute(database, f"CREATE ROLE {name} LOGIN PASSWORD 'pw'"))
    return name


def as_role(dsn: str, role: str) -> str:
    scheme, _, rest = dsn.partition("://")
    return f"{scheme}://{role}:pw@{rest.partition('@')[2]}"


def test_too_many_connections_are_unavailable_until_there_is_room(database: str, role: str) -> None:
    async def run() -> None:
        await execute(database, f"ALTER ROLE {role} CONNECTION LIMIT 0")
        owner = PostgresStore.open(database)
        await owner.connect()
        await owner.close()
        store = PostgresStore.open(as_role(database, role), migrate=False)
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="53300"):
                await store.connect()
            with pytest.raises(StoreUnavailable, match="53300"):
                await store.get_run(uuid4())
        await execute(
            database,
            f"ALTER ROLE {role} CONNECTION LIMIT 5; GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}",
        )
        await store.connect()
        await store.close()

    bounded(run())


def test_a_role_without_rights_on_the_tables_is_refused(database: str, role: str) -> None:
    async def run() -> None:
        owner = PostgresStore.open(database)
        run_id = await new_run(owner)
        await owner.close()
        await execute(database, f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")
        store = PostgresStore.open(as_role(database, role))
        assert await store.get_run(run_id) is not None
        with pytest.raises(StoreRefused, match=r"lacks rights.*run_inbox"):
            await store.post(run_id, InboxRow(id="1", kind="message", payload=b""))
        with pytest.raises(StoreRefused, match="lacks rights"):
            await store.insert_row(log_row(run_id, 1), await store.connect())
        await store.close()

    bounded(run())


def test_text_with_a_nul_is_named_before_it_reaches_the_server(database: str) -> None:
    async def run() -> None:
        store = PostgresStore.open(database)
        run_id = await new_run(store)
        with pytest.raises(ValueError, match="NUL"):
            await store.post(run_id, InboxRow(id="a\0b", kind="message", payload=b"\0"))
        with pytest.raises(ValueError, match="NUL"):
            await store.set_levels(run_id, Levels(generation=1, budget="\0"))
        with pytest.raises(ValueError, match="NUL"):
            await store.put_summary(run_id, epoch=1, head=1, summary="\0")
        await store.close()

    bounded(run())


def test_final_rows_go_alone(database: str) -> None:
    async def run() -> None:
        store = PostgresStore.open(database)
        run_id = await claimed_run(store)
        token = await store.connect()
        with pytest.raises(ValueError, match="final"):
            await store.insert_pack([log_row(run_id, 1, final=True)], token)
        with pytest.raises(ValueError, match="final"):
            await store.insert_next(log_row(run_id, 1, final=True), token)
        await store.close()

    bounded(run())


def test_without_prepared_statements_the_session_holds_none(database: str) -> None:
    async def run() -> None:
        store = PostgresStore.open(database, prepared_statements=False)
        run_id = await claimed_run(store)
        token = await store.connect()
        assert await store.insert_row(log_row(run_id, 1), token)
        for link in (store._append, store._side):
            assert await link.value("SELECT count(*) FROM pg_prepared_statements WHERE name <> ''") == 0
        await store.close()

    bounded(run())
