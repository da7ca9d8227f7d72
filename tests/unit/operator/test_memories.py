"""What is told, remembered, and woken for."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from agentrun.log.memory import Database, MemoryStore
from agentrun.log.store import Levels, RunRow, Standing
from agentrun_operator.facts import Key
from agentrun_operator.hints import Hints, differs
from agentrun_operator.memories import Memories
from agentrun_operator.queue import WorkQueue
from agentrun_operator.refusals import Refusal
from agentrun_operator.tell import Bucket, lost, without
from tests.unit.operator.builders import SETTINGS


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


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
    refused = memories.of(key).snapshot(identity="me").refused
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


def test_a_standing_tells_progress_apart_from_news() -> None:
    base = Standing(run_id=uuid4(), owner="o", attempt=1, ended=False, generation=1, suspend=False)
    assert differs(None, base)
    assert not differs(base, Standing(**{**_fields(base), "summary_head": 9}))
    assert differs(base, Standing(**{**_fields(base), "claimed": True}))


def _fields(standing: Standing) -> dict[str, Any]:
    return {name: getattr(standing, name) for name in standing.__dataclass_fields__}
