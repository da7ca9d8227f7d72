"""A database and a folder for the commands of each test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.support.commands import Commands

# Each test starts processes, and compiling all modules of a provider takes each of them seconds.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.fixture
def agentrun(make_database: Callable[[], str], tmp_path: Path) -> Iterator[Commands]:
    """The command, on a database of its own."""
    commands = Commands(make_database(), tmp_path)
    yield commands
    commands.close()


@pytest.fixture
def run_id() -> str:
    return str(uuid4())
