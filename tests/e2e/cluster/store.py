"""The run log of a cluster, read from this machine through kubectl's port-forward.

Who uses it: tests that look at what the log says. A call opens a connection of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar
from urllib.parse import urlsplit
from uuid import UUID

from agentrun.log.postgres import PostgresStore
from agentrun.log.replay import History
from agentrun.log.store import AttemptRow
from tests.e2e.cluster.kube import Kubectl
from tests.support.postgres import run_apart

T = TypeVar("T")


class ClusterStore:
    """The database that a DSN names by its service, as pods write it."""

    def __init__(self, dsn: str) -> None:
        parts = urlsplit(dsn)
        assert parts.hostname is not None
        self._dsn = parts
        service, _, rest = parts.hostname.partition(".")
        self._service = service
        self._kube = Kubectl(rest.partition(".")[0])

    def ask(self, question: Callable[[PostgresStore], Awaitable[T]]) -> T:
        """The answer of the store."""
        answers: list[T] = []
        with self._kube.port_forward(f"svc/{self._service}", self._dsn.port or 5432) as port:
            user = self._dsn.netloc.rpartition("@")[0]
            dsn = self._dsn._replace(netloc=f"{user}@127.0.0.1:{port}").geturl()

            async def run() -> None:
                store = PostgresStore.open(dsn)
                try:
                    answers.append(await question(store))
                finally:
                    await store.close()

            run_apart(run)
        return answers[0]

    def history(self, run_id: UUID) -> History:
        """A run's log, replayed: a hole or a fork would raise."""
        history = History(run_id)
        history.fold_rows(self.ask(lambda store: store.read_rows(run_id)))
        return history

    def attempts(self, run_id: UUID) -> list[AttemptRow]:
        """A run's attempts."""
        return self.ask(lambda store: store.attempts(run_id))

    def all_attempts(self, run_ids: Iterable[UUID]) -> dict[UUID, list[AttemptRow]]:
        """Those of many runs, by one connection."""

        async def read(store: PostgresStore) -> dict[UUID, list[AttemptRow]]:
            return {run_id: await store.attempts(run_id) for run_id in run_ids}

        return self.ask(read)

    def outcomes(self, run_ids: Iterable[UUID]) -> list[int | None]:
        """What the final records say; None where there is none. Each log is replayed."""

        async def read(store: PostgresStore) -> list[int | None]:
            found: list[int | None] = []
            for run_id in run_ids:
                history = History(run_id)
                history.fold_rows(await store.read_rows(run_id))
                found.append(history.final.final.outcome if history.final is not None else None)
            return found

        return self.ask(read)
