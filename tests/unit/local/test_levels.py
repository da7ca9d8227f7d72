"""How commands change what a run's owner wants."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from agentrun.local.levels import (
    budget_of,
    change_levels,
    first_levels,
    of_manifest,
    of_resume,
    of_shutdown,
)
from agentrun.log.memory import Database, MemoryStore
from agentrun.log.store import Levels, RunRow
from agentrun.spec import AgentRunSpec


def spec(**changes: Any) -> AgentRunSpec:
    agent = {"model": {"name": "scripted:x", "script": {"turns": [{"text": "ok"}]}}}
    return AgentRunSpec.model_validate({"prompt": "p", "agent": agent, **changes})


def test_a_new_run_has_the_whole_budget_of_its_manifest_as_a_level() -> None:
    levels = first_levels(spec(budget={"tokens": 5}))
    assert json.loads(levels.budget) == {
        "tokens": 5,
        "wallSeconds": None,
        "turns": 100,
        "retries": 10,
        "onExceeded": "Pause",
    }
    assert (levels.generation, levels.suspend, levels.shutdown) == (0, False, "")


def test_a_budget_that_another_program_wrote_is_filled_up() -> None:
    assert budget_of(Levels(budget='{"tokens": 7}'))["turns"] == 100
    assert budget_of(Levels())["retries"] == 10


def test_a_manifest_that_is_run_again_sets_its_levels_but_takes_no_shutdown_back() -> None:
    stored = first_levels(spec(budget={"tokens": 5}, suspend=True, shutdown="Stop"))
    wanted = of_manifest(spec(budget={"tokens": 9}))(stored)
    assert budget_of(wanted)["tokens"] == 9
    assert (wanted.suspend, wanted.shutdown) == (False, "Stop")


def test_a_resume_ends_a_suspension_and_raises_what_is_named() -> None:
    stored = replace(first_levels(spec(budget={"tokens": 5, "turns": 7})), suspend=True)
    wanted = of_resume({"tokens": 9})(stored)
    assert not wanted.suspend
    assert (budget_of(wanted)["tokens"], budget_of(wanted)["turns"]) == (9, 7)
    assert of_resume({})(stored).budget == stored.budget


def test_terminate_is_not_taken_back_by_stop() -> None:
    assert of_shutdown("Stop")(Levels()).shutdown == "Stop"
    assert of_shutdown("Terminate")(Levels(shutdown="Stop")).shutdown == "Terminate"
    assert of_shutdown("Stop")(Levels(shutdown="Terminate")).shutdown == "Terminate"


def test_why_a_run_is_asked_to_end_goes_with_the_level() -> None:
    asked = of_shutdown("Stop", "too dear: 5 USD")(Levels())
    assert (asked.shutdown_how, asked.shutdown_why) == ("Stop", "too dear: 5 USD")
    assert of_shutdown("Stop")(asked) == asked
    assert of_shutdown("Stop", "late")(asked).shutdown_why == "late"
    firmer = of_shutdown("Terminate")(asked)
    assert (firmer.shutdown_how, firmer.shutdown_why) == ("Terminate", "too dear: 5 USD")
    assert of_shutdown("Stop", "again")(firmer) == firmer
    assert of_shutdown("Stop", "a\0b\udc80")(Levels()).shutdown.encode()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(Database(lambda: 0.0))


def test_a_change_is_made_again_to_what_somebody_else_has_written_meanwhile(store: MemoryStore) -> None:
    async def play() -> Levels:
        run_id = uuid4()
        row = RunRow(run_id=run_id, owner="local/x", name="x", definition=b"", digest="")
        await store.create_run(row)
        old = await store.get_run(run_id)
        assert old is not None
        await store.set_levels(run_id, Levels(generation=4, suspend=True))
        await change_levels(store, old, of_shutdown("Stop"))
        new = await store.get_run(run_id)
        assert new is not None
        await change_levels(store, new, of_shutdown("Stop"))  # so already: nothing is written
        newest = await store.get_run(run_id)
        assert newest is not None
        return newest.run.levels

    levels = asyncio.run(play())
    assert levels == Levels(generation=5, suspend=True, shutdown="Stop")
