"""The simulator's histories, with the statements executed by a real Postgres."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.sim.blocking import BlockingStore
from tests.support.sim.history import Run

HISTORIES = 240
CHUNKS = 8


@pytest.fixture(scope="module")
def store(postgres: Any) -> Iterator[BlockingStore]:
    store = BlockingStore(postgres.dsn)
    yield store
    store.shut()


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_history_loses_or_repeats_a_finished_step(chunk: int, store: Any) -> None:
    seeds = range(1_000_000 + chunk * HISTORIES // CHUNKS, 1_000_000 + (chunk + 1) * HISTORIES // CHUNKS)
    backing: Callable[[Any], Any] = lambda loop: store  # noqa: E731
    for seed in seeds:
        try:
            Run(seed, backing).execute()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
