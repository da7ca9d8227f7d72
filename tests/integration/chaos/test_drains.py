"""SIGTERM, Ctrl-C and the grace: what is in flight is recorded, or was never begun."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from signal import SIGINT, SIGTERM
from typing import Any

import pytest

from tests.support.chaos import call, lookup, manifest, records, rows, says, sound
from tests.support.commands import Commands, Ended

PAUSED = 75
PROMPT_SECONDS_MAX = 2.5
"""What is prompt on a busy machine, the interpreter's end included."""

LONG_TURNS = 800
USAGE = {"inputTokens": 10, "outputTokens": 1}

BLOCK = {
    "name": "block",
    "python": {"entrypoint": "tests.support.chaos_tools:block"},
    "effect": "read_only",
    "timeoutSeconds": 300,
}


def batch(*seconds: float, **spec: Any) -> dict[str, Any]:
    """A run of one batch of look-ups that take so long, and an answer."""
    calls = [call("lookup", topic=f"topic {index}", seconds=s) for index, s in enumerate(seconds)]
    return manifest([says("All at once.", *calls), says("done")], tools=[lookup()], **spec)


def stopped(
    agentrun: Commands, run_id: str, what: Mapping[str, Any], until: str, number: signal.Signals = SIGTERM
) -> Ended:
    """The run is started, and gets the signal when it has said `until`."""
    running = agentrun.start("run", agentrun.write(what), "--run-id", run_id)
    running.until(until)
    running.signal(number)
    return running.wait()


def goes_on(agentrun: Commands, run_id: str) -> None:
    """The resume ends well, with a sound log."""
    ended = agentrun("resume", run_id)
    assert (ended.code, ended.out) == (0, "done\n"), ended.err
    assert sound(agentrun.dsn, run_id).final is not None


@pytest.mark.parametrize("number", [SIGTERM, SIGINT])
def test_a_batch_in_flight_is_recorded_and_the_resume_launches_what_is_missing(
    agentrun: Commands, run_id: str, number: signal.Signals
) -> None:
    ended = stopped(
        agentrun, run_id, batch(0.2, 0.6, 1.2, 0.1, 0.1, concurrency=3), "launched node=call-1-2", number
    )
    assert ended.code == PAUSED and ended.seconds < 1.2 + PROMPT_SECONDS_MAX, ended
    assert run_id in ended.err.splitlines()[-1], "the last line says how to go on"
    assert dict(agentrun.calls()) == dict(agentrun.calls("end")), "nothing was cut off"
    done = set(agentrun.calls())
    assert done >= {"call-1-0", "call-1-1", "call-1-2"} and len(done) < 5
    assert done <= set(records(agentrun.dsn, run_id))
    assert agentrun.show(run_id)["phase"] == "Paused"
    goes_on(agentrun, run_id)
    assert dict(agentrun.calls()) == {f"call-1-{index}": 1 for index in range(5)}
    history = sound(agentrun.dsn, run_id)
    assert history.totals.retries == 0, "a pause is no failure"


@pytest.mark.parametrize("milliseconds", [0, 50, 150, 250, 400, 600])
def test_an_early_signal_ends_it_at_once(agentrun: Commands, run_id: str, milliseconds: int) -> None:
    running = agentrun.start("run", agentrun.write(batch(1.0)), "--run-id", run_id)
    assert running.lives_for(milliseconds / 1000)
    running.signal(SIGTERM)
    ended = running.wait()
    assert ended.seconds < PROMPT_SECONDS_MAX
    # Before the interpreter has come to our code, the signal does what it does to any process.
    assert ended.code == PAUSED or (ended.code == -SIGTERM and not rows(agentrun.dsn, run_id)), ended
    assert "Traceback" not in ended.err
    ended = agentrun("run", agentrun.folder / "run.yaml", "--run-id", run_id)
    assert (ended.code, ended.out) == (0, "done\n"), ended.err
    assert sound(agentrun.dsn, run_id).totals.retries == 0, "no failure was counted"


def test_a_wait_for_the_next_try_does_not_hold_up_the_end(agentrun: Commands, run_id: str) -> None:
    busy = {"error": {"status": 429, "message": "later", "times": 1, "retryAfterSeconds": 60}}
    ended = stopped(agentrun, run_id, manifest([busy, says("done")]), "failed node=turn-1#1")
    assert ended.code == PAUSED and ended.seconds < PROMPT_SECONDS_MAX
    history = sound(agentrun.dsn, run_id)
    assert history.tries == {"turn-1": 1} and history.totals.retries == 0
    # The wait goes on where it was, also in another process.
    running = agentrun.start("resume", run_id)
    running.until("claimed ")
    assert running.lives_for(1.5) and "launched" not in running.err
    running.signal(SIGTERM)
    assert running.wait().code == PAUSED


def test_a_thread_that_blocks_is_left_behind_unrecorded(agentrun: Commands, run_id: str) -> None:
    what = manifest(
        [says("Wait.", call("block", seconds=120)), says("done")],
        tools=[BLOCK],
        terminationGracePeriodSeconds=2,
    )
    running = agentrun.start("run", agentrun.write(what), "--run-id", run_id)
    running.until(lambda: agentrun.calls()["call-1-0"])
    running.signal(SIGTERM)
    ended = running.wait()
    assert ended.code == PAUSED and ended.seconds < 2 + 1, ended
    assert "call-1-0" not in records(agentrun.dsn, run_id)
    sound(agentrun.dsn, run_id)


def test_the_grace_bounds_a_tool_that_takes_longer(agentrun: Commands, run_id: str) -> None:
    ended = stopped(
        agentrun,
        run_id,
        batch(0.3, 6.0, terminationGracePeriodSeconds=3),
        "launched node=call-1-1",
    )
    assert ended.code == PAUSED and ended.seconds < 3, ended
    assert {"call-1-0"} == {id_ for id_ in records(agentrun.dsn, run_id) if id_.startswith("call-")}
    assert agentrun.show(run_id)["attempts"][0]["outcome"] == "Paused"


def test_a_second_signal_ends_it_at_once(agentrun: Commands, run_id: str) -> None:
    running = agentrun.start("run", agentrun.write(batch(20.0, 0.1)), "--run-id", run_id)
    running.until("finished node=call-1-1")
    running.signal(SIGTERM)
    running.until("stopping ")
    running.signal(SIGTERM)
    ended = running.wait()
    assert ended.code == PAUSED and ended.seconds < PROMPT_SECONDS_MAX
    assert "call-1-1" in records(agentrun.dsn, run_id) and "call-1-0" not in records(agentrun.dsn, run_id)
    sound(agentrun.dsn, run_id)


def test_a_long_log_that_is_read_does_not_hold_up_the_end(agentrun: Commands, run_id: str) -> None:
    turns = [says(f"{number}", finishReason="pause", usage=USAGE) for number in range(LONG_TURNS)]
    what = manifest(
        [*turns, says("done", delay=30)], budget={"turns": LONG_TURNS + 1}, terminationGracePeriodSeconds=1
    )
    running = agentrun.start("run", agentrun.write(what), "--run-id", run_id, "--quiet")
    running.until(lambda: len(rows(agentrun.dsn, run_id)) >= LONG_TURNS + 2)
    running.kill()
    for milliseconds in (350, 450, 550, 650):
        running = agentrun.start("resume", run_id, "--quiet")
        assert running.lives_for(milliseconds / 1000)
        running.signal(SIGTERM)
        ended = running.wait()
        assert ended.code in (PAUSED, -SIGTERM) and ended.seconds < PROMPT_SECONDS_MAX
        sound(agentrun.dsn, run_id)
