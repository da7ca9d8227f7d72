"""The run log of a cluster, read from this machine through kubectl's port-forward.

Who uses it: tests that look at what the log says. A call opens a connection of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
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
