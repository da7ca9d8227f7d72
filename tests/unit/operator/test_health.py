"""When the process is to be restarted, and when a watch counts as dead."""

from __future__ import annotations

from typing import Any

from agentrun_operator.facts import Key
from agentrun_operator.health import Health
from agentrun_operator.queue import WorkQueue
from agentrun_operator.watching import WatchProbe


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


# --- watches


def test_a_watch_that_misses_a_version_twice_is_found_out() -> None:
    clock = Clock()
    probe = WatchProbe(clock)
    probe.told("pods", "a", "1")
    assert probe.listed("pods", {"a": "2"}) == 0  # it may be on its way
    assert probe.listed("pods", {"a": "2"}) == 1
    clock.now += 60
    assert probe.silent_seconds() == {"pods": 60.0}
    probe.told("pods", "a", "2")
    assert probe.listed("pods", {"a": "2"}) == 0
    assert probe.silent_seconds() == {}


def test_objects_that_went_are_forgotten() -> None:
    probe = WatchProbe(Clock())
    probe.told("pods", "a", "1")
    probe.told("pods", "b", "1")
    probe.told("pods", "b", "2", gone=True)
    assert [probe.listed("pods", {}) for _ in range(2)] == [0, 0]


def test_a_watch_that_is_ahead_of_a_sweep_misses_nothing() -> None:
    clock = Clock()
    probe = WatchProbe(clock)
    probe.told("pods", "changes", "1")
    for version in range(1, 8):
        assert probe.listed("pods", {"changes": str(version)}) == 0
        # It changes between the next sweep's reading of it and that sweep's end.
        probe.told("pods", "changes", str(version + 1))
        assert probe.listed("pods", {"changes": str(version)}) == 0
    probe.told("pods", "late", "9")  # it came while the sweep was under way
    assert probe.listed("pods", {"changes": "8"}) == 0
    for _ in range(3):
        assert probe.listed("pods", {"changes": "8", "late": "9"}) == 0
    assert probe.silent_seconds() == {}


def test_a_watch_that_is_behind_a_sweep_is_not_dead() -> None:
    probe = WatchProbe(Clock())
    probe.listed("pods", {"a": "5"})
    for told in ("1", "2", "3"):
        probe.told("pods", "a", told)
        assert probe.listed("pods", {"a": "5"}) == 0
    assert probe.listed("pods", {"a": "5"}) == 1  # and then it told nothing more


# --- health


def health(clock: Clock, **changes: Any) -> Health:
    queue: WorkQueue[Key] = WorkQueue(clock)
    made = Health(
        clock=clock,
        queue=queue,
        probe=WatchProbe(clock),
        sweep_seconds=60.0,
        silent_seconds_max=180.0,
        started_at=clock.now,
        task_names=lambda: ["watcher for agentruns.v1alpha1.agentrun.dev@None", "watcher for pods.v1@None"],
    )
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def test_a_healthy_process_says_nothing() -> None:
    clock = Clock()
    made = health(clock, watching=True, store_is_up=True, swept_at=clock.now)
    assert (made.dead(), made.unready()) == ([], [])


def test_liveness_fails_for_what_a_restart_would_help() -> None:
    clock = Clock()
    made = health(clock, watching=True, watching_since=clock.now, swept_at=clock.now)
    made.task_names = lambda: ["watcher for pods.v1@None"]
    made.queue.add(Key(namespace="demo", name="a"))
    made.queue.take()
    clock.now += 400
    said = " / ".join(made.dead())
    assert "no watcher of agentruns" in said and "one run for 400 s" in said and "no sweep" in said
    assert "pods" not in said


def test_a_silent_watch_is_a_dead_one() -> None:
    clock = Clock()
    made = health(clock, watching=True, watching_since=clock.now, swept_at=clock.now)
    for _ in range(2):
        made.probe.listed("agentruns", {"a": "5"})
    assert made.dead() == []
    clock.now += 200
    made.swept_at = clock.now
    assert "the watch of agentruns has told nothing" in made.dead()[0]


def test_a_store_that_is_away_makes_unready_and_not_dead() -> None:
    clock = Clock()
    made = health(clock, watching=True, swept_at=clock.now)
    assert made.dead() == [] and made.unready() == ["the store cannot be read"]


def test_a_sweep_that_is_refused_makes_unready_and_not_dead() -> None:
    clock = Clock()
    made = health(clock, watching=True, store_is_up=True, swept_at=clock.now, sweep_problem="pods: HTTP 403")
    assert made.dead() == []
    assert made.unready() == ["the last sweep could not be finished: pods: HTTP 403"]
