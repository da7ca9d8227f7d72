"""What this process remembers of each key, beyond what it can read.

Who calls: the reconciler and `apply`. What holds: all of it may be lost at any moment;
that costs time, never a wrong step. A key whose object is gone is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from agentrun.log.store import Standing
from agentrun_operator.facts import Key, Memory, Refused
from agentrun_operator.refusals import Refusal


@dataclass
class Remembered:
    """Of one key. Times are of a clock that never goes back."""

    clock: Callable[[], float]
    refused: tuple[int, Refusal, float] | None = None
    made_pod_of: int = 0
    asked: tuple[str, float] = ("", 0.0)
    spent_token: str = ""
    corrupt: str = ""
    written_at: float = float("-inf")
    told_version: str = ""
    """The object's version that our own newest write made: its event is no news."""

    run_id: UUID | None = None
    uid: str = ""
    """The object's."""

    seen: tuple[str, str, Standing | None] = ("", "", None)
    """Versions of the object and of the pod, and the run's standing, when it was looked at last."""

    orphans: dict[UUID, Remembered] = field(default_factory=dict)
    """Runs of objects of this name that may be gone, each with what is remembered of it."""

    def refuse(self, attempt: int, refusal: Refusal) -> None:
        """The attempt's pod cannot be made now."""
        self.refused = (attempt, refusal, self.clock())

    def made(self, attempt: int) -> None:
        """The attempt's pod is there, or was."""
        self.made_pod_of = max(self.made_pod_of, attempt)
        self.refused = None

    def suspect(self, run_id: UUID) -> None:
        """The run's object may be gone."""
        self.orphans.setdefault(run_id, Remembered(self.clock, run_id=run_id))

    def ask(self, what: str) -> None:
        """A live runner is being asked for this now; "": for nothing."""
        if self.asked[0] != what:
            self.asked = (what, self.clock())

    def snapshot(self, *, identity: str) -> Memory:
        """For an observation."""
        now, refused = self.clock(), None
        if self.refused is not None:
            attempt, refusal, at = self.refused
            retry_in = (refusal.retry or 0.0) - (now - at)
            refused = Refused(attempt=attempt, refusal=refusal, retry_in=retry_in)
        return Memory(
            identity=identity,
            refused=refused,
            made_pod_of=self.made_pod_of,
            asked=(self.asked[0], now - self.asked[1]),
            spent_token=self.spent_token,
        )


class Memories:
    """Of all keys."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._of: dict[Key, Remembered] = {}
        self._keys: dict[UUID, Key] = {}

    def of(self, key: Key) -> Remembered:
        """What is remembered of the key, from now on."""
        found = self._of.get(key)
        if found is None:
            found = self._of[key] = Remembered(self._clock)
        return found

    def get(self, key: Key) -> Remembered | None:
        """What is remembered of the key, if anything."""
        return self._of.get(key)

    def name(self, run_id: UUID, key: Key) -> None:
        """The run is that object's."""
        memory = self.of(key)
        if memory.run_id != run_id:
            if memory.run_id is not None:
                self._keys.pop(memory.run_id, None)
                memory.suspect(memory.run_id)
            memory.orphans.pop(run_id, None)
            self._of[key] = Remembered(self._clock, run_id=run_id, orphans=memory.orphans)
        self._keys[run_id] = key

    def key_of(self, run_id: UUID) -> Key | None:
        """Whose the run is, as far as this process has seen it."""
        return self._keys.get(run_id)

    def gone(self, key: Key) -> None:
        """The object is not there: its run is to be seen to."""
        found = self._of.get(key)
        if found is None or found.run_id is None:
            return
        self._keys.pop(found.run_id, None)
        found.suspect(found.run_id)
        self._of[key] = Remembered(self._clock, orphans=found.orphans)

    def forget(self, key: Key) -> None:
        """Nothing is left to do for the name."""
        found = self._of.pop(key, None)
        if found is not None and found.run_id is not None:
            self._keys.pop(found.run_id, None)

    def keys(self) -> list[Key]:
        """All keys that something is remembered of."""
        return list(self._of)

    def __len__(self) -> int:
        return len(self._of)
