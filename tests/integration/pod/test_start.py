"""What a pod is told before it runs anything: texts, secrets, and what cannot start."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from agentrun.log.store import AttemptOutcome
from agentrun.proto import log_pb2 as pb
from agentrun.spec.definition import definition_from_bytes
from tests.integration.log.conftest import execute
from tests.integration.log.test_refusals import as_role
from tests.integration.pod.pods import Runs, agent, call, tool
from tests.support.postgres import run_apart
from tests.support.stub_tools import Answer, StubTools

SECRET = 'sk-test-4f"quoted\\and long'


def source(name: str, key: str) -> dict[str, object]:
    return {"configMapKeyRef": {"name": name, "key": key}}


def test_texts_are_read_once_and_later_edits_change_nothing(runs: Runs, tmp_path: Path) -> None:
    spec = agent({"text": "Yes."})
    del spec["prompt"]
    run = runs.make(spec | {"promptFrom": source("texts", "prompt")}, suspend=True)
    file = tmp_path / "config" / "texts" / "prompt"
    file.parent.mkdir(parents=True)
    file.write_text("The first text.")
    config: dict[str, Any] = {"AGENTRUN_CONFIG_DIR": str(tmp_path / "config")}
    assert run.pod(**config).ended() == 75
    file.write_text("Another text.")
    assert run.pod(**config).ended() == 75
    file.unlink()
    assert run.pod(**config).ended() == 75  # what was read once is not needed again
    standing = runs.ask(lambda store: store.resolve(run.run_id, None))
    assert standing is not None
    assert definition_from_bytes(standing).prompt == "The first text."


def test_a_text_that_is_missing_is_told_where_the_operator_reads_it(runs: Runs, tmp_path: Path) -> None:
    spec = agent({"text": "Yes."})
    del spec["prompt"]
    run = runs.make(spec | {"promptFrom": source("texts", "prompt")})
    pod = run.pod(AGENTRUN_CONFIG_DIR=str(tmp_path))
    assert pod.ended() == 2
    assert pod.words()["reason"] == "TextMissing"
    assert "key 'prompt' of ConfigMap 'texts'" in pod.words()["message"]
    (attempt,) = run.attempts()
    assert attempt.outcome is AttemptOutcome.FAILED
    assert attempt.reason == "TextMissing: " + pod.words()["message"]
    assert run.history().head == 0
    assert runs.ask(lambda store: store.resolve(run.run_id, None)) is None


def test_a_secret_that_is_missing_is_named_with_its_variable(runs: Runs) -> None:
    with StubTools() as stub:
        run = runs.make(secret_spec(stub.url("/pay")))
        pod = run.pod()
        assert pod.ended() == 2
        assert pod.words()["reason"] == "SecretMissing"
        assert "AGENTRUN_SECRET_PAYMENTS__TOKEN" in pod.words()["message"]
        assert stub.requests == []


def secret_spec(url: str) -> dict[str, object]:
    header = {
        "name": "X-Token",
        "valueFrom": {"secretKeyRef": {"name": "payments", "key": "token"}},
    }
    pay = {
        "name": "pay",
        "description": "Pays.",
        "http": {"url": url, "method": "POST", "headers": [header]},
        "parameters": {"type": "object", "properties": {"amount": {"type": "integer"}}},
        "effect": "idempotent",
    }
    return agent({"toolCalls": [call("pay", amount=1)]}, {"text": "Paid."}, tools=[pay])


def test_no_line_and_no_last_word_holds_a_secret(runs: Runs) -> None:
    with StubTools() as stub:
        stub.always("/pay", Answer(status=401, body=f"bad token {SECRET}".encode()))
        run = runs.make(secret_spec(stub.url("/pay")))
        pod = run.pod(AGENTRUN_SECRET_PAYMENTS__TOKEN=SECRET, AGENTRUN_LOG_LEVEL="debug")
        assert pod.ended() == 0
        assert stub.requests[0].headers["x-token"] == SECRET
    assert SECRET not in pod.text and "sk-test-4f" not in pod.text
    assert runs.dsn not in pod.text
    assert pod.events("finished", node="call-1-0")


def test_a_tool_that_is_not_there_cannot_start(runs: Runs) -> None:
    run = runs.make(agent({"text": "Yes."}, tools=[tool("nothing", "no_such_module:nothing")]))
    pod = run.pod()
    assert pod.ended() == 2
    assert pod.words()["reason"] == "CannotStart"
    assert "no_such_module" in pod.words()["message"]


def test_bad_settings_are_named_by_their_variables_all_at_once(runs: Runs) -> None:
    run = runs.make(agent({"text": "Yes."}))
    pod = run.pod(AGENTRUN_RUN_ID="hello", AGENTRUN_GRACE_SECONDS="soon", AGENTRUN_DATABASE_URL="")
    assert pod.ended() == 2
    told = [line["message"].partition(" ")[0] for line in pod.events("bad_setting")]
    assert told == ["AGENTRUN_DATABASE_URL", "AGENTRUN_RUN_ID", "AGENTRUN_GRACE_SECONDS"]
    assert pod.words()["reason"] == "InvalidSettings"


def test_a_database_that_refuses_is_told_without_the_password(runs: Runs) -> None:
    run = runs.make(agent({"text": "Yes."}))
    attempt = str(run.allocate())
    pod = run.pod(int(attempt), AGENTRUN_DATABASE_URL=runs.dsn.replace("/test_", "/absent_", 1))
    assert pod.ended() == 2
    assert pod.words()["reason"] == "StoreRefused"


RIGHTS = """
CREATE ROLE {role} LOGIN;
GRANT SELECT ON agentrun_schema, run, run_log, run_attempt, run_inbox, run_summary, run_blob TO {role};
GRANT INSERT ON run_log, run_summary, run_blob TO {role};
GRANT UPDATE ON run, run_attempt, run_summary TO {role};
"""
"""As docs/kubernetes/runner.md has them."""


def test_a_runners_role_needs_the_rights_that_its_page_names_and_no_more(runs: Runs) -> None:
    long_answer = {"text": "word " * 4000}  # too large for its record
    turns = [{"toolCalls": [call("add", a=1, b=2)]}, long_answer]
    run = runs.make(agent(*turns, tools=[tool("add", "agentrun.tools.demo:add")]))
    role = f"runner_{uuid4().hex}"
    run_apart(partial(execute, runs.dsn, RIGHTS.format(role=role)))
    dsn = as_role(runs.dsn, role)
    suspended = run.pod(AGENTRUN_DATABASE_URL=dsn)
    suspended.wait_for("starting")
    suspended.terminate()
    assert suspended.ended() == 75
    assert run.pod(AGENTRUN_DATABASE_URL=dsn).ended() == 0
    assert run.summary()["result"]["sizeBytes"] == 20_000
    assert "rights" not in "".join(pod.text for pod in run.pods)
    for line in RIGHTS.split(";")[1:4]:
        said = line.strip().replace("GRANT", "REVOKE").replace("TO {role}", f"FROM {role}")
        assert said.split()[0] == "REVOKE"
        run_apart(partial(execute, runs.dsn, said))
        other = runs.make(agent(long_answer))
        pod = other.pod(AGENTRUN_DATABASE_URL=dsn)
        assert pod.ended() == 2 and pod.words()["reason"] == "StoreRefused", pod.text
        run_apart(partial(execute, runs.dsn, line.format(role=role)))


def test_a_log_that_cannot_be_read_fails_by_name_and_place(runs: Runs) -> None:
    run = runs.make(agent({"text": "Yes."}))
    run.append([(1, pb.NodeRecord(format=99, id="user-1", kind="append_user_message", epoch=1))])
    pod = run.pod()
    assert pod.ended() == 2
    assert pod.words()["reason"] == "NewerFormat"
    (attempt,) = run.attempts()
    assert attempt.outcome is AttemptOutcome.FAILED
    assert attempt.reason.startswith(f"NewerFormat: run {run.run_id}, record 1: written by a newer build")
    assert not pod.events("launched")
