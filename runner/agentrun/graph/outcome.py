"""How a run ended for this process, and how long a failed try waits: what an executor is told and tells.

Who uses it: the executor and whoever starts one.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from agentrun.graph.types import NodeError
from agentrun.log.final import bounded
from agentrun.proto import log_pb2 as pb


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How `run` ended. `outcome` is UNSPECIFIED where the run goes on later (paused)."""

    outcome: pb.Outcome
    reason: str
    message: str = ""

    @property
    def paused(self) -> bool:
        """The run is not over."""
        return self.outcome == pb.OUTCOME_UNSPECIFIED


def parked(reason: str, message: str) -> Outcome:
    """The run waits for something outside of it, and goes on when it is resumed."""
    return Outcome(outcome=pb.OUTCOME_UNSPECIFIED, reason=reason, message=bounded(message))


RETRY_AFTER_SECONDS_MAX = 7 * 86400.0
"""The longest wait that anybody may ask for."""


@dataclass(frozen=True, kw_only=True)
class RetryWaits:
    """Seconds before the next try: doubling from `first` to `last`, with jitter; never under Retry-After."""

    first: float = 1.0
    last: float = 60.0

    def behind(self, try_number: int, error: NodeError) -> float:
        """The wait behind try `try_number`, which failed with `error`."""
        if not error.retryable:
            return 0.0
        if error.at_once:
            return min(max(error.retry_after_seconds or 0.0, 0.0), RETRY_AFTER_SECONDS_MAX)
        return self.seconds(try_number, error.retry_after_seconds)

    def seconds(self, try_number: int, retry_after: float | None) -> float:
        """The wait behind try `try_number`."""
        wait = min(self.last, self.first * 2.0 ** min(try_number - 1, 20)) * random.uniform(0.75, 1.0)
        if retry_after is None or not retry_after > wait:
            return wait
        return min(retry_after, RETRY_AFTER_SECONDS_MAX)


def left_of(last: pb.NodeRecord, now_us: int) -> float:
    """Seconds that are left of the wait behind a failed try; never more than that wait."""
    due_us = last.finished_us + last.error.retry_in_ms * 1000
    return min((due_us - now_us) / 1e6, last.error.retry_in_ms / 1e3)
