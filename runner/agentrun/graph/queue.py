"""Nodes that may run: at once, when a wait is over, or when a person has answered.

Who calls: the executor, which owns one. What holds: a node is in one of the three
places; what waits for an answer holds nothing and nobody up, but the run's end.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from agentrun.graph.outcome import Outcome, parked
from agentrun.graph.types import Parked, scope_of
from agentrun.log.asks import APPROVAL_REQUIRED, told
from agentrun.proto import log_pb2 as pb


class Queue:
    """See the module's docstring. `changed` is called when a wait is over. True: a node may run
    now or later without anybody's answer."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self.ready: deque[pb.Spawn] = deque()
        self.parked: dict[str, tuple[pb.Spawn, Parked]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._changed = changed

    def __bool__(self) -> bool:
        return bool(self.ready or self._timers)

    def later(self, spawn: pb.Spawn, wait_seconds: float) -> None:
        """The node may run after the wait."""
        self._timers[spawn.id] = asyncio.get_running_loop().call_later(wait_seconds, self._due, spawn)

    def _due(self, spawn: pb.Spawn) -> None:
        del self._timers[spawn.id]
        self.ready.append(spawn)
        self._changed()

    def clear_timers(self) -> None:
        """Nobody waits any more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def park(self, spawn: pb.Spawn, waits: Parked) -> None:
        """The node runs again when there is an answer to its question."""
        self.parked[spawn.id] = (spawn, waits)

    def answered(self, answers: Iterable[str]) -> None:
        """These questions have answers."""
        ids = set(answers)
        for id_ in [id_ for id_, (_, waits) in self.parked.items() if waits.ask.id in ids]:
            self.ready.append(self.parked.pop(id_)[0])
            self._changed()

    def parking(self) -> Outcome:
        """How a run stands of which nothing else can run."""
        calls = [waits.ask for _, waits in self.parked.values()]
        reasons = {call.reason for call in calls}
        reason = APPROVAL_REQUIRED if APPROVAL_REQUIRED in reasons else min(reasons)
        return parked(reason, told(calls))

    def drop(self, scope: str) -> None:
        """Nothing below a node runs any more. `scope`: its id with a "/"."""
        for id_ in [id_ for id_ in self._timers if id_.startswith(scope)]:
            self._timers.pop(id_).cancel()
        for id_ in [id_ for id_ in self.parked if id_.startswith(scope)]:
            del self.parked[id_]
        if any(spawn.id.startswith(scope) for spawn in self.ready):
            self.ready = deque(spawn for spawn in self.ready if not spawn.id.startswith(scope))

    def drop_failed(self, scope: str) -> None:
        """A node of the graph has failed for good: its siblings' questions lead nowhere."""
        for id_ in [id_ for id_ in self.parked if scope_of(id_) == scope]:
            del self.parked[id_]
