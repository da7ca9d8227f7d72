"""The small parts: settings, owners, objects, watches, rollouts, pruned fields, health."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import pytest

from agentrun.log.memory import Database, MemoryStore
from agentrun.log.store import Levels, RunRow, Standing
from agentrun.log.summary import Phase
from agentrun_operator.actions import Step
from agentrun_operator.cli import main
from agentrun_operator.facts import Key, Owner, parse_owner
from agentrun_operator.health import Health
from agentrun_operator.hints import Hints
from agentrun_operator.memories import Memories
from agentrun_operator.objects import KEPT_MAX, Objects
from agentrun_operator.processes import Process, parse_process
from agentrun_operator.queue import WorkQueue
from agentrun_operator.refusals import Refusal
from agentrun_operator.rollout import SETTLE_SECONDS, Rollout
from agentrun_operator.settings import RolloutPolicy, Settings, SettingsError, read
from agentrun_operator.tell import Bucket, lost, without
from agentrun_operator.watching import WatchProbe
from tests.unit.operator.builders import SETTINGS, UID, attempt, body, found, observed, pod

ENVIRON = {
    "AGENTRUN_DATABASE_URL": "postgresql://user:hunter2@db/agentrun",
    "AGENTRUN_RUNNER_IMAGE": "runner:1",
}


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


# --- settings


def test_two_settings_are_needed_and_the_rest_has_defaults() -> None:
    settings = read(ENVIRON)
    assert (settings.installation, settings.pods.image) == ("agentrun", "runner:1")
    assert (settings.rollout, settings.namespaces) == (RolloutPolicy.ON_NEXT_START, ())
    assert "hunter2" not in repr(settings)


def test_every_setting_can_be_said() -> None:
    more = {
        "AGENTRUN_INSTALLATION": "blue",
        "AGENTRUN_NAMESPACES": "a, b",
        "AGENTRUN_RUNNER_IMAGE_PULL_POLICY": "Always",
        "AGENTRUN_RUNNER_IMAGE_PULL_SECRETS": "reg",
        "AGENTRUN_RUNNER_SECRET_NAME": "store",
        "AGENTRUN_RUNNER_SECRET_KEY": "dsn",
        "AGENTRUN_RUNNER_RESOURCES": '{"requests": {"cpu": 1}}',
        "AGENTRUN_RUNNER_ENV": '{"AGENTRUN_LOG_FORMAT": "json"}',
        "AGENTRUN_ROLLOUT_POLICY": "Immediate",
        "AGENTRUN_ROLLOUT_MAX_UNAVAILABLE": "3",
        "AGENTRUN_DATABASE_PREPARED_STATEMENTS": "false",
        "AGENTRUN_LOST_NODE_SECONDS": "2.5",
        "AGENTRUN_LOG_FORMAT": "json",
    }
    settings = read(ENVIRON | more)
    assert settings.owner_prefix == "blue/" and settings.namespaces == ("a", "b")
    assert settings.pods.image_pull_policy == "Always" and settings.pods.image_pull_secrets == ("reg",)
    assert (settings.pods.store_secret_name, settings.pods.store_secret_key) == ("store", "dsn")
    assert settings.pods.resources == {"requests": {"cpu": "1"}}
    assert (settings.rollout, settings.rollout_unavailable_max) == (RolloutPolicy.IMMEDIATE, 3)
    assert (settings.prepared_statements, settings.log_json) == (False, True)
    assert settings.times.lost_node == 2.5


def test_all_bad_settings_are_named_at_once_and_no_value_that_is_secret(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bad = {
        "AGENTRUN_DATABASE_URL": "mysql://user:hunter2@db/x",
        "AGENTRUN_INSTALLATION": "a/b",
        "AGENTRUN_WORKERS": "many",
        "AGENTRUN_RUNNER_ENV": "[]",
        "AGENTRUN_ROLLOUT_POLICY": "Never",
    }
    with pytest.raises(SettingsError) as error:
        read(bad)
    named = [problem.split()[0] for problem in error.value.problems]
    assert sorted(named) == sorted([*bad, "AGENTRUN_RUNNER_IMAGE"])
    assert main([], bad) == 2
    said = capsys.readouterr().err
    assert "AGENTRUN_RUNNER_IMAGE is not set" in said and "hunter2" not in said


# --- names


def test_an_owner_is_read_as_it_was_written() -> None:
    owner = Owner(installation="agentrun", namespace="demo", name="a.b-c", uid=UID)
    assert parse_owner(str(owner)) == owner
    for text in ("local/hello", "", "a/b/c/", "a/b/c/d/e"):
        assert parse_owner(text) is None


def test_a_process_is_read_as_it_was_written_and_anything_else_is_a_pods() -> None:
    for process in (Process(operator="o", pod="p", generation=7), Process(operator="o", ends=True)):
        assert parse_process(process.to_json()) == process
    assert parse_process('{"host": "h", "pid": 3}') == Process()
    assert parse_process("no JSON") == Process()


# --- objects


def test_an_objects_run_is_its_uid_unless_it_names_another() -> None:
    assert found().run_id == UUID(UID) and not found().given_id
    other = "11111111-2222-4333-8444-555555555555"
    assert found(runID=other).run_id == UUID(other) and found(runID=other).given_id


def test_objects_are_understood_once_a_generation_and_not_kept_for_ever() -> None:
    objects = Objects()
    first = objects.parse(body()).run
    assert objects.parse(body(status={"phase": "Running"})).run is first
    for _ in range(KEPT_MAX):
        objects.parse(body(metadata={"uid": str(uuid4())}))
    assert objects.parse(body()).run is not first


@pytest.mark.parametrize("spec", [None, {}, [], {"agent": 3}, {"prompt": "x" * 70000}])
def test_any_object_is_a_fact_and_no_exception(spec: Any) -> None:
    odd = body() | {"spec": spec}
    parsed = Objects().parse(odd)
    assert parsed.run is None and parsed.problem_reason == "InvalidSpec" and parsed.problem


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


# --- rollouts


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


# --- telling


def test_fields_that_the_server_dropped_are_found_and_left_out() -> None:
    sent = {"phase": "Running", "budget": {"tokens": {"used": 1}, "cost": 3}, "message": None}
    gone = lost(sent, {"phase": "Running", "budget": {"tokens": {"used": 1}}})
    assert gone == {("budget", "cost")}
    assert without(sent, gone) == {"phase": "Running", "budget": {"tokens": {"used": 1}}, "message": None}


def test_a_bucket_lets_so_many_a_second_through() -> None:
    clock = Clock()
    bucket = Bucket(clock, 10.0)
    assert sum(bucket.wait() == 0 for _ in range(20)) == 10
    assert bucket.wait() == pytest.approx(0.1)
    clock.now += 0.5
    assert sum(bucket.wait() == 0 for _ in range(20)) == 5


# --- memories


def test_what_is_remembered_goes_with_its_object() -> None:
    clock = Clock()
    memories, key = Memories(clock), Key(namespace="demo", name="a")
    first, second = uuid4(), uuid4()
    memories.name(first, key)
    memories.of(key).refuse(1, Refusal(reason="X", retry=5.0))
    clock.now += 2
    refused = memories.of(key).snapshot(identity="me", rollout_room=False).refused
    assert refused is not None and refused.retry_in == 3.0
    memories.name(second, key)  # re-created while nobody looked
    assert memories.of(key).refused is None and set(memories.of(key).orphans) == {first}
    assert memories.key_of(first) is None and memories.key_of(second) == key
    memories.gone(key)
    assert set(memories.of(key).orphans) == {first, second}
    memories.forget(key)
    assert len(memories) == 0


# --- hints


def test_hints_wake_at_once_for_news_and_later_for_progress() -> None:
    async def scenario() -> None:
        clock = Clock()
        store = MemoryStore(Database(clock))
        queue: WorkQueue[Key] = WorkQueue(clock)
        memories = Memories(clock)
        hints = Hints(store, queue, memories, SETTINGS)
        task = asyncio.create_task(hints.loop())
        run_id, key = uuid4(), Key(namespace="demo", name="a")
        owner = f"agentrun/demo/a/{run_id}"
        row = RunRow(run_id=run_id, owner=owner, name="a", definition=b"", digest="")
        await store.create_run(row)
        stranger = RunRow(
            run_id=uuid4(), owner="local/x", name="x", definition=b"", digest="", levels=Levels()
        )
        await store.create_run(stranger)
        hints.hint(run_id)
        hints.hint(stranger.run_id)
        hints.hint(uuid4())
        await asyncio.sleep(0.5)
        assert (queue.take(), queue.take(), len(queue)) == (key, None, 0)
        queue.done(key)
        (standing,) = await store.standings([run_id])
        memories.of(key).seen = ("7", "", standing)
        hints.hint(run_id)
        await asyncio.sleep(0.5)
        assert queue.take() is None and len(queue) == 1
        hints.hint(None)
        assert hints.lost.is_set()
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(scenario())


# --- health


def health(clock: Clock, **changes: Any) -> Health:
    queue: WorkQueue[Key] = WorkQueue(clock)
    made = Health(
        clock=clock,
        queue=queue,
        probe=WatchProbe(clock),
        sweep_seconds=60.0,
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


def test_a_standing_tells_progress_apart_from_news() -> None:
    from agentrun_operator.hints import differs

    base = Standing(run_id=uuid4(), owner="o", attempt=1, ended=False, generation=1, suspend=False)
    assert differs(None, base)
    assert not differs(base, Standing(**{**_fields(base), "summary_head": 9}))
    assert differs(base, Standing(**{**_fields(base), "claimed": True}))


def _fields(standing: Standing) -> dict[str, Any]:
    return {name: getattr(standing, name) for name in standing.__dataclass_fields__}
