"""Killed before and after each append: the same graph, the same answer, every time."""

from __future__ import annotations

from typing import Any

from tests.support.chaos import call, lookup, manifest, rows, says, scripted, shape, sound
from tests.support.chaos_proxy import NthProxy
from tests.support.commands import Commands
from tests.support.stub_tools import wait_until

APPEND = "INSERT INTO run_log"
STEPS = 15

SUB_AGENT = {
    "name": "helper",
    "description": "Helps.",
    "model": scripted([says("Looking.", call("lookup", topic="moon", seconds=0)), says("the moon")]),
    "tools": [lookup()],
}
TURNS = [
    says(
        "Both.",
        call("lookup", topic="honey", seconds=0),
        call("lookup", topic="octopus", seconds=0.03),
    ),
    says("Help.", call("helper", task="find out")),
    says("done"),
]


def fifteen_steps(**spec: Any) -> dict[str, Any]:
    """Two calls at once, a sub-agent with a call of its own, an answer."""
    return manifest(
        TURNS,
        tools=[lookup(), {"agent": "helper"}],
        agents=[SUB_AGENT],
        budget={"retries": 100},
        **spec,
    )


def test_killed_around_every_append(agentrun: Commands, run_id: str) -> None:
    """One run. Each process gets as far as one append: it dies before that arrives, or after it
    was executed and before it hears of it. Of every third, it is the append of its own attempt."""
    whole = f"{run_id[:-4]}0000"
    file = agentrun.write(fifteen_steps())
    ended = agentrun("run", file, "--run-id", whole)
    assert (ended.code, ended.out) == (0, "done\n"), ended.err
    expected = shape(sound(agentrun.dsn, whole))
    assert len(expected) >= STEPS
    agentrun.counter.unlink()

    kills = 0
    history = sound(agentrun.dsn, run_id)
    while history.final is None:
        before, own = kills % 2 == 0, kills % 6 in (4, 5)
        with NthProxy(agentrun.dsn) as proxy:
            proxy.hold_nth(1 if own else 2, APPEND)
            running = agentrun.start("run", file, "--run-id", run_id, dsn=proxy.dsn)
            running.until(proxy.fault_was_taken)
            running.kill()
            head = len(rows(agentrun.dsn, run_id))
            if not before:
                proxy.release()
                _until_longer(agentrun, run_id, head)
        kills += 1
        assert kills < 8 * STEPS, "it gets no further"
        history = sound(agentrun.dsn, run_id)
    assert kills >= 2 * STEPS
    assert shape(history) == expected
    # The end was executed and nobody heard of it: it is only told.
    told = agentrun("run", file, "--run-id", run_id)
    assert (told.code, told.out) == (0, "done\n"), told.err
    assert len(rows(agentrun.dsn, run_id)) == history.head
    shows = agentrun.show(run_id)
    assert (shows["phase"], shows["answer"]) == ("Succeeded", "done")


def _until_longer(agentrun: Commands, run_id: str, head: int) -> None:
    assert wait_until(lambda: len(rows(agentrun.dsn, run_id)) > head, 10.0)
