"""Finding runs and getting attempts of them, on a store in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from agentrun.local.errors import HeldElsewhere, NoSuchRun, NotOurs
from agentrun.local.process import Process, this_process
from agentrun.local.runs import allocate, definition_of, find_run, make_run, require_ours, spec_of
from agentrun.log.errors import StoreUnavailable
from agentrun.log.memory import Database, MemoryStore
from agentrun.log.store import AttemptOutcome, RunInfo, RunRow
from agentrun.spec import AgentRun, parse_object

ELSEWHERE = Process(host="elsewhere", boot_id="b", pid=1, start_ticks=1)
RUN_ID = UUID("aaaa1111-0000-4000-8000-000000000000")


class Now:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def now() -> Now:
    return Now()


@pytest.fixture
def store(now: Now) -> MemoryStore:
    return MemoryStore(Database(now))


def play(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(main())


def manifest(prompt: str = "p", **spec: Any) -> AgentRun:
    agent = {"model": {"name": "scripted:x", "script": {"turns": [{"text": "ok"}]}}}
    said = {"agent": agent, **({"prompt": prompt} if prompt else {}), **spec}
    return parse_object(
        {
            "apiVersion": "agentrun.dev/v1alpha1",
            "kind": "AgentRun",
            "metadata": {"name": "m"},
            "spec": said,
        }
    )


async def new_run(store: MemoryStore, run_id: str, owner: str = "local/x") -> RunInfo:
    row = RunRow(run_id=UUID(run_id), owner=owner, name="x", definition=b"{}", digest="d")
    assert await store.create_run(row)
    info = await store.get_run(row.run_id)
    assert info is not None
    return info


def test_a_run_is_found_by_its_id_or_a_unique_beginning(store: MemoryStore) -> None:
    async def main() -> None:
        await new_run(store, "aaaa1111-0000-4000-8000-000000000000")
        await new_run(store, "aaaa2222-0000-4000-8000-000000000000")
        for name in ("aaaa1", "AAAA1111-0", "aaaa1111-0000-4000-8000-000000000000"):
            assert (await find_run(store, name)).run.run_id == RUN_ID
        for name, why in [
            ("aaaa", "2 runs have an id that begins with"),
            ("bbbb", "no run has an id that begins with"),
            ("aaa", "too short"),
            ("aaaax", "not a run's id"),
            ("aaaa3333-0000-4000-8000-000000000000", "there is no run"),
            ("%", "not a run's id"),
        ]:
            with pytest.raises(NoSuchRun, match=why):
                await find_run(store, name)

    play(main)


def test_a_manifest_meets_its_own_run_again_and_no_other_one(store: MemoryStore) -> None:
    async def main() -> None:
        made = await make_run(store, RUN_ID, manifest())
        again = await make_run(store, RUN_ID, manifest(budget={"tokens": 9}))
        assert again.run == made.run
        with pytest.raises(NotOurs, match="another definition"):
            await make_run(store, RUN_ID, manifest("another prompt"))

    play(main)


def test_a_run_that_was_stored_with_other_numbers_is_its_manifests_run(store: MemoryStore) -> None:
    async def main() -> None:
        agent = {"model": {"name": "openai:x", "settings": {"extra": {"top": 1}}}}
        said = manifest(agent=agent)
        stored = definition_of(said.spec).replace(b'"top":1', b'"top":1.0')
        row = RunRow(run_id=RUN_ID, owner="local/m", name="m", definition=stored, digest="d")
        assert await store.create_run(row)
        assert (await make_run(store, RUN_ID, said)).run.definition == stored

    play(main)


def test_a_run_that_an_object_owns_is_left_to_it(store: MemoryStore) -> None:
    async def main() -> None:
        info = await new_run(store, str(RUN_ID), owner="cluster/ns/name/uid")
        with pytest.raises(NotOurs, match="belongs to cluster/ns/name/uid"):
            require_ours(info)

    play(main)


def test_a_live_run_is_refused_and_taken_over_when_asked(store: MemoryStore, now: Now) -> None:
    async def main() -> None:
        me = this_process("test")
        await new_run(store, str(RUN_ID))
        first = await store.allocate_attempt(
            RUN_ID, expected=0, process=ELSEWHERE.to_json(), previous=AttemptOutcome.CRASHED
        )
        assert first == 1
        now.seconds += 29
        with pytest.raises(HeldElsewhere, match=r"attempt 1, process 1 on elsewhere .*--take-over"):
            await allocate(store, RUN_ID, me, take_over=False)
        assert (await allocate(store, RUN_ID, me, take_over=True)).attempt == 2
        rows = await store.attempts(RUN_ID)
        assert [row.outcome for row in rows] == [AttemptOutcome.DISRUPTED, None]

    play(main)


def test_a_dead_attempt_is_closed_as_crashed(store: MemoryStore, now: Now) -> None:
    async def main() -> None:
        await new_run(store, str(RUN_ID))
        await store.allocate_attempt(
            RUN_ID, expected=0, process=ELSEWHERE.to_json(), previous=AttemptOutcome.CRASHED
        )
        now.seconds += 31
        assert (await allocate(store, RUN_ID, this_process("test"), take_over=False)).attempt == 2
        rows = await store.attempts(RUN_ID)
        assert [row.outcome for row in rows] == [AttemptOutcome.CRASHED, None]

    play(main)


class Rival(MemoryStore):
    """Somebody else allocates in between, `wins` times, and ends at once."""

    wins = 1

    async def allocate_attempt(
        self, run_id: UUID, *, expected: int, process: str, previous: AttemptOutcome
    ) -> int | None:
        if self.wins:
            self.wins -= 1
            await super().allocate_attempt(
                run_id, expected=expected, process=ELSEWHERE.to_json(), previous=previous
            )
            await self.close_attempt(run_id, expected + 1, AttemptOutcome.PAUSED, "")
        return await super().allocate_attempt(run_id, expected=expected, process=process, previous=previous)


def test_whoever_was_slower_decides_again(now: Now) -> None:
    async def main() -> None:
        store = Rival(Database(now))
        await new_run(store, str(RUN_ID))
        assert (await allocate(store, RUN_ID, this_process("test"), take_over=False)).attempt == 2
        await store.close_attempt(RUN_ID, 2, AttemptOutcome.PAUSED, "")
        store.wins = 1000
        with pytest.raises(HeldElsewhere, match="keep taking it"):
            await allocate(store, RUN_ID, this_process("test"), take_over=False)

    play(main)


class Lossy(MemoryStore):
    """The first allocation is made and its answer lost."""

    lost = 0

    async def allocate_attempt(
        self, run_id: UUID, *, expected: int, process: str, previous: AttemptOutcome
    ) -> int | None:
        made = await super().allocate_attempt(run_id, expected=expected, process=process, previous=previous)
        if not self.lost:
            self.lost += 1
            raise StoreUnavailable("the answer was lost")
        return made


def test_an_attempt_whose_answer_was_lost_is_recognised(now: Now) -> None:
    async def main() -> None:
        store = Lossy(Database(now))
        await new_run(store, str(RUN_ID))
        assert (await allocate(store, RUN_ID, this_process("test"), take_over=False)).attempt == 1

    play(main)


def test_texts_that_were_read_first_stand(store: MemoryStore) -> None:
    async def main() -> None:
        named = manifest("", promptFrom={"configMapKeyRef": {"name": "texts", "key": "prompt"}})
        info = await make_run(store, RUN_ID, named)
        for text in ("first", "second"):
            spec = await spec_of(
                store,
                info,
                lambda spec, text=text: spec.model_copy(update={"prompt": text, "prompt_from": None}),  # type: ignore[misc]
            )
            assert spec.prompt == "first"
        # Once an attempt was made, nobody has to have the texts any more.
        later = replace(info, run=replace(info.run, attempt=1))
        assert (await spec_of(store, later, lambda spec: pytest.fail("read again"))).prompt == "first"

    play(main)
