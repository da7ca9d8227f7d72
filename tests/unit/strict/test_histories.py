"""Hundreds of runs of real providers' agents, killed, drained and resumed at any moment: no provider
is ever sent what it would refuse, and no finished step is lost or done again."""

from __future__ import annotations

import pytest

from tests.support.strict.history import SHAPES, History

HISTORIES = 80
"""Of each provider."""
CHUNKS = 4

pytestmark = pytest.mark.filterwarnings(
    # A process that is killed leaves coroutines behind that were never begun.
    "ignore:coroutine .* was never awaited:RuntimeWarning",
)


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("provider", SHAPES)
def test_no_provider_is_sent_what_it_refuses(provider: str, chunk: int) -> None:
    for seed in range(chunk * HISTORIES // CHUNKS, (chunk + 1) * HISTORIES // CHUNKS):
        try:
            History(seed, provider).execute()
        except BaseException as error:
            error.add_note(f"{provider}, seed {seed}")
            raise
