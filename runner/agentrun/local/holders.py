"""Who holds a run: pure.

Who calls: whatever is about to allocate an attempt, and what shows runs. What holds:
a process counts as dead only on evidence: it has not confirmed itself for as long as
a live one never stays silent, or it was of this machine and is not there any more.
Being wrong costs a retry and never a run: the claim fences the loser off.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from agentrun.local.process import Machine, Process, parse_process
from agentrun.log.store import AttemptOutcome, AttemptRow

CONFIRMED_SECONDS_MAX = 30.0
"""A live process looks at the epoch, and so confirms its attempt, at least this often."""


class Standing(StrEnum):
    """What is known of a run's newest attempt."""

    NEVER = "Never"
    """There is none."""
    OVER = "Over"
    """It has an outcome."""
    LIVE = "Live"
    CRASHED = "Crashed"
    """It has no outcome, and its process is dead."""


@dataclass(frozen=True, kw_only=True)
class Holder:
    """The newest attempt, and how it stands."""

    standing: Standing
    attempt: AttemptRow | None = None

    @property
    def process(self) -> Process:
        """Who made the attempt."""
        return parse_process(self.attempt.process if self.attempt else "")

    @property
    def live(self) -> bool:
        """Somebody runs the run."""
        return self.standing is Standing.LIVE

    @property
    def ended_as(self) -> AttemptOutcome:
        """The outcome for this attempt when another takes its place."""
        return AttemptOutcome.DISRUPTED if self.live else AttemptOutcome.CRASHED

    def describe(self) -> str:
        """A few words: who, and since when it has not been heard of."""
        if self.attempt is None:
            return "nobody"
        who = self.process
        name = f"process {who.pid} on {who.host}" if who.pid and who.host else "a process elsewhere"
        age = round(self.attempt.confirmed_age_seconds)
        since = self.attempt.started_at
        started = f" since {since.astimezone():%H:%M:%S}" if since is not None else ""
        return f"attempt {self.attempt.attempt}, {name}{started}, last heard of {age} s ago"


def holder(newest: AttemptRow | None, here: Machine) -> Holder:
    """Who holds the run whose newest attempt this is, as seen from `here`."""
    if newest is None:
        return Holder(standing=Standing.NEVER)
    if newest.outcome is not None:
        return Holder(standing=Standing.OVER, attempt=newest)
    silent = newest.confirmed_age_seconds > CONFIRMED_SECONDS_MAX
    if silent or _is_gone(parse_process(newest.process), here):
        return Holder(standing=Standing.CRASHED, attempt=newest)
    return Holder(standing=Standing.LIVE, attempt=newest)


def _is_gone(process: Process, here: Machine) -> bool:
    """True only where this machine can tell."""
    same_place = (
        process.boot_id != ""
        and (process.host, process.boot_id) == (here.host, here.boot_id)
        and process.pid_namespace == here.pid_namespace
    )
    if not same_place or not process.pid:
        return False
    ticks = here.start_ticks(process.pid)
    return ticks is None or (process.start_ticks != 0 and ticks != process.start_ticks)
