"""Where a run stands, as commands show it."""

from __future__ import annotations

import json
from dataclasses import replace
from uuid import uuid4

import pytest

from agentrun.local.holders import Holder, Standing
from agentrun.local.views import needs_log, phase_now
from agentrun.log.replay import History
from agentrun.log.store import AttemptOutcome, AttemptRow, Levels, RunInfo, RunRow
from agentrun.proto import log_pb2 as pb

ROW = RunRow(run_id=uuid4(), owner="local/x", name="x", definition=b"", digest="", attempt=1)
ATTEMPT = AttemptRow(attempt=1, process="", confirmed_age_seconds=1)
PAUSED = replace(ATTEMPT, outcome=AttemptOutcome.PAUSED, reason="BudgetExceeded")


def info(row: RunRow = ROW, **summary: str) -> RunInfo:
    return RunInfo(run=row, summary=json.dumps(summary) if summary else "")


def held(standing: Standing, attempt: AttemptRow | None = ATTEMPT) -> Holder:
    return Holder(standing=standing, attempt=attempt)


@pytest.mark.parametrize(
    ("run", "who", "phase", "reason"),
    [
        (info(), held(Standing.NEVER, None), "Pending", ""),
        (info(phase="Running"), held(Standing.LIVE), "Running", ""),
        (info(replace(ROW, levels=Levels(suspend=True))), held(Standing.LIVE), "Pausing", "Suspended"),
        (info(replace(ROW, levels=Levels(shutdown="Stop"))), held(Standing.LIVE), "Running", "Cancelling"),
        (info(phase="Paused"), held(Standing.OVER, PAUSED), "Paused", "BudgetExceeded"),
        # The process is dead, whatever it said last.
        (info(phase="Running"), held(Standing.CRASHED), "Paused", "Interrupted"),
        (
            info(phase="Running"),
            held(Standing.OVER, replace(ATTEMPT, outcome=AttemptOutcome.CRASHED)),
            "Paused",
            "Interrupted",
        ),
        (
            info(phase="Running"),
            held(Standing.OVER, replace(ATTEMPT, outcome=AttemptOutcome.FAILED, reason="CorruptLog")),
            "Paused",
            "CorruptLog",
        ),
        (
            info(replace(ROW, ended=True), phase="Failed", reason="LoopDetected"),
            held(Standing.OVER),
            "Failed",
            "LoopDetected",
        ),
    ],
)
def test_where_a_run_stands(run: RunInfo, who: Holder, phase: str, reason: str) -> None:
    assert phase_now(run, who)[:2] == (phase, reason)


def test_the_message_of_a_pause_is_that_of_the_same_pause() -> None:
    told = info(reason="BudgetExceeded", message="5 of 5")
    assert phase_now(told, held(Standing.OVER, PAUSED))[2] == "5 of 5"
    assert phase_now(told, held(Standing.OVER, replace(PAUSED, reason="Terminated")))[2] == ""


def test_the_log_decides_over_a_summary_that_is_behind() -> None:
    ended = info(replace(ROW, ended=True), phase="Running")
    assert needs_log(ended)
    assert not needs_log(info(replace(ROW, ended=True), phase="Cancelled"))
    history = History(ROW.run_id)
    final = pb.Final(outcome=pb.OUTCOME_CANCELLED, reason="Cancelled", message="why")
    history.fold(1, pb.NodeRecord(format=1, id="end.1", kind="finalize_run", final=final))
    assert phase_now(ended, held(Standing.CRASHED), history) == ("Cancelled", "Cancelled", "why")
