"""One database a test, and no pod that outlives it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.pod.pods import Run, Runs


class _Counted(Runs):
    """Remembers its runs, to end their pods."""

    def __init__(self, dsn: str, folder: Path) -> None:
        super().__init__(dsn, folder)
        self.made: list[Run] = []

    def make(self, *args: object, **levels: object) -> Run:
        run = super().make(*args, **levels)  # type: ignore[arg-type]
        self.made.append(run)
        return run


@pytest.fixture
def runs(make_database: Callable[[], str], tmp_path: Path) -> Iterator[Runs]:
    """Runs in a database of the test's own."""
    made = _Counted(make_database(), tmp_path)
    yield made
    for run in made.made:
        for pod in run.pods:
            pod.kill()
