"""One look at one key: observe, plan, apply, tell.

Who calls: the workers, with a key at a time. What holds: whatever woke it, all is
decided from fresh reads; a step that changed something is followed by another look
before anything is told; runs of former objects of the name are seen to as well.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

from agentrun.log.store import LogStore, RunInfo, Standing
from agentrun_operator.actions import Action, CloseAttempt
from agentrun_operator.apply import Applier, Context
from agentrun_operator.facts import Key, Observation, RunObject, parse_owner
from agentrun_operator.kube import Kube
from agentrun_operator.memories import Memories, Remembered
from agentrun_operator.metrics import Metrics
from agentrun_operator.observe import Observer
from agentrun_operator.plan import Plan, plan
from agentrun_operator.rollout import Rollout
from agentrun_operator.settings import Settings
from agentrun_operator.tell import Teller

log = logging.getLogger(__name__)

ROUNDS_MAX = 10
"""Steps in a row for one key; what is left then waits for its next turn."""

REREAD_ROUNDS = 3
"""After so many, the object is read again."""


class Reconciler:
    """See the module's docstring."""

    def __init__(
        self,
        kube: Kube,
        store: LogStore,
        settings: Settings,
        *,
        identity: str,
        metrics: Metrics,
        clock: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._metrics = metrics
        self.memories = Memories(clock)
        self.observer = Observer(kube, store, settings)
        self.applier = Applier(kube, store, settings, identity)
        self.rollout = Rollout(settings, clock)
        self.teller = Teller(kube, self.applier, settings, metrics, clock)

    async def reconcile(self, key: Key) -> float | None:
        """Seconds until the key is to be looked at again without a cause; None: it need not.

        Raises KubeError, KubeUnavailable, LogError where this look could not be finished.
        """
        found = await self.observer.object_of(key)
        waits = []
        if found is not None:
            self.memories.name(found.run_id, key)
            waits.append(await self._object(key, found))
        else:
            self.rollout.forget(key)
            self.memories.gone(key)
        memory = self.memories.of(key)
        for run_id in list(memory.orphans):
            wait = await self._orphan(key, run_id, found, memory)
            if wait is None:
                memory.orphans.pop(run_id, None)
            waits.append(wait)
        if found is None and not memory.orphans:
            self.memories.forget(key)
        pending = [wait for wait in waits if wait is not None]
        return min(pending) if pending else None

    async def _object(self, key: Key, found: RunObject) -> float | None:
        memory = self.memories.of(key)
        memory.uid = found.uid
        for number in range(1, ROUNDS_MAX + 1):
            if number > REREAD_ROUNDS:
                again = await self.observer.object_of(key)
                if again is None or again.uid != found.uid:
                    return 0.0
                found = again
            o, made = await self._look(key, found, memory)
            if not made.step.again:
                return await self._settled(key, found, memory, o, made)
            await self._act(key, found.run_id, memory, o, made)
        return 0.0

    async def _look(self, key: Key, found: RunObject, memory: Remembered) -> tuple[Observation, Plan]:
        o = await self.observer.of_object(found, memory.snapshot(identity=self._identity))
        # From here to the note nothing is waited for: another worker must not see the same room.
        o = replace(o, memory=replace(o.memory, rollout_room=self.rollout.room(key)))
        if memory.corrupt and not o.corrupt:
            o = replace(o, corrupt=memory.corrupt)
        self._metrics.store_up.set(0 if o.store_problem else 1)
        made = plan(o, self._settings)
        self.rollout.note(key, o, made.step)
        memory.ask(made.step.asking)
        return o, made

    async def _settled(
        self, key: Key, found: RunObject, memory: Remembered, o: Observation, made: Plan
    ) -> float | None:
        """People are told before the pod of a run that ended goes, and a plan's last actions are done."""
        step = made.step
        held_back = await self.teller.tell(found, made, memory)
        await self._act(key, found.run_id, memory, o, made)
        version = o.pod.version if o.pod is not None else ""
        memory.seen = (memory.told_version or found.resource_version, version, _standing(o.info))
        waits = [step.requeue, held_back, self.rollout.waits(o, step)]
        pending = [wait for wait in waits if wait is not None]
        return min(pending) if pending else None

    async def _act(self, key: Key, run_id: UUID, memory: Remembered, o: Observation, made: Plan) -> None:
        await self.applier.apply(Context(key=key, run_id=run_id, o=o, memory=memory), made.actions)
        for action in made.actions:
            self._count(action)

    def _count(self, action: Action) -> None:
        self._metrics.actions.labels(type(action).__name__).inc()
        if isinstance(action, CloseAttempt):
            self._metrics.attempts.labels(action.ending.outcome.value).inc()

    async def _orphan(
        self, key: Key, run_id: UUID, found: RunObject | None, memory: Remembered
    ) -> float | None:
        """None: nothing is left to do for the run."""
        if found is not None and found.run_id == run_id:
            return None
        own = memory.orphans[run_id]
        for _ in range(ROUNDS_MAX):
            o = await self.observer.of_orphan(key, run_id, own.snapshot(identity=self._identity))
            if o.info is not None and not self._is_left_behind(o.info.run.owner, key, found):
                return None
            if own.corrupt:
                o = replace(o, corrupt=own.corrupt)
            made = plan(o, self._settings)
            own.ask(made.step.asking)
            await self._act(key, run_id, own, o, made)
            if not made.step.again:
                return made.step.requeue
        return 0.0

    def _is_left_behind(self, owner: str, key: Key, found: RunObject | None) -> bool:
        """The run was an object's of this name and this installation, and that object is gone."""
        parsed = parse_owner(owner)
        if parsed is None or parsed.installation != self._settings.installation or parsed.key != key:
            return False
        return found is None or found.uid != parsed.uid


def _standing(info: RunInfo | None) -> Standing | None:
    """As a sweep or a hint will find the run, if nothing changes."""
    if info is None:
        return None
    run, last = info.run, info.last_attempt
    current = last if last is not None and last.attempt == run.attempt else None
    return Standing(
        run_id=run.run_id,
        owner=run.owner,
        attempt=run.attempt,
        ended=run.ended,
        generation=run.levels.generation,
        suspend=run.levels.suspend,
        claimed=current is not None and current.claimed,
        outcome=current.outcome if current is not None else None,
        inbox=info.inbox,
    )
