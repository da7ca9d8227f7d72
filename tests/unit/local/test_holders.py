"""Who holds a run, case by case."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentrun.local.holders import CONFIRMED_SECONDS_MAX, Standing, holder
from agentrun.local.process import Machine, Process
from agentrun.log.store import AttemptOutcome, AttemptRow

LIVING = {100: 5000, 200: 7000}
"""Process ids of this machine, and when they started."""

HERE = Machine(host="here", boot_id="boot-1", pid_namespace="pid:[1]", start_ticks=LIVING.get)
OURS = Process(
    host="here", boot_id="boot-1", pid_namespace="pid:[1]", pid=100, start_ticks=5000, command="agentrun run"
)


def attempt(
    process: Process | str = OURS, *, age: float = 1.0, outcome: AttemptOutcome | None = None
) -> AttemptRow:
    text = process if isinstance(process, str) else process.to_json()
    return AttemptRow(attempt=3, process=text, confirmed_age_seconds=age, outcome=outcome)


@pytest.mark.parametrize(
    ("newest", "standing"),
    [
        (None, Standing.NEVER),
        (attempt(outcome=AttemptOutcome.PAUSED), Standing.OVER),
        (attempt(outcome=AttemptOutcome.CRASHED, age=1000), Standing.OVER),
        # It lives, or may.
        (attempt(), Standing.LIVE),
        (attempt(age=CONFIRMED_SECONDS_MAX), Standing.LIVE),
        (attempt(replace(OURS, pid=200, start_ticks=0)), Standing.LIVE),
        (attempt(replace(OURS, host="there", pid=999)), Standing.LIVE),
        (attempt(replace(OURS, boot_id="boot-2", pid=999)), Standing.LIVE),
        (attempt(replace(OURS, boot_id="", pid=999)), Standing.LIVE),
        (attempt(replace(OURS, pid_namespace="pid:[2]", pid=999)), Standing.LIVE),
        (attempt(replace(OURS, pid=0)), Standing.LIVE),
        (attempt('{"pod": "runner-1"}'), Standing.LIVE),
        (attempt("no JSON"), Standing.LIVE),
        (attempt("[1]"), Standing.LIVE),
        (attempt('{"pid": "100", "host": 7}'), Standing.LIVE),
        (attempt(""), Standing.LIVE),
        # It is dead.
        (attempt(age=CONFIRMED_SECONDS_MAX + 0.1), Standing.CRASHED),
        (attempt("", age=CONFIRMED_SECONDS_MAX + 0.1), Standing.CRASHED),
        (attempt(replace(OURS, pid=999)), Standing.CRASHED),
        (attempt(replace(OURS, pid=999), age=0.0), Standing.CRASHED),
        (attempt(replace(OURS, start_ticks=4999)), Standing.CRASHED),
    ],
)
def test_who_holds_a_run(newest: AttemptRow | None, standing: Standing) -> None:
    found = holder(newest, HERE)
    assert found.standing is standing
    assert found.live == (standing is Standing.LIVE)


def test_a_live_attempt_that_is_taken_over_was_disrupted_and_a_dead_one_crashed() -> None:
    assert holder(attempt(), HERE).ended_as is AttemptOutcome.DISRUPTED
    assert holder(attempt(age=31), HERE).ended_as is AttemptOutcome.CRASHED


def test_a_holder_is_described_in_words() -> None:
    assert (
        holder(attempt(age=4.4), HERE).describe() == "attempt 3, process 100 on here, last heard of 4 s ago"
    )
    assert "a process elsewhere" in holder(attempt("?"), HERE).describe()
    assert holder(None, HERE).describe() == "nobody"
