"""One run of a history with what its owner has done, and the database that may fail over."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from agentrun.log.memory import Database
from agentrun.log.store import Levels
from tests.support.sim.plan import Plan
from tests.support.sim.world import Watched


@dataclass
class Case:
    """One run of a history, and what its owner has done."""

    watched: Watched
    plan: Plan
    fatal: set[str] = field(default_factory=set)
    levels: Levels = field(default_factory=Levels)
    budget: dict[str, Any] = field(default_factory=dict)
    process: str = ""
    """The newest one that was started for it."""

    @property
    def run_id(self) -> UUID:
        return self.watched.run_id

    def told_budget(self, budget: dict[str, Any]) -> None:
        """From now on a process may know of these limits."""
        self.budget = budget
        watched = self.watched
        if "turns" in budget:
            watched.calls_max = max(watched.calls_max, budget["turns"] + budget["retries"])
        watched.tokens_max = max(watched.tokens_max, budget.get("tokens", 0))


class FailoverDatabase(Database):
    """May be replaced by a standby that lacks the last statements."""

    KEPT = 12

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__(now)
        self._snapshots: deque[dict[UUID, Any]] = deque(maxlen=self.KEPT)

    def snapshot(self) -> None:
        self._snapshots.append(copy.deepcopy(self.runs))

    def fail_over(self, *, lost: int) -> None:
        self.server = str(int(self.server) + 1)
        if len(self._snapshots) > lost:
            for _ in range(lost):
                self._snapshots.pop()
            self.runs = copy.deepcopy(self._snapshots[-1])
