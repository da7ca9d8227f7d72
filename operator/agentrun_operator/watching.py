"""Whether the watches tell what happens. Pure but for the clock.

Who calls: the handlers say what they were told, each sweep says what it found, and
health asks. What holds: an object whose version two sweeps in a row have found, and
that no event has told of, was missed; a watch that misses things for longer than its
bound is dead, whatever it looks like from inside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping


class WatchProbe:
    """See the module's docstring."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._told: dict[str, dict[str, str]] = {}
        self._found: dict[str, dict[str, str]] = {}
        self._since: dict[str, float] = {}

    def told(self, kind: str, uid: str, version: str, *, gone: bool = False) -> None:
        """An event told of this version of an object."""
        told = self._told.setdefault(kind, {})
        if gone:
            told.pop(uid, None)
        else:
            told[uid] = version

    def listed(self, kind: str, versions: Mapping[str, str]) -> int:
        """A sweep found these versions by uid; how many of them the watch has missed."""
        told, before = self._told.get(kind, {}), self._found.get(kind, {})
        missed = sum(
            before.get(uid) == version and told.get(uid) != version for uid, version in versions.items()
        )
        self._found[kind] = dict(versions)
        for uid in [uid for uid in told if uid not in versions]:
            del told[uid]
        if missed:
            self._since.setdefault(kind, self._clock())
        else:
            self._since.pop(kind, None)
        return missed

    def silent_seconds(self) -> dict[str, float]:
        """For how long each watch that misses things has done so."""
        now = self._clock()
        return {kind: now - since for kind, since in self._since.items()}
