"""What the owner of a run wants of it: levels, and how commands change them.

Who calls: the command. What holds: levels are changed by compare-and-set on their
generation; where somebody else was quicker, the change is made again to what is read
then. The functions that say how levels change are pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agentrun.local.errors import HeldElsewhere, NoSuchRun
from agentrun.log.store import Levels, LogStore, RunInfo
from agentrun.log.text import safe_text

if TYPE_CHECKING:
    from agentrun.spec import AgentRunSpec, Budget

ROUNDS_MAX = 20

_FIELDS = frozenset({"tokens", "wallSeconds", "turns", "retries", "onExceeded"})


def budget_text(budget: Budget) -> str:
    """The level's form of a budget: each limit by name, null for none."""
    return json.dumps(budget.model_dump(mode="json", by_alias=True), sort_keys=True)


def budget_of(levels: Levels) -> dict[str, Any]:
    """The limits that hold now, in the manifest's form."""
    said: dict[str, Any] = json.loads(levels.budget) if levels.budget else {}
    if said.keys() >= _FIELDS:
        return said
    from agentrun.spec import Budget  # only for levels that another program wrote

    return {**Budget().model_dump(mode="json", by_alias=True), **said}


def first_levels(spec: AgentRunSpec) -> Levels:
    """The levels of a run that is made from this manifest."""
    return Levels(suspend=spec.suspend, shutdown=spec.shutdown or "", budget=budget_text(spec.budget))


def of_manifest(spec: AgentRunSpec) -> Callable[[Levels], Levels]:
    """The change when this manifest is run again. A shutdown stands: there is no way back."""
    wanted = first_levels(spec)
    return lambda stored: replace(wanted, shutdown=stored.shutdown or wanted.shutdown)


def of_resume(raised: Mapping[str, Any]) -> Callable[[Levels], Levels]:
    """The change when a run is told to go on. `raised`: limits by the manifest's names."""
    from agentrun.spec import Budget

    def change(stored: Levels) -> Levels:
        budget = budget_text(Budget.model_validate({**budget_of(stored), **raised}))
        return replace(stored, suspend=False, budget=budget if raised else stored.budget)

    return change


def of_shutdown(how: str, why: str = "") -> Callable[[Levels], Levels]:
    """The change when a run is asked to end: Stop, or Terminate, which Stop does not take back."""

    def change(stored: Levels) -> Levels:
        if stored.shutdown_how == "Terminate":
            return stored
        said = safe_text(why) or stored.shutdown_why
        return replace(stored, shutdown=f"{how}: {said}" if said else how)

    return change


async def change_levels(store: LogStore, info: RunInfo, change: Callable[[Levels], Levels]) -> None:
    """Makes the change, unless all is so already, and tells whoever runs the run."""
    run_id, stored = info.run.run_id, info.run.levels
    for _ in range(ROUNDS_MAX):
        wanted = change(stored)
        if _same(stored, wanted):
            return
        if await store.set_levels(run_id, replace(wanted, generation=stored.generation + 1)):
            await store.notify([run_id])
            return
        read = await store.get_run(run_id)
        if read is None:
            raise NoSuchRun(f"there is no run {run_id}")
        stored = read.run.levels
    raise HeldElsewhere(f"run {run_id}: others keep changing what it should do")


def _same(one: Levels, other: Levels) -> bool:
    """Apart from the generation, and from how a budget is written."""
    plain = [replace(levels, generation=0, budget="") for levels in (one, other)]
    return plain[0] == plain[1] and budget_of(one) == budget_of(other)
