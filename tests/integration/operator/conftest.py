"""`play` runs a scenario against the whole operator, bounded in time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.operator.bench import Bench, bench

Scenario = Callable[[Bench], Awaitable[None]]
Play = Callable[..., None]
SECONDS_MAX = 180.0


@pytest.fixture
def play(make_database: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    def run(scenario: Scenario, **changes: Any) -> None:
        async def bounded() -> None:
            dsn = changes.pop("dsn", None) or make_database()
            async with asyncio.timeout(SECONDS_MAX):
                async with bench(dsn, tmp_path, monkeypatch, **changes) as made:
                    await scenario(made)

        asyncio.run(bounded())

    return run
