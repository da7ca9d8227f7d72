"""The people of a history, who answer what runs ask: late, twice, and past the question."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from agentrun.log.asks import answer_row, ask_id
from agentrun.log.replay import History
from tests.support.sim.case import Case
from tests.support.sim.world import World


class People:
    """`asked`: some run of the history asks at all."""

    def __init__(self, world: World, cases: Sequence[Case], seed: int) -> None:
        self.asked = any(case.plan.asking for case in cases)
        self._world = world
        self._cases = cases
        self._rng = random.Random(f"people {seed}")

    async def answer_for_ever(self) -> None:
        """Whenever they like."""
        while True:
            await asyncio.sleep(self._rng.random() * self._rng.choice([0.1, 2.0, 10.0]))
            await self.answer(self._rng.choice(self._cases), self._rng.random())

    async def answer(self, case: Case, share: float) -> None:
        """So large a share of the questions that the log holds, open or not, and something that is none."""
        if not case.plan.asking:
            return
        rng, backing, run_id = self._rng, self._world.backing, case.run_id
        history = History(run_id)
        history.fold_rows(await backing.read_rows(run_id))
        own = {ask_id(run_id, node, "") for node in case.plan.asking}
        others = [
            ask_id(other.run_id, node, "") for other in self._cases for node in sorted(other.plan.asking)
        ]
        stray = rng.choice([*others, *sorted(case.plan.asking)])
        for id_ in [*(id_ for id_ in history.asks if rng.random() < share), *({stray} - own)]:
            for yes in rng.choice([[True], [False], [True, False], [False, True]]):
                row = answer_row(id_, approve=yes, by="somebody")
                if await backing.post(run_id, row) and yes:
                    case.watched.approved.add(id_)
        self._world.hint([run_id])
