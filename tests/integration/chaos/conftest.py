"""A database and a folder for the commands of each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.support.commands import Commands


@pytest.fixture
def agentrun(make_database: Callable[[], str], tmp_path: Path) -> Iterator[Commands]:
    """The command, on a database of its own."""
    commands = Commands(make_database(), tmp_path)
    yield commands
    commands.close()


@pytest.fixture
def run_id() -> str:
    return str(uuid4())
