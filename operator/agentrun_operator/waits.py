"""How long things are waited for: pure.

Who calls: `plan_live` and `plan_next`. What holds: a run that makes progress is
never punished for what happened long ago, and no wait grows over its bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from agentrun.log.store import AttemptOutcome, AttemptRow
from agentrun_operator.endings import (
    DRAINED,
    FENCED,
    NEVER_STARTED,
    TOOL_SERVER_UNAVAILABLE,
    split_note,
)
from agentrun_operator.facts import Observation
from agentrun_operator.refusals import QUOTA
from agentrun_operator.settings import Times

LONG_SECONDS = 600.0
"""An attempt that lived so long has made progress: what comes behind it counts from anew."""

DISRUPTIONS_FREE = 3
"""So many disruptions in a row are replaced without a wait."""


def is_disruption(row: AttemptRow) -> bool:
    """The attempt was taken away, whoever wrote that."""
    reason = split_note(row.reason)[0]
    if row.outcome is AttemptOutcome.DISRUPTED:
        return reason != NEVER_STARTED
    return row.outcome is AttemptOutcome.PAUSED and row.claimed and reason in DRAINED


def waits_for_a_server(row: AttemptRow) -> bool:
    """The attempt has parked the run, for a tool server was away."""
    return row.outcome is AttemptOutcome.PAUSED and split_note(row.reason)[0] == TOOL_SERVER_UNAVAILABLE


def disruptions(rows: Iterable[AttemptRow]) -> int:
    """How many of the attempts were taken away."""
    return sum(map(is_disruption, rows))


def before_next(o: Observation, times: Times) -> float:
    """Seconds until the next attempt may start; at most 0: now."""
    last = o.last
    if last is None or last.ended_at is None:
        return 0.0
    return _delay(o.pod_attempts, last, times) - o.seconds_since(last.ended_at)


def _delay(rows: list[AttemptRow], last: AttemptRow, times: Times) -> float:
    if last.outcome is AttemptOutcome.CRASHED:
        return _doubled(times.failure_backoff, _tail(rows, _is_crash), times)
    reason = split_note(last.reason)[0]
    if reason == "StoreUnavailable":
        return times.failure_backoff
    if waits_for_a_server(last):
        return _doubled(times.failure_backoff, _tail(rows, waits_for_a_server), times)
    if not is_disruption(last):
        return 0.0
    count = _tail(rows, is_disruption)
    if reason == FENCED:
        return _doubled(times.fenced_backoff, count, times)
    return _doubled(times.fenced_backoff, count - DISRUPTIONS_FREE, times)


def _doubled(first: float, count: int, times: Times) -> float:
    if count <= 0:
        return 0.0
    return float(min(times.backoff_max, first * 2.0 ** min(count - 1, 30)))


def _is_crash(row: AttemptRow) -> bool:
    return row.outcome is AttemptOutcome.CRASHED


def _tail(rows: list[AttemptRow], of_kind: Callable[[AttemptRow], bool]) -> int:
    """How many attempts at the end went the same way, without one that lived long."""
    count = 0
    for row in reversed(rows):
        if not of_kind(row):
            break
        count += 1
        if row.started_at and row.ended_at and (row.ended_at - row.started_at).total_seconds() > LONG_SECONDS:
            break
    return count


def lost_in(o: Observation, row: AttemptRow, times: Times) -> float | None:
    """Seconds until the pod counts as lost (at most 0: it is); None: nothing says that it will be."""
    pod, node = o.pod, o.node
    if pod is None or pod.runner_ended:
        return None
    found = []
    if pod.delete_by is not None:
        found.append(times.overdue - o.seconds_since(pod.delete_by))
    if node is not None and not node.ready:
        if pod.evicted_at is not None:
            found.append(times.lost_node - o.seconds_since(pod.evicted_at))
        elif node.since is not None:
            found.append(times.node_tolerated + times.lost_node - o.seconds_since(node.since))
        else:
            found.append(times.node_tolerated + times.lost_node - row.confirmed_age_seconds)
    return min(found) if found else None


def start_deadline_in(o: Observation) -> float | None:
    """Seconds until the run must have been claimed; None: it need not, or the time does not count."""
    deadline = o.object.spec.start_deadline_seconds if o.object is not None else None
    row, pod = o.last, o.pod
    if deadline is None or row is None or row.claimed or o.started_at is not None:
        return None
    refused = o.memory.refused
    if refused is not None and refused.attempt == row.attempt and refused.refusal.reason == QUOTA:
        return None
    if pod is not None and pod.waiting is not None and pod.waiting.reason == "SchedulingGated":
        return None
    since = [at for at in (row.started_at, pod.created_at if pod else None) if at is not None]
    if pod is not None and pod.scheduled and pod.scheduled_at is not None:
        since.append(pod.scheduled_at)
    return deadline - o.seconds_since(max(since)) if since else None


def completion_deadline_in(o: Observation) -> float | None:
    """Seconds until the run must have ended; None: it need not."""
    deadline = o.object.spec.completion_deadline_seconds if o.object is not None else None
    if deadline is None or o.started_at is None:
        return None
    return deadline - o.seconds_since(o.started_at)


def soonest(*seconds: float | None) -> float | None:
    """The shortest of the waits that there are, and a little more, so that it is over then."""
    found = [value for value in seconds if value is not None]
    return max(0.0, min(found)) + 0.05 if found else None
