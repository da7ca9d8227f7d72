"""Which events wake a key: those that tell of something that was not looked at."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from agentrun_operator.facts import Key
from agentrun_operator.handlers import Handlers
from agentrun_operator.memories import Memories
from agentrun_operator.queue import WorkQueue
from agentrun_operator.watching import WatchProbe

KEY = Key(namespace="demo", name="hello")
UID = str(uuid4())


class Watched:
    """Handlers with what they wake."""

    def __init__(self) -> None:
        self.queue: WorkQueue[Key] = WorkQueue(lambda: 0.0)
        self.memories = Memories(lambda: 0.0)
        self.handlers = Handlers(self.queue, self.memories, WatchProbe(lambda: 0.0))

    def seen(self, version: str, pod_version: str) -> None:
        """The key was looked at when its object and its pod were of these versions."""
        self.memories.of(KEY).seen = (version, pod_version, None)

    def run(self, version: str, kind: str | None = "MODIFIED") -> bool:
        """Whether an event of the object wakes its key."""
        body = {"metadata": {"namespace": "demo", "name": "hello", "uid": UID, "resourceVersion": version}}
        return self._woken(self.handlers.on_run, kind, body)

    def pod(self, version: str, kind: str | None = "MODIFIED") -> bool:
        """Whether an event of its pod does."""
        owner = {"apiVersion": "agentrun.dev/v1alpha1", "kind": "AgentRun", "name": "hello", "uid": UID}
        metadata = {"namespace": "demo", "name": "p", "uid": "p", "resourceVersion": version}
        return self._woken(self.handlers.on_pod, kind, {"metadata": metadata | {"ownerReferences": [owner]}})

    def _woken(self, handler: Any, kind: str | None, body: dict[str, Any]) -> bool:
        asyncio.run(handler(event={"type": kind, "object": body}))
        woken = self.queue.take() == KEY
        if woken:
            self.queue.done(KEY)
        return woken


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_what_was_never_looked_at_wakes(watched: Watched) -> None:
    assert watched.run("1", None) and watched.pod("1", None)
    assert watched.run("", None) and watched.pod("", None)


def test_a_watch_that_begins_anew_wakes_for_what_changed_alone(watched: Watched) -> None:
    watched.seen("7", "9")
    assert not watched.run("7", None) and not watched.pod("9", None)
    assert watched.run("8", None) and watched.pod("10", None)


def test_an_operators_own_write_does_not_wake_it(watched: Watched) -> None:
    watched.seen("7", "9")
    watched.memories.of(KEY).told_version = "8"
    assert not watched.run("8")


def test_what_goes_wakes_whatever_was_seen(watched: Watched) -> None:
    watched.seen("7", "9")
    assert watched.run("7", "DELETED") and watched.pod("9", "DELETED")


def test_a_key_without_a_pod_is_woken_by_one_without_a_version(watched: Watched) -> None:
    watched.seen("7", "")
    assert watched.pod("")
