"""How many runs are down at once for a new image."""

from __future__ import annotations

from agentrun.log.summary import Phase
from agentrun_operator.actions import Step
from agentrun_operator.facts import Key
from agentrun_operator.rollout import SETTLE_SECONDS, Rollout
from agentrun_operator.settings import RolloutPolicy, Settings
from tests.unit.operator.builders import SETTINGS, attempt, found, observed, pod


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_rollout_takes_down_so_many_at_once_and_no_more() -> None:
    clock = Clock()
    settings = Settings(
        database_url="", pods=SETTINGS.pods, rollout=RolloutPolicy.IMMEDIATE, rollout_unavailable_max=2
    )
    rollout = Rollout(settings, clock)
    keys = [Key(namespace="demo", name=name) for name in "abc"]
    o = observed(attempts=(attempt(),), pod=pod(), outdated=True)
    assert not rollout.room(keys[0])  # a former process may have some down
    clock.now += SETTLE_SECONDS
    for key in keys[:2]:
        assert rollout.room(key)
        rollout.note(key, o, Step(phase=Phase.PAUSING, rolling=True))
    assert rollout.room(keys[0]) and not rollout.room(keys[2])
    rollout.note(keys[0], o, Step(phase=Phase.PENDING))
    assert not rollout.room(keys[2])
    rollout.note(keys[0], observed(attempts=(attempt(),), pod=pod()), Step(phase=Phase.RUNNING))
    assert rollout.room(keys[2])
    rollout.forget(keys[1])
    assert rollout.down == set()


def test_what_another_process_had_taken_down_is_seen_in_status() -> None:
    settings = Settings(database_url="", pods=SETTINGS.pods, rollout=RolloutPolicy.IMMEDIATE)
    rollout = Rollout(settings, Clock())
    condition = {"type": "Disrupted", "status": "True", "reason": "Rollout"}
    o = observed(found(status={"phase": "Pausing", "conditions": [condition]}))
    key = Key(namespace="demo", name="a")
    rollout.note(key, o, Step(phase=Phase.PENDING))
    assert rollout.down == {key}


def test_on_next_start_takes_nothing_down() -> None:
    clock = Clock()
    rollout = Rollout(SETTINGS, clock)
    clock.now += 1e6
    assert not rollout.room(Key(namespace="demo", name="a"))
