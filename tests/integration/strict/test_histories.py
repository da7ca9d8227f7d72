"""The strict histories, with a real Postgres under the log."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.support.sim.blocking import BlockingStore
from tests.support.strict.blocking import PostgresBench
from tests.support.strict.history import SHAPES, History

HISTORIES = 10
"""Of each provider."""

pytestmark = pytest.mark.filterwarnings(
    # A process that is killed leaves coroutines behind that were never begun.
    "ignore:coroutine .* was never awaited:RuntimeWarning",
)


@pytest.fixture(scope="module")
def store(postgres: Any) -> Iterator[BlockingStore]:
    store = BlockingStore(postgres.dsn)
    yield store
    store.shut()


@pytest.mark.parametrize("provider", SHAPES)
def test_no_provider_is_sent_what_it_refuses(provider: str, store: BlockingStore) -> None:
    for seed in range(1_000_000, 1_000_000 + HISTORIES):
        try:
            History(seed, provider, partial(PostgresBench, backing=store)).execute()
        except BaseException as error:
            error.add_note(f"{provider}, seed {seed}")
            raise
