"""An executor with all that goes on around it while it runs.

Who calls: whatever has claimed a run: the command, a runner pod. It looks at the
epoch, obeys the levels that the look brings, takes up people's answers, keeps the
summary and the hints up to date apart from the appends, and writes how the attempt
ended. What holds: none of it delays an append, and none of it is written by a process
that is fenced off.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from uuid import UUID

from agentrun.graph.budget import limits_of
from agentrun.graph.executor import Executor, Outcome
from agentrun.log.errors import BlobCorrupt, BlobMissing, LogError, StoreRefused
from agentrun.log.runlog import LOOK_SECONDS
from agentrun.log.store import AttemptOutcome, Look
from agentrun.log.summary import Phase, phase_of, result_of, summarize, to_json
from agentrun.proto import log_pb2 as pb

logger = logging.getLogger(__name__)

SUMMARY_SECONDS = 1.0
HINTED_LOOK_SECONDS = 0.2
"""At least so long apart: a run's own hints come back to it."""

AROUND_SECONDS_MAX = 1.0
"""How long what goes on around an executor may take to notice its end."""
NOTIFY_SECONDS = 0.02

_OUTCOMES = {
    pb.OUTCOME_SUCCEEDED: AttemptOutcome.SUCCEEDED,
    pb.OUTCOME_FAILED: AttemptOutcome.FAILED,
    pb.OUTCOME_CANCELLED: AttemptOutcome.CANCELLED,
}


ResultText = Callable[[bytes], str]
"""The answer's text, of the final record's output; what is in that output is the kinds' own affair."""


async def _within(event: asyncio.Event, seconds: float) -> bool:
    """The event is set, or is within so many seconds."""
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()


class Drive:
    """One run of one executor. `budget` is the definition's, in the manifest's form."""

    def __init__(
        self, executor: Executor, *, budget: Mapping[str, Any], result_text: ResultText | None = None
    ) -> None:
        self.executor = executor
        self.log = executor.log
        self._budget = budget
        self._result_text = result_text
        self._levels_seen = ""
        self._inbox_seen = 0
        self._hinted = asyncio.Event()
        self._over = asyncio.Event()

    def hint(self, run_id: UUID | None) -> None:
        """Something may have changed: looks soon. For LogStore.listen."""
        if run_id is None or run_id == self.log.run_id:
            self._hinted.set()

    async def run(self) -> Outcome:
        """Runs to the end or to a stop. Raises Fenced, CorruptLog, StoreUnavailable."""
        self.log.on_look = self._obey
        await self._answers(await self.log.look())
        around = [asyncio.create_task(part()) for part in (self._watch, self._summarize, self._notify)]
        try:
            outcome = await self.executor.run()
        finally:
            # Told, not cancelled: a statement that is cut off costs its connection.
            self._over.set()
            self._hinted.set()
            _, slow = await asyncio.wait(around, timeout=AROUND_SECONDS_MAX)
            for task in slow:
                task.cancel()
        await self._conclude(outcome)
        return outcome

    # --- levels

    def _obey(self, look: Look) -> None:
        """Levels, not events: the same again changes nothing."""
        levels = look.levels
        if levels.shutdown:
            how, why = levels.shutdown_how, levels.shutdown_why
            self.executor.cancel(why or f"shutdown: {how}", at_once=how == "Terminate")
        elif levels.suspend:
            self.executor.pause("Suspended")
        if levels.budget != self._levels_seen:
            self._levels_seen = levels.budget
            try:
                changed = json.loads(levels.budget) if levels.budget else {}
                self.executor.budget.set_limits(limits_of({**self._budget, **changed}))
            except (TypeError, ValueError, AttributeError, RecursionError):
                logger.warning("a budget that cannot be read is left aside: %.200s", levels.budget)

    async def _watch(self) -> None:
        """Looks every LOOK_SECONDS, and sooner when hinted; but not for every hint."""
        try:
            while not await _within(self._over, HINTED_LOOK_SECONDS):
                await _within(self._hinted, LOOK_SECONDS)
                self._hinted.clear()
                if not self._over.is_set():
                    await self._answers(await self.log.look())
        except Exception as error:
            self.executor.stop_for(error)

    async def _answers(self, look: Look) -> None:
        """People's answers, where the inbox has more than was read."""
        if look.inbox != self._inbox_seen:
            await self.executor.read_answers()
            self._inbox_seen = look.inbox

    # --- projections

    def summary(self, phase: Phase = Phase.RUNNING, reason: str = "", message: str = "") -> dict[str, Any]:
        """Of now."""
        running = len(self.executor.running)
        return summarize(self.log.history, phase=phase, reason=reason, message=message, in_flight=running)

    async def _summarize(self) -> None:
        seen = ""
        while not await _within(self._over, SUMMARY_SECONDS):
            text = to_json(self.summary())
            if text != seen:
                with suppress(LogError):
                    await self._put(text)
                    seen = text

    async def _notify(self) -> None:
        seen = self.log.history.head
        while not await _within(self._over, NOTIFY_SECONDS):
            head = self.log.history.head
            if head == seen:
                await self._news(head)
                continue
            seen = head
            with suppress(LogError):
                await self.log.store.notify([self.log.run_id])

    async def _news(self, head: int) -> None:
        """Waits for a record behind `head`, or for the end."""
        waits = [asyncio.ensure_future(part) for part in (self.log.past(head), self._over.wait())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for part in waits:
            part.cancel()

    async def _put(self, summary: str) -> None:
        log = self.log
        await log.store.put_summary(log.run_id, epoch=log.epoch, head=log.history.head, summary=summary)

    async def _conclude(self, outcome: Outcome) -> None:
        """Exactly at pause and end. The log has it all already, so the store may be away now."""
        log = self.log
        phase = phase_of(outcome.outcome)
        how = _OUTCOMES.get(outcome.outcome, AttemptOutcome.PAUSED)
        with suppress(LogError):
            try:
                summary = self.summary(phase, outcome.reason, outcome.message)
                await self._put(to_json(summary | await self._result()))
            except StoreRefused as error:
                logger.warning("the summary at the end: %s", error)
            await log.store.close_attempt(log.run_id, log.attempt, how, outcome.reason)
            await log.store.notify([log.run_id])

    async def _result(self) -> dict[str, Any]:
        """The answer, as far as a status shows one."""
        final = self.log.history.final
        if self._result_text is None or final is None or final.final.outcome != pb.OUTCOME_SUCCEEDED:
            return {}
        try:
            return {"result": result_of(self._result_text(await self.log.payload(final.output)))}
        except (BlobMissing, BlobCorrupt, ValueError):
            return {}  # the run has ended well, whatever is left of its answer
