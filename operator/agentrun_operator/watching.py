"""Whether the watches tell what happens. Pure but for the clock.

Who calls: the handlers say what they were told, each sweep says what it found, and
health asks. What holds: an object whose version two sweeps in a row have found, and of
which no event has told anything since the first of them, was missed; a watch that misses
things for longer than its bound is dead, whatever it looks like from inside. A watch that
is behind a sweep, or ahead of one, is none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping


class WatchProbe:
    """See the module's docstring."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._told: dict[str, dict[str, str]] = {}
        self._found: dict[str, dict[str, str]] = {}
        self._heard: dict[str, dict[str, str]] = {}
        """What had been told at the last sweep."""
        self._absent: dict[str, set[str]] = {}
        """What had been told of, and the last sweep did not find."""
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
        told, before = self._told.setdefault(kind, {}), self._found.get(kind, {})
        heard = self._heard.get(kind, {})
        missed = sum(
            before.get(uid) == version and told.get(uid) != version and told.get(uid) == heard.get(uid)
            for uid, version in versions.items()
        )
        # What came while the sweep was on its way is told of, and not found: it is no thing of the past yet.
        absent = {uid for uid in told if uid not in versions}
        for uid in absent & self._absent.get(kind, set()):
            del told[uid]
        self._found[kind], self._heard[kind], self._absent[kind] = dict(versions), dict(told), absent
        if missed:
            self._since.setdefault(kind, self._clock())
        else:
            self._since.pop(kind, None)
        return missed

    def silent_seconds(self) -> dict[str, float]:
        """For how long each watch that misses things has done so."""
        now = self._clock()
        return {kind: now - since for kind, since in self._since.items()}
