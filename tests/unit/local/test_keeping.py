"""The embedded server is started again when it dies, a bounded number of times."""

from __future__ import annotations

import asyncio

import pytest

from agentrun.local import keeping
from agentrun.local.errors import EmbeddedPostgresError
from agentrun.local.keeping import TRIES_MAX, keep_alive


class Server:
    """Dies as often as it is told to."""

    def __init__(self, deaths: int = 0, why: str = "") -> None:
        self.deaths = deaths
        self.why = why
        self.tries = 0

    def lives(self) -> bool:
        return self.deaths == 0

    def revive(self) -> bool:
        self.tries += 1
        if self.why:
            raise EmbeddedPostgresError(self.why)
        self.deaths -= 1
        return True


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "WATCH_SECONDS", 0.001)
    monkeypatch.setattr(keeping, "TRY_SECONDS", 0.001)


def kept(server: Server) -> list[str]:
    """What is told until nothing more is to be done."""
    said: list[str] = []

    async def main() -> None:
        keeping = asyncio.create_task(keep_alive(server, said.append))
        await asyncio.wait([keeping], timeout=1.0)
        keeping.cancel()

    asyncio.run(main())
    return said


def test_one_that_lives_is_left_alone() -> None:
    server = Server()
    assert (kept(server), server.tries) == ([], 0)


def test_one_that_dies_is_started_again() -> None:
    server = Server(deaths=3)
    assert kept(server) == ["the embedded Postgres had died, and was started again"]
    assert server.tries == 3


def test_one_that_cannot_be_started_is_told_of_once_and_given_up() -> None:
    server = Server(deaths=1, why="data is gone")
    assert (kept(server), server.tries) == (["data is gone"], TRIES_MAX)
