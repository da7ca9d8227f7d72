"""The API answers as its OpenAPI document says, whatever it is asked, and never with a 500."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest

from tests.integration.api.servers import TOKEN, Process
from tests.unit.api.server import hello

ROOT = Path(__file__).parents[3]
DOCUMENT = ROOT / "docs" / "openapi.json"
SECONDS_MAX = 240.0
EXAMPLES = 20


@pytest.fixture
def server(make_database: Callable[[], str], tmp_path: Path) -> Iterator[Process]:
    made = Process(make_database(), tmp_path)
    made.start()
    yield made
    made.kill()


def ended_run(server: Process) -> None:
    """There is a run to be found."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with httpx2.Client(base_url=server.url, headers=headers, timeout=30) as client:
        run_id = client.post("/v1/runs", json=hello()).json()["runID"]
        began = time.monotonic()
        while client.get(f"/v1/runs/{run_id}").json()["phase"] != "Succeeded":
            assert time.monotonic() - began < 30
            time.sleep(0.1)


def test_nothing_that_is_asked_gives_a_500_or_an_undocumented_answer(server: Process) -> None:
    ended_run(server)
    done = subprocess.run(
        [
            *(str(Path(sys.executable).with_name("schemathesis")), "run", str(DOCUMENT)),
            *("--url", server.url, "-H", f"Authorization: Bearer {TOKEN}"),
            *("--max-examples", str(EXAMPLES), "--request-timeout", "20", "--no-color"),
            # That a text is one which an earlier answer gave, no schema can say.
            *("--checks", "all", "--exclude-checks", "positive_data_acceptance"),
        ],
        cwd=server.folder,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "generated" in done.stdout
