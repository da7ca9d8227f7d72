"""A process that runs the run takes an answer up at once, however the hint fares."""

from __future__ import annotations

import time
from typing import Any

import pytest

from agentrun.log.asks import answer_row
from agentrun.log.runlog import LOOK_SECONDS
from tests.support.chaos import call, http_tool, lookup, manifest, query, says, sound
from tests.support.commands import Commands, Running
from tests.support.stub_tools import StubTools

PROMPT_SECONDS = 1.0


def waiting(agentrun: Commands, run_id: str) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = agentrun("approvals", run_id, "-o", "json").json["calls"]
    return calls


def started(agentrun: Commands, run_id: str, tools: StubTools, seconds: float) -> tuple[Running, str]:
    """A live run, one call of which waits while another one goes on for so long; the id."""
    pay = http_tool("pay", tools.url("/pay"), requireApproval={"policy": "Always"})
    turns = [says("Both.", call("pay", n=1), call("lookup", topic="moon", seconds=seconds)), says("done")]
    file = agentrun.write(manifest(turns, tools=[pay, lookup()]))
    running = agentrun.start("run", file, "--run-id", run_id)
    running.until("parked reason=ApprovalRequired")
    (found,) = waiting(agentrun, run_id)
    assert tools.count("/pay") == 0 and not running.ended
    return running, str(found["id"])


def test_an_answer_reaches_a_live_process_in_a_moment(agentrun: Commands, run_id: str) -> None:
    with StubTools() as tools:
        running, id_ = started(agentrun, run_id, tools, 20)
        said = agentrun("approve", run_id, id_)
        assert (said.code, said.err) == (0, ""), "somebody runs it: there is nothing to resume"
        began = time.monotonic()
        running.until(lambda: tools.count("/pay") == 1)
        assert time.monotonic() - began < PROMPT_SECONDS
        assert running.wait().code == 0
        assert len(query(agentrun.dsn, "SELECT 1 FROM run_attempt")) == 1, "one process, from start to end"
        sound(agentrun.dsn, run_id)


@pytest.mark.parametrize("what", ["approve", "deny"])
def test_without_a_hint_the_slow_look_finds_it(agentrun: Commands, run_id: str, what: str) -> None:
    with StubTools() as tools:
        running, id_ = started(agentrun, run_id, tools, LOOK_SECONDS + 8)
        # As the command does it, but that nobody is told.
        row = answer_row(id_, approve=what == "approve", by="ann")
        query(
            agentrun.dsn,
            "INSERT INTO run_inbox (run_id, id, kind, payload) VALUES ($1::text::uuid, $2, $3, $4)",
            run_id,
            row.id,
            row.kind,
            row.payload,
        )
        running.until("finished node=call-1-0 ", LOOK_SECONDS + 6)
        assert tools.count("/pay") == (1 if what == "approve" else 0)
        assert running.wait().code == 0


def test_two_answers_at_once_are_one(agentrun: Commands, run_id: str) -> None:
    with StubTools() as tools:
        running, id_ = started(agentrun, run_id, tools, 15)
        both = [agentrun.start(what, run_id, id_) for what in ("approve", "deny")]
        codes = sorted(command.wait().code for command in both)
        assert codes == [0, 1], "one stands, and the other is told so"
        running.until("finished node=call-1-0 ")
        approved = both[0].wait().code == 0
        assert tools.count("/pay") == approved
        assert running.wait().code == 0
