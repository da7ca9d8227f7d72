"""Writes what a plan says into the object: its status, and Events.

Who calls: the reconciler. What holds: a status is written only when it changed, against
the very version that was read; transitions at once, progress at a bounded rate a run
and over all; a field that the served CRD does not know is said loudly, and not written
again for a while.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from agentrun_operator.apply import Applier
from agentrun_operator.crd_status import status_patch
from agentrun_operator.events import WARNING, Told
from agentrun_operator.facts import RunObject
from agentrun_operator.kube import Kube, KubeError
from agentrun_operator.memories import Remembered
from agentrun_operator.metrics import Metrics
from agentrun_operator.plan import Plan
from agentrun_operator.settings import Settings
from agentrun_operator.status import is_urgent

log = logging.getLogger(__name__)

Path = tuple[str, ...]

PRUNED_SECONDS = 300.0
"""Then a field that the CRD lacked is written once more: the CRD may have been brought up to date."""


class Changed(Exception):
    """The object is another one than was read: look again at once."""


class Bucket:
    """So many a second on average, a few more at once."""

    def __init__(self, clock: Callable[[], float], per_second: float) -> None:
        self._clock = clock
        self._per_second = per_second
        self._left = per_second
        self._at = clock()

    def wait(self) -> float:
        """0: one is taken; else the seconds until there is one."""
        now = self._clock()
        self._left = min(self._per_second, self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left < 1.0:
            return (1.0 - self._left) / self._per_second
        self._left -= 1.0
        return 0.0


class Teller:
    """See the module's docstring."""

    def __init__(
        self, kube: Kube, applier: Applier, settings: Settings, metrics: Metrics, clock: Callable[[], float]
    ) -> None:
        self._kube = kube
        self._applier = applier
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self._bucket = Bucket(clock, settings.writes_per_second)
        self._pruned: set[Path] = set()
        self._pruned_at = 0.0

    async def tell(self, found: RunObject, plan: Plan, memory: Remembered) -> float | None:
        """Seconds until a difference that was held back is to be written; None: all is said."""
        memory.told_version = ""
        if plan.status is None:
            return None
        wanted = plan.status
        if self._pruned and self._clock() - self._pruned_at > PRUNED_SECONDS:
            self._pruned.clear()
            self._metrics.pruned.set(0)
        patch = without(status_patch(dict(found.status), wanted), self._pruned)
        if not patch:
            return None
        if not is_urgent(found.status, without(wanted.to_dict(), self._pruned)):
            wait = memory.written_at + self._settings.times.progress - self._clock()
            if wait <= 0:
                wait = self._bucket.wait()
            if wait > 0:
                return wait
        await self._write(found, patch, memory)
        for told in plan.events:
            await self._applier.tell(found, told)
        return None

    async def _write(self, found: RunObject, patch: Mapping[str, Any], memory: Remembered) -> None:
        try:
            answer = await self._kube.patch_status(
                found.key.namespace, found.key.name, patch, resource_version=found.resource_version
            )
        except KubeError as error:
            if error.status in (404, 409):
                raise Changed from error
            log.error("%s: its status was refused: %s", found.key, error)
            return
        memory.written_at = self._clock()
        memory.told_version = str((answer.get("metadata") or {}).get("resourceVersion", ""))
        got = answer.get("status")
        await self._check(found, patch, got if isinstance(got, Mapping) else {})

    async def _check(self, found: RunObject, patch: Mapping[str, Any], got: Mapping[str, Any]) -> None:
        """The server drops, without a word, what the schema of its CRD lacks."""
        gone = lost(patch, got) - self._pruned
        if not gone:
            return
        self._pruned |= gone
        self._pruned_at = self._clock()
        self._metrics.pruned.set(len(self._pruned))
        fields = ", ".join(sorted(".".join(("status", *path)) for path in gone))
        text = f"the CRD in this cluster is older than this operator and lacks {fields}: update the CRD"
        log.error(text)
        await self._applier.tell(found, Told(type=WARNING, reason="OldCRD", message=text[:1000]))

    @property
    def pruned(self) -> bool:
        """The served CRD lacks fields that are written."""
        return bool(self._pruned)


def lost(patch: Mapping[str, Any], got: Mapping[str, Any], path: Path = ()) -> set[Path]:
    """Fields that were written and are not there."""
    found: set[Path] = set()
    for key, value in patch.items():
        if value is None:
            continue
        if key not in got:
            found.add((*path, key))
        elif isinstance(value, Mapping) and isinstance(got[key], Mapping):
            found |= lost(value, got[key], (*path, key))
    return found


def without(value: Mapping[str, Any], paths: set[Path], path: Path = ()) -> dict[str, Any]:
    """The fields but for those at `paths`."""
    kept = {}
    for key, item in value.items():
        here = (*path, key)
        if here in paths:
            continue
        kept[key] = without(item, paths, here) if isinstance(item, Mapping) else item
    return kept
