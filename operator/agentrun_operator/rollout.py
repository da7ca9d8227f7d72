"""How many runs may be down at once for a new runner image. Pure but for the clock.

Who calls: the reconciler. What holds: never more than the settings say, counted by
run, from the moment that its pod is taken down until its next one runs the run (or it
needs none); after a start of the operator nothing is taken down until what a former
one had taken down could be seen.
"""

from __future__ import annotations

from collections.abc import Callable

from agentrun.log.summary import Phase
from agentrun_operator.actions import Step
from agentrun_operator.facts import Key, Observation
from agentrun_operator.settings import RolloutPolicy, Settings

SETTLE_SECONDS = 30.0


class Rollout:
    """See the module's docstring."""

    def __init__(self, settings: Settings, clock: Callable[[], float]) -> None:
        self._policy = settings.rollout
        self._max = settings.rollout_unavailable_max
        self._clock = clock
        self._from = clock() + SETTLE_SECONDS
        self.down: set[Key] = set()

    def room(self, key: Key) -> bool:
        """The key's pod may be taken down now."""
        if self._policy is not RolloutPolicy.IMMEDIATE or self._clock() < self._from:
            return False
        return key in self.down or len(self.down) < self._max

    def note(self, key: Key, o: Observation, step: Step) -> None:
        """What became of a key."""
        if step.rolling or _was_rolling(o, step):
            self.down.add(key)
        elif (
            step.phase.terminal
            or step.phase is Phase.PAUSED
            or (step.phase is Phase.RUNNING and not o.outdated)
        ):
            self.down.discard(key)

    def forget(self, key: Key) -> None:
        """The object is gone."""
        self.down.discard(key)

    def waits(self, o: Observation, step: Step) -> float | None:
        """When an outdated pod is to be looked at again; None: it need not."""
        if self._policy is not RolloutPolicy.IMMEDIATE or not o.outdated or step.rolling:
            return None
        return max(2.0, self._from - self._clock() + 0.1)


def _was_rolling(o: Observation, step: Step) -> bool:
    """Status says that the pod is down for a new image, written maybe by another process."""
    if o.object is None or step.phase not in (Phase.PENDING, Phase.PAUSING):
        return False
    conditions = o.object.status.get("conditions")
    return any(
        c.get("type") == "Disrupted" and c.get("status") == "True" and c.get("reason") == "Rollout"
        for c in (conditions if isinstance(conditions, list) else [])
    )
