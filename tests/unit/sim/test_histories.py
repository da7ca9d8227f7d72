"""Thousands of histories of crashes, zombies, lost replies and drains, each of them its seed."""

from __future__ import annotations

import pytest

from tests.support.sim.history import Run

HISTORIES = 3000
CHUNKS = 30


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_history_loses_or_repeats_a_finished_step(chunk: int) -> None:
    for seed in range(chunk * HISTORIES // CHUNKS, (chunk + 1) * HISTORIES // CHUNKS):
        try:
            Run(seed).execute()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
