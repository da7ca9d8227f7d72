"""Lists that come a page at a time.

Who calls: the list of runs. What holds: the token names the last run that was looked at, by its
moment and id, so runs that come or go meanwhile are neither told twice nor left out.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from agentrun.log.store import LogStore, RunInfo
from agentrun_api.problems import FieldProblem, Problem
from agentrun_api.shapes import RunEntry, RunList

Before = tuple[datetime, UUID]


def write_token(info: RunInfo) -> str:
    """What the next page is asked for with."""
    assert info.run.created_at is not None
    text = json.dumps([info.run.created_at.isoformat(), str(info.run.run_id)])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_token(token: str | None) -> Before | None:
    """The reverse; Problem 422 for what is no token of ours."""
    if not token:
        return None
    try:
        created, run_id = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        at = datetime.fromisoformat(created)
        if at.tzinfo is None:
            raise ValueError("a moment without a zone")
        return at, UUID(run_id)
    except (ValueError, TypeError, AttributeError) as error:
        wrong = FieldProblem(field="query.continue", detail="is not what an earlier answer gave")
        raise Problem(422, "Invalid", "the request is not valid", errors=[wrong]) from error


@dataclass(frozen=True, kw_only=True)
class Page:
    """One page. `entry` makes a run's entry, `wanted` says whether it is in the list."""

    limit: int
    before: Before | None
    owner_prefix: str
    wanted: Callable[[RunEntry], bool]
    entry: Callable[[RunInfo], RunEntry]
    scanned_max: int

    async def read(self, store: LogStore) -> RunList:
        """Looks at runs until the page is full, none is left, or so many were looked at."""
        found: list[RunEntry] = []
        before, scanned = self.before, 0
        while True:
            runs = await store.list_runs(owner_prefix=self.owner_prefix, limit=self.limit, before=before)
            for place, info in enumerate(runs):
                if self.wanted(entry := self.entry(info)):
                    found.append(entry)
                if len(found) == self.limit:
                    more = place + 1 < len(runs) or len(runs) == self.limit
                    return RunList(runs=found, continue_=write_token(info) if more else None)
            scanned += len(runs)
            if len(runs) < self.limit:
                return RunList(runs=found, continue_=None)
            if scanned >= self.scanned_max:
                return RunList(runs=found, continue_=write_token(runs[-1]))
            last = runs[-1].run
            assert last.created_at is not None
            before = (last.created_at, last.run_id)
