"""`agentrun run` and `agentrun resume`, in this process."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from agentrun.local import stores
from tests.integration.cli.conftest import ANSWER, HELLO, Agentrun, execute, lookups, manifest

RESULT_KEYS = {"runID", "name", "phase", "reason", "message", "answer", "attempt", "budget", "exitCode"}
BUDGET_KEYS = {
    *("tokens", "wallSeconds", "turns", "retries"),
    *("tokensIn", "tokensOut", "tokensCached", "tokensReasoning", "estimated", "onExceeded"),
}


def test_the_answer_goes_to_stdout_and_the_progress_to_stderr(agentrun: Agentrun) -> None:
    said = agentrun("run", HELLO)
    assert (said.code, said.out) == (0, "There are six words in it.\n")
    events = [line.split()[0] for line in said.err.splitlines()]
    assert events[:2] == ["run", "claimed"]
    assert events.count("launched") == events.count("finished") == 6
    assert "node=call-1-0 kind=tool_call tool=word_count" in said.err


def test_quiet_says_only_the_answer(agentrun: Agentrun) -> None:
    said = agentrun("run", HELLO, "--quiet")
    assert (said.out, said.err) == ("There are six words in it.\n", "")


def test_the_result_as_json(agentrun: Agentrun) -> None:
    said = agentrun("run", HELLO, "-o", "json", "--quiet")
    assert said.json.keys() == RESULT_KEYS
    assert said.json["budget"].keys() == BUDGET_KEYS
    assert said.json["budget"]["tokens"] == {"used": 185, "limit": None}
    assert said.json["budget"]["turns"] == {"used": 2, "limit": 100}
    assert said.json["answer"] == "There are six words in it."
    assert (said.json["phase"], said.json["exitCode"], said.json["attempt"]) == ("Succeeded", 0, 1)


def test_a_run_that_has_ended_is_told_and_not_run_again(agentrun: Agentrun, dsn: str) -> None:
    run_id = str(uuid4())
    first = agentrun("run", HELLO, "--run-id", run_id, "-o", "json", "--quiet")
    rows = execute(dsn, "SELECT count(*) FROM run_log WHERE run_id = $1::text::uuid", run_id)
    for argv in (["run", HELLO, "--run-id", run_id], ["resume", run_id[:8]]):
        again = agentrun(*argv, "-o", "json")
        assert (again.code, again.json) == (0, first.json)
        assert again.err == ""
    assert rows == execute(dsn, "SELECT count(*) FROM run_log WHERE run_id = $1::text::uuid", run_id)


def test_an_id_belongs_to_one_definition(agentrun: Agentrun, tmp_path: Path) -> None:
    run_id = str(uuid4())
    agentrun("run", HELLO, "--run-id", run_id)
    other = manifest(tmp_path, [ANSWER])
    said = agentrun("run", other, "--run-id", run_id)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"agentrun: run {run_id} has another definition")


def test_the_id_in_the_manifest_is_the_runs(agentrun: Agentrun, tmp_path: Path) -> None:
    run_id = str(uuid4())
    file = manifest(tmp_path, [ANSWER], runID=run_id)
    assert agentrun("run", file, "-o", "json").json["runID"] == run_id


def test_a_manifest_may_come_from_standard_input(agentrun: Agentrun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(Path(HELLO).read_bytes())))
    assert agentrun("run", "-", "--quiet").out == "There are six words in it.\n"


def test_a_missing_secret_is_told_before_anything_is_made(
    agentrun: Agentrun, tmp_path: Path, dsn: str
) -> None:
    before = execute(dsn, "SELECT count(*) FROM run")
    file = manifest(tmp_path, [ANSWER])
    tree = json.loads(Path(file).read_text())
    ref = {"secretKeyRef": {"name": "keys", "key": "model"}}
    tree["spec"]["agent"]["model"] = {"name": "openai:m", "apiKeyFrom": ref}
    Path(file).write_text(json.dumps(tree))
    said = agentrun("run", file)
    assert said.code == 2
    assert said.err == (
        f"agentrun: {file}: spec.agent.model.apiKeyFrom.secretKeyRef: key 'model' of Secret 'keys' has no"
        " value: set AGENTRUN_SECRET_KEYS__MODEL, which is not set\n"
    )
    assert execute(dsn, "SELECT count(*) FROM run") == before


def test_a_tool_that_is_not_there_is_told_before_anything_is_made(agentrun: Agentrun, tmp_path: Path) -> None:
    file = manifest(tmp_path, [ANSWER])
    Path(file).write_text(Path(file).read_text().replace("demo:lookup", "demo:nothing"))
    said = agentrun("run", file)
    assert said.code == 2
    assert said.err.startswith("agentrun: spec.agent.tools[0]: ") and said.err.count("\n") == 1


def test_a_budget_that_is_reached_pauses_and_raising_it_goes_on(agentrun: Agentrun, tmp_path: Path) -> None:
    run_id = str(uuid4())
    turns = [lookups(0), ANSWER]
    said = agentrun("run", manifest(tmp_path, turns, budget={"turns": 1}), "--run-id", run_id)
    assert (said.code, said.out) == (75, "")
    assert said.err.splitlines()[-2:] == [
        "agentrun: paused (BudgetExceeded): budget.turns: 1 of 1 turns are used",
        f"agentrun: go on with: agentrun resume {run_id} --budget-turns N"
        " (or raise spec.budget.turns and run the manifest again with this --run-id)",
    ]
    # The same manifest pauses again; a higher number in it goes on.
    assert agentrun("run", manifest(tmp_path, turns, budget={"turns": 1}), "--run-id", run_id).code == 75
    said = agentrun("run", manifest(tmp_path, turns, budget={"turns": 5}), "--run-id", run_id, "-o", "json")
    assert (said.code, said.json["answer"], said.json["attempt"]) == (0, "the answer", 3)
    assert said.json["budget"]["turns"] == {"used": 2, "limit": 5}
    assert said.json["budget"]["retries"]["used"] == 0


def test_a_budget_is_raised_without_the_manifest_too(agentrun: Agentrun, tmp_path: Path) -> None:
    run_id = str(uuid4())
    file = manifest(tmp_path, [lookups(0), ANSWER], budget={"tokens": 15})
    said = agentrun("run", file, "--run-id", run_id, "-o", "json")
    assert (said.code, said.json["phase"], said.json["reason"]) == (75, "Paused", "BudgetExceeded")
    assert said.json["answer"] is None
    assert agentrun("resume", run_id).code == 75
    said = agentrun("resume", run_id, "--budget-tokens", "500", "-o", "json")
    assert said.code == 0
    assert said.json["budget"]["tokens"] == {"used": 40, "limit": 500}


def test_a_budget_may_fail_the_run(agentrun: Agentrun, tmp_path: Path) -> None:
    file = manifest(tmp_path, [lookups(0), ANSWER], budget={"turns": 1, "onExceeded": "Fail"})
    said = agentrun("run", file, "-o", "json")
    assert (said.code, said.json["phase"], said.json["reason"]) == (1, "Failed", "BudgetExceeded")
    assert "agentrun: failed (BudgetExceeded): budget.turns: 1 of 1 turns are used" in said.err


def test_a_run_that_fails_says_why(agentrun: Agentrun, tmp_path: Path) -> None:
    file = manifest(tmp_path, [{"error": {"status": 401, "message": "who are you?"}}])
    said = agentrun("run", file)
    assert said.code == 1
    assert said.err.splitlines()[-1].startswith("agentrun: failed (")
    assert "who are you?" in said.err


def test_a_suspended_manifest_waits_for_its_resume(agentrun: Agentrun, tmp_path: Path) -> None:
    run_id = str(uuid4())
    file = manifest(tmp_path, [ANSWER], suspend=True)
    said = agentrun("run", file, "--run-id", run_id)
    assert said.code == 75
    assert "agentrun: paused (Suspended)" in said.err
    assert agentrun("resume", run_id[:8]).out == "the answer\n"


def test_texts_are_kept_as_they_were_first_read(
    agentrun: Agentrun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dsn: str
) -> None:
    run_id = str(uuid4())
    source: dict[str, Any] = {"promptFrom": {"configMapKeyRef": {"name": "texts", "key": "prompt"}}}
    file = manifest(tmp_path, [lookups(0), ANSWER], budget={"turns": 1}, prompt=None, **source)
    said = agentrun("run", file, "--run-id", run_id)
    assert said.code == 2 and "set AGENTRUN_CONFIG_DIR" in said.err
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/prompt").write_text("the first text")
    monkeypatch.setenv("AGENTRUN_CONFIG_DIR", str(tmp_path))
    assert agentrun("run", file, "--run-id", run_id).code == 75
    (tmp_path / "texts/prompt").write_text("another text")
    assert agentrun("run", file, "--run-id", run_id).code == 75
    stored = execute(dsn, "SELECT resolved FROM run WHERE run_id = $1::text::uuid", run_id)
    assert b"the first text" in stored and b"another" not in stored
    # And nobody has to have them for a resume.
    monkeypatch.delenv("AGENTRUN_CONFIG_DIR")
    assert agentrun("resume", run_id, "--budget-turns", "9").out == "the answer\n"


def test_a_run_of_a_cluster_is_left_to_its_object(agentrun: Agentrun, dsn: str) -> None:
    run_id = str(uuid4())
    agentrun("run", HELLO, "--run-id", run_id)
    execute(dsn, "UPDATE run SET owner = 'cluster/ns/x/uid' WHERE run_id = $1::text::uuid", run_id)
    for argv in (["resume", run_id], ["cancel", run_id], ["run", HELLO, "--run-id", run_id]):
        said = agentrun(*argv)
        assert said.code == 2
        assert said.err == f"agentrun: run {run_id} belongs to cluster/ns/x/uid: change it there\n"
    assert agentrun("show", run_id).code == 0


def test_a_store_that_is_not_there_is_named_without_its_password(
    agentrun: Agentrun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "FIRST_CONTACT_SECONDS_MAX", 0)
    address = "postgresql://me:secret@127.0.0.1:1/runs"
    for argv in (["run", HELLO], ["list"], ["show", "abcd"], ["resume", "abcd"]):
        said = agentrun(*argv, "--store", address)
        assert said.code == 2 and said.err.count("\n") == 1
        assert "agentrun: postgresql://me:***@127.0.0.1:1/runs cannot be reached: " in said.err
        assert "secret" not in said.err
