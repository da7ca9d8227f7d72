"""`agentrun list`, `show` and `events`: their text and the keys of their JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from tests.integration.cli.conftest import ANSWER, HELLO, ROOT, Agentrun, execute, lookups, manifest
from tests.integration.cli.test_run import BUDGET_KEYS
from tests.support.postgres import new_folder, remove_folder

COST_KEYS = {"tokensIn", "tokensOut", "tokensCached", "wallMs", "turns", "retries", "estimated"}


@pytest.fixture
def run_id(agentrun: Agentrun) -> str:
    """A run that has ended."""
    made = str(uuid4())
    assert agentrun("run", HELLO, "--run-id", made).code == 0
    return made


def test_a_list_says_where_each_run_stands(agentrun: Agentrun, run_id: str) -> None:
    said = agentrun("list", "-o", "json", "--limit", "1")
    assert said.json.keys() == {"runs"}
    (run,) = said.json["runs"]
    assert run.keys() == {
        *("runID", "name", "owner", "phase", "reason", "attempt", "turns", "tokens"),
        *("createdAt", "endedAt"),
    }
    assert (run["runID"], run["name"], run["owner"]) == (run_id, "hello", "local/hello")
    assert (run["phase"], run["reason"], run["turns"], run["tokens"]) == ("Succeeded", "Completed", 2, 185)
    head, first, *_ = agentrun("list").out.splitlines()
    assert head.split() == ["PHASE", "NAME", "ID", "AGE", "TURNS", "TOKENS", "REASON"]
    cells = first.split()
    assert cells[:2] == ["Succeeded", "hello"] and run_id.startswith(cells[2]) and cells[4] == "2"


def test_a_run_whose_summary_was_never_written_is_listed_from_its_log(
    agentrun: Agentrun, run_id: str, dsn: str
) -> None:
    execute(dsn, "DELETE FROM run_summary WHERE run_id = $1::text::uuid", run_id)
    (run,) = agentrun("list", "-o", "json", "--limit", "1").json["runs"]
    assert (run["phase"], run["turns"], run["tokens"]) == ("Succeeded", 2, 185)


def test_show_says_all_about_a_run(agentrun: Agentrun, run_id: str) -> None:
    view = agentrun("show", run_id[:13], "-o", "json").json
    assert view.keys() == {
        *("runID", "name", "owner", "phase", "reason", "message", "answer", "createdAt", "endedAt"),
        *("budget", "levels", "attempts", "steps"),
    }
    assert view["budget"].keys() == BUDGET_KEYS
    assert view["levels"] == {"generation": 0, "suspend": False, "shutdown": ""}
    (attempt,) = view["attempts"]
    assert attempt.keys() == {"attempt", "outcome", "reason", "live", "startedAt", "endedAt", "process"}
    assert attempt["process"].keys() == {"host", "pid", "command"}
    assert attempt["process"]["pid"] == os.getpid()
    assert [step["node"] for step in view["steps"]] == [
        *("user-1", "turn-1", "tools-1", "call-1-0", "turn-2", "final")
    ]
    for step in view["steps"]:
        assert step.keys() == {"seq", "node", "kind", "attempt", "startedAt", "finishedAt", "cost"}
        assert step["cost"].keys() == COST_KEYS
    text = agentrun("show", run_id).out
    assert "phase        Succeeded (Completed)" in text
    assert text.endswith("ANSWER\nThere are six words in it.\n")


def test_events_are_a_line_a_record(agentrun: Agentrun, run_id: str) -> None:
    events = [json.loads(line) for line in agentrun("events", run_id, "-o", "json").out.splitlines()]
    assert [event["seq"] for event in events] == list(range(1, 8))
    for event in events:
        assert event.keys() == {
            *("seq", "time", "node", "kind", "what", "attempt", "epoch", "parents", "spawned"),
            *("consumed", "ask", "cost", "output", "error", "final"),
        }
        assert event["cost"].keys() == COST_KEYS
        assert event["output"].keys() == {"mediaType", "sizeBytes", "value"}
        assert event["error"] is None
    assert events[4]["output"]["value"] == {
        "name": "word_count",
        "content": "6",
        "outcome": "TOOL_OUTCOME_OK",
    }
    assert events[4]["what"] == "word_count ok: 6"
    assert events[-1]["final"] == {"outcome": "Succeeded", "reason": "Completed", "message": ""}
    lines = agentrun("events", run_id, "--after", "5").out.splitlines()
    assert [line.split()[0] for line in lines] == ["6", "7"]
    assert lines[1].split()[2:] == ["final", "finalize_run", "Succeeded:", "Completed"]


def test_an_event_of_a_failed_try_says_why(agentrun: Agentrun, tmp_path: Path) -> None:
    made = str(uuid4())
    wait = {"error": {"status": 503, "message": "busy", "retryAfterSeconds": 0}}
    agentrun("run", manifest(tmp_path, [wait, ANSWER], budget={"retries": 0}), "--run-id", made)
    events = [json.loads(line) for line in agentrun("events", made, "-o", "json").out.splitlines()]
    (failed,) = [event for event in events if event["error"]]
    assert failed["error"].keys() == {"reason", "message", "retryable", "retryInMs"}
    assert (failed["node"], failed["kind"], failed["error"]["retryable"]) == ("turn-1#1", "try", True)


def test_large_outputs_are_shown_from_where_they_are(agentrun: Agentrun, tmp_path: Path) -> None:
    made = str(uuid4())
    text = "long " * 4000
    turns = [{"text": text, "usage": {"inputTokens": 1, "outputTokens": 1}}]
    said = agentrun("run", manifest(tmp_path, turns), "--run-id", made, "--quiet")
    assert said.out.strip() == text.strip()
    assert agentrun("show", made, "-o", "json").json["answer"].strip() == text.strip()
    events = [json.loads(line) for line in agentrun("events", made, "-o", "json").out.splitlines()]
    turn = next(event for event in events if event["node"] == "turn-1")
    assert turn["output"]["sizeBytes"] > 20_000
    assert turn["output"]["value"]["parts"][0]["text"]["text"] == text


def test_a_cancelled_run_that_never_ran_was_pending(agentrun: Agentrun, dsn: str) -> None:
    made = str(uuid4())
    execute(
        dsn,
        "INSERT INTO run (run_id, owner, name, definition, digest)"
        " VALUES ($1::text::uuid, 'local/x', 'x', $2, '')",
        made,
        b"{}",
    )
    assert agentrun("show", made, "-o", "json").json["phase"] == "Pending"
    assert agentrun("cancel", made).code == 0
    assert agentrun("show", made, "-o", "json").json["phase"] == "Cancelled"
    said = agentrun("resume", made)
    assert (said.code, said.err) == (1, "agentrun: cancelled (Cancelled)\n")


def test_a_run_that_nobody_knows_is_told_in_one_line(agentrun: Agentrun, run_id: str) -> None:
    for argv in (["show"], ["events"], ["cancel"], ["resume"]):
        said = agentrun(*argv, "ffff0000")
        assert (said.code, said.out) == (2, "")
        assert said.err == "agentrun: no run has an id that begins with 'ffff0000'\n"


def test_who_only_reads_changes_no_schema(agentrun: Agentrun, make_database: Callable[[], str]) -> None:
    empty = make_database()
    for argv in (["list"], ["show", "abcd"], ["events", "abcd"]):
        said = agentrun(*argv, "--store", empty)
        assert said.code == 2
        assert said.err.endswith("the schema lacks migration 1 (run_log)\n") and said.err.count("\n") == 1
    assert agentrun("run", HELLO, "--store", empty, "--quiet").code == 0
    assert agentrun("list", "--store", empty).code == 0


def test_lookups_are_shown_with_their_tool(agentrun: Agentrun, tmp_path: Path) -> None:
    said = agentrun("run", manifest(tmp_path, [lookups(0, 0), ANSWER]))
    assert said.err.count("kind=tool_call tool=lookup") == 2


def test_the_embedded_server_is_used_where_no_database_is_named() -> None:
    folder = new_folder()
    environ = {k: v for k, v in os.environ.items() if k != "AGENTRUN_DATABASE_URL"}
    environ["AGENTRUN_DATA_DIR"] = str(folder)

    def agentrun(*argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "agentrun", *argv],
            env=environ,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
        )

    try:
        none = agentrun("list")
        assert (none.returncode, none.stdout, none.stderr) == (0, "", "agentrun: there are no runs\n")
        assert agentrun("show", "abcd").returncode == 2
        assert list(folder.iterdir()) == []  # reading has made nothing
        assert agentrun("run", HELLO, "--quiet").stdout == "There are six words in it.\n"
        assert "hello" in agentrun("list").stdout
    finally:
        remove_folder(folder)
