"""Which nodes may run: parents that are awaited, and graphs within graphs.

Who calls: the executor, on every record that is acknowledged. A scope is the ids
of the graphs around a node ("" for the run's own). What holds: a node is handed
to `ready` once, when all of its parents are done, and only in a scope that is open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from agentrun.graph.types import NodeError, scope_of
from agentrun.log.replay import History
from agentrun.proto import log_pb2 as pb


class Scopes:
    """See the module's docstring. `waiting`: nodes in flight that only wait for a graph of their own."""

    def __init__(self, history: History, ready: Callable[[pb.Spawn], None]) -> None:
        self._history = history
        self._ready = ready
        self._unfinished: dict[str, int] = {}
        self._last: dict[str, pb.NodeRecord] = {}
        self._missing: dict[str, set[str]] = {}
        self._dependents: dict[str, list[pb.Spawn]] = {}
        self._results: dict[str, asyncio.Future[pb.NodeRecord]] = {}
        self._failing: dict[str, NodeError] = {}
        self.waiting = 0

    def open(self, scope: str, root: pb.Spawn) -> None:
        """Adds what the log knows of the scope, or its root. What failed for good is kept as such."""
        history = self._history
        history.spawned.setdefault(root.id, root)
        self._unfinished[scope] = 0
        for id_, record in history.done.items():
            if scope_of(id_) == scope:
                self._last[scope] = record
        for spawn in history.pending():
            if scope_of(spawn.id) == scope:
                self._add(scope, spawn)
        for id_, record in history.failed.items():
            if scope_of(id_) == scope:
                self._failing[scope] = NodeError(record.error.reason, record.error.message, retryable=False)

    async def result(self, scope: str) -> pb.NodeRecord:
        """The scope's last record, when all of it is done; NodeError when a node of it failed for good."""
        future = self._results[scope] = asyncio.get_running_loop().create_future()
        self.waiting += 1
        self._check(scope, ())
        try:
            record: pb.NodeRecord = await future
        except asyncio.CancelledError:
            if future.cancelled():  # else it has its result, and is counted as running
                self.waiting -= 1
            raise
        return record

    def is_open(self, scope: str) -> bool:
        """Nodes of it may run."""
        return scope in self._unfinished

    def may_run(self, node_id: str) -> bool:
        """The node's graph is open, and none of its nodes has failed for good."""
        scope = scope_of(node_id)
        return self.is_open(scope) and scope not in self._failing

    def unfinished(self, scope: str) -> int:
        """Nodes of the scope that are spawned and not done."""
        return self._unfinished.get(scope, 0)

    def stuck(self) -> list[str]:
        """Nodes whose parents are not done, in the order of the log."""
        done = self._history.done
        return [s.id for s in self._history.pending() if any(parent not in done for parent in s.parents)]

    def last(self, scope: str) -> pb.NodeRecord | None:
        """The newest record of the scope."""
        return self._last.get(scope)

    def finished(self, record: pb.NodeRecord) -> None:
        """The record is acknowledged: what waited for it may run."""
        scope = scope_of(record.id)
        if scope not in self._unfinished:  # it was closed while the record was on its way
            return
        self._last[scope] = record
        for spawn in record.spawned:
            self._add(scope, spawn)
        for spawn in self._dependents.pop(record.id, ()):
            missing = self._missing[spawn.id]
            missing.discard(record.id)
            if not missing:
                del self._missing[spawn.id]
                self._ready(spawn)
        self._unfinished[scope] -= 1

    def failed(self, node_id: str, error: NodeError) -> None:
        """The node failed for good, and with it its scope: once its siblings in flight are recorded."""
        self._failing.setdefault(scope_of(node_id), error)

    def failing(self, scope: str) -> NodeError | None:
        """Why nothing more of the scope is launched."""
        return self._failing.get(scope)

    def ended(self, node_id: str, running: Iterable[str]) -> None:
        """A try is over, however: its scope may be complete. `running`: ids of the nodes in flight."""
        self._check(scope_of(node_id), running)

    def close(self, scope: str) -> bool:
        """Whoever waited for the scope does not wait any more. False: it was not open."""
        future = self._results.pop(scope, None)
        if future is not None:
            future.cancel()
        self._failing.pop(scope, None)
        for waiting in (self._missing, self._dependents):  # it may be opened anew, by another try
            for id_ in [id_ for id_ in waiting if scope_of(id_) == scope]:
                del waiting[id_]
        return self._unfinished.pop(scope, None) is not None

    def _add(self, scope: str, spawn: pb.Spawn) -> None:
        self._unfinished[scope] += 1
        missing = {parent for parent in spawn.parents if parent not in self._history.done}
        if not missing:
            self._ready(spawn)
            return
        self._missing[spawn.id] = missing
        for parent in missing:
            self._dependents.setdefault(parent, []).append(spawn)

    def _check(self, scope: str, running: Iterable[str]) -> None:
        future = self._results.get(scope)
        if future is None or future.done():
            return
        error = self._failing.get(scope)
        last = self._last.get(scope)
        if error is not None:
            if not any(scope_of(id_) == scope for id_ in running):
                self.waiting -= 1
                future.set_exception(error)
                future.exception()  # it may be that its waiter is cancelled right now
        elif self._unfinished.get(scope) == 0 and last is not None:
            self.waiting -= 1
            future.set_result(last)
