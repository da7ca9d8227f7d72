"""The machine's own server goes away under a run."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.integration.cli.conftest import ANSWER, Running, lookups, manifest
from tests.support.postgres import new_folder, remove_folder


@pytest.fixture
def folder(start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The data folder of a server that the command alone uses."""
    made = new_folder()
    monkeypatch.delenv("AGENTRUN_DATABASE_URL")
    monkeypatch.setenv("AGENTRUN_DATA_DIR", str(made))
    yield made
    remove_folder(made)


def postmaster(folder: Path) -> int:
    return int((folder / "postgres" / "data" / "postmaster.pid").read_text().split()[0])


def test_a_server_that_is_killed_is_started_again_and_nothing_is_lost(
    folder: Path, start: Callable[..., Running], tmp_path: Path
) -> None:
    running = start("run", manifest(tmp_path, [lookups(0, 1.0), lookups(0.5), ANSWER]))
    running.until("finished node=call-1-0")
    os.kill(postmaster(folder), signal.SIGKILL)
    said = running.end()
    assert (said.code, said.out) == (0, "the answer\n"), said.err
    assert 'note message="the embedded Postgres had died, and was started again"' in said.err
    assert said.err.count("launched node=call-1-1") == 1


def test_a_server_whose_data_are_gone_is_told_of_and_not_made_anew(
    folder: Path, start: Callable[..., Running], tmp_path: Path
) -> None:
    running = start("run", manifest(tmp_path, [lookups(0, 1.0), ANSWER]), "--run-id", str(uuid4()))
    running.until("finished node=call-1-0")
    os.kill(postmaster(folder), signal.SIGKILL)
    shutil.rmtree(folder / "postgres" / "data")
    running.until("is gone, and with it what was kept there")
    running.until("store_away seconds=")
    running.process.terminate()
    running.until("stopping")
    running.process.terminate()
    began = time.monotonic()
    said = running.end()
    assert said.code == 75 and time.monotonic() - began < 10, said
    assert not (folder / "postgres" / "data").exists()
