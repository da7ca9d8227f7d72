"""The queue of keys, on a clock of its own."""

from __future__ import annotations

import asyncio

import pytest

from agentrun_operator.queue import FAILURE_SECONDS_MAX, WorkQueue


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(clock: Clock) -> WorkQueue[str]:
    return WorkQueue(clock)


def test_a_key_is_looked_at_once_however_often_it_was_added(queue: WorkQueue[str]) -> None:
    for _ in range(1000):
        queue.add("a")
    assert (queue.take(), queue.take(), len(queue)) == ("a", None, 0)


def test_keys_come_in_the_order_in_which_they_are_due(queue: WorkQueue[str], clock: Clock) -> None:
    queue.add("late", 2.0)
    queue.add("soon", 1.0)
    queue.add("now")
    assert (queue.take(), queue.take()) == ("now", None)
    clock.now += 2.0
    assert (queue.take(), queue.take(), queue.take()) == ("soon", "late", None)


def test_a_key_that_somebody_looks_at_waits_and_is_looked_at_once_more(queue: WorkQueue[str]) -> None:
    queue.add("a")
    assert queue.take() == "a"
    queue.add("a")
    queue.add("a")
    assert queue.take() is None
    queue.add("b")
    assert queue.take() == "b"
    queue.done("a")
    assert (queue.take(), queue.take()) == ("a", None)


def test_an_earlier_time_wins_over_a_later_one(queue: WorkQueue[str], clock: Clock) -> None:
    queue.add("a", 60.0)
    queue.add("a", 1.0)
    queue.add("a", 30.0)
    clock.now += 1.0
    assert queue.take() == "a"
    queue.done("a")
    clock.now += 100.0
    assert queue.take() is None


def test_a_key_comes_back_when_it_was_asked_to(queue: WorkQueue[str], clock: Clock) -> None:
    queue.add("a")
    assert queue.take() == "a"
    queue.done("a", requeue=5.0)
    assert (queue.take(), queue.due) == (None, 0)
    clock.now += 5.0
    assert queue.due == 1 and queue.take() == "a"


def test_failures_wait_longer_each_time_up_to_a_bound_and_are_forgotten(
    queue: WorkQueue[str], clock: Clock
) -> None:
    waits = []
    for _ in range(12):
        queue.add("a")
        clock.now += 1000.0
        assert queue.take() == "a"
        waits.append(queue.failed("a"))
    assert waits[:3] == pytest.approx([0.2, 0.4, 0.8])
    assert waits[-1] == FAILURE_SECONDS_MAX
    clock.now += 1000.0
    assert queue.take() == "a"
    queue.done("a")
    queue.add("a")
    assert queue.take() == "a"
    assert queue.failed("a") == pytest.approx(0.2)


def test_the_slowest_look_is_known(queue: WorkQueue[str], clock: Clock) -> None:
    queue.add("a")
    queue.take()
    clock.now += 7.0
    assert (queue.busy, queue.busy_longest) == (1, 7.0)
    queue.done("a")
    assert (queue.busy, queue.busy_longest) == (0, 0.0)


def test_a_closed_queue_gives_nothing_any_more(queue: WorkQueue[str]) -> None:
    queue.add("a")
    queue.close()
    assert queue.take() is None


def test_many_workers_never_share_a_key() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        queue: WorkQueue[int] = WorkQueue(loop.time)
        busy: set[int] = set()
        looked = dict.fromkeys(range(50), 0)

        async def work() -> None:
            while True:
                key = await queue.get()
                assert key not in busy
                busy.add(key)
                await asyncio.sleep(0)
                looked[key] += 1
                if looked[key] < 5:
                    queue.add(key)
                busy.discard(key)
                queue.done(key)

        for key in looked:
            queue.add(key)
        workers = [asyncio.create_task(work()) for _ in range(8)]
        while min(looked.values()) < 5:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        queue.close()
        await queue.drained()
        for worker in workers:
            worker.cancel()
        await asyncio.wait(workers)
        assert set(looked.values()) == {5}

    asyncio.run(asyncio.wait_for(scenario(), 10))


def test_who_waits_is_woken_by_an_earlier_key() -> None:
    async def scenario() -> None:
        queue: WorkQueue[str] = WorkQueue(asyncio.get_running_loop().time)
        queue.add("late", 30.0)
        waiting = asyncio.create_task(queue.get())
        await asyncio.sleep(0)
        queue.add("soon", 0.01)
        assert await asyncio.wait_for(waiting, 5) == "soon"

    asyncio.run(scenario())


def test_a_key_is_in_the_queue_until_it_was_looked_at(queue: WorkQueue[str]) -> None:
    assert "a" not in queue
    queue.add("a", 5.0)
    queue.add("b")
    assert "a" in queue and "b" in queue
    assert queue.take() == "b" and "b" in queue
    queue.done("b")
    assert "b" not in queue
