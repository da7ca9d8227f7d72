"""What a store promises about runs, levels, attempts, claims and looking."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import uuid4

from agentrun.log.store import AttemptOutcome, Levels, LogStore, RunRow
from tests.contract.scenarios import allocate, claimed_run, ended_run, log_row, new_run, scenario


class RunContract:
    """A subclass has the fixture `opener`."""

    # --- runs and levels

    @scenario
    async def test_the_first_resolved_definition_stands(self, store: LogStore) -> None:
        run_id = await new_run(store)
        assert await store.resolve(run_id, None) is None
        assert await store.resolve(run_id, b"first") == b"first"
        assert await store.resolve(run_id, None) == b"first"
        assert await store.resolve(run_id, b"second") == b"first"
        assert await store.resolve(uuid4(), b"none") is None

    @scenario
    async def test_a_created_run_reads_back_as_written_and_its_id_is_taken(self, store: LogStore) -> None:
        levels = Levels(generation=3, suspend=True, shutdown="Stop", budget='{"tokens": 1}')
        row = RunRow(
            run_id=uuid4(), owner="a/b", name="n\u00e4me", definition=b"\0\xff", digest="d", levels=levels
        )
        assert await store.create_run(row)
        info = await store.get_run(row.run_id)
        assert info is not None
        run = info.run
        assert (run.owner, run.name, run.definition, run.digest) == ("a/b", "n\u00e4me", b"\0\xff", "d")
        assert (run.levels, run.epoch, run.attempt, run.ended, run.ended_at) == (levels, 0, 0, False, None)
        assert run.created_at is not None and run.created_at.utcoffset() == timedelta(0)
        assert (info.last_attempt, info.summary) == (None, "")
        assert not await store.create_run(row)

    @scenario
    async def test_a_run_that_is_not_there_is_none_to_every_reader(self, store: LogStore) -> None:
        nobody = uuid4()
        assert await store.get_run(nobody) is None
        assert await store.look(nobody, attempt=0) is None
        assert await store.look(nobody, attempt=1) is None
        assert await store.attempts(nobody) == []
        assert await store.read_rows(nobody) == []
        assert await store.inbox(nobody) == []
        assert await store.get_blob(nobody, b"hash") is None
        assert await store.claim(nobody, attempt=1, claimer=b"me") is None
        assert await allocate(store, nobody, 0) is None
        assert not await store.set_levels(nobody, Levels(generation=1))
        assert not await store.close_attempt(nobody, 1, AttemptOutcome.CRASHED, "")
        assert not await store.reopen(log_row(nobody, 1))

    @scenario
    async def test_lists_show_the_newest_first_by_owner_up_to_a_limit(self, store: LogStore) -> None:
        prefix = f"{uuid4()}%_/"
        runs = []
        for number in range(3):
            runs.append(await new_run(store, owner=f"{prefix}{number}"))
            await asyncio.sleep(0.002)  # past the resolution of any clock
        await new_run(store, owner="somebody else")
        assert await allocate(store, runs[0], 0) == 1
        await store.put_summary(runs[0], epoch=1, head=1, summary='{"done": 1}')
        infos = await store.list_runs(owner_prefix=prefix)
        assert [info.run.run_id for info in infos] == runs[::-1]
        assert infos[-1] == await store.get_run(runs[0]) or infos[-1].summary == '{"done": 1}'
        assert infos[-1].last_attempt is not None and infos[-1].last_attempt.attempt == 1
        assert infos[0].last_attempt is None
        limited = await store.list_runs(owner_prefix=prefix, limit=2)
        assert [info.run.run_id for info in limited] == runs[:0:-1]
        last = limited[-1].run
        assert last.created_at is not None
        rest = await store.list_runs(owner_prefix=prefix, limit=2, before=(last.created_at, last.run_id))
        assert [info.run.run_id for info in rest] == runs[:1]

    @scenario
    async def test_levels_change_only_with_a_greater_generation(self, store: LogStore) -> None:
        run_id = await new_run(store, levels=Levels(generation=1))
        newer = Levels(generation=5, suspend=True, shutdown="Terminate", budget="{}")
        assert await store.set_levels(run_id, newer)
        assert not await store.set_levels(run_id, Levels(generation=5, suspend=False))
        assert not await store.set_levels(run_id, Levels(generation=4, suspend=False))
        look = await store.look(run_id, attempt=0)
        assert look is not None and look.levels == newer

    @scenario
    async def test_of_concurrent_level_writes_the_greatest_generation_stays(
        self, one: LogStore, two: LogStore
    ) -> None:
        run_id = await new_run(one)
        writes = [
            (one if number % 2 else two).set_levels(run_id, Levels(generation=number, budget=str(number)))
            for number in range(1, 11)
        ]
        await asyncio.gather(*writes)
        look = await two.look(run_id, attempt=0)
        assert look is not None and look.levels == Levels(generation=10, budget="10")

    # --- many runs at once, and another owner

    @scenario
    async def test_live_runs_are_those_of_an_owner_that_have_not_ended(self, store: LogStore) -> None:
        prefix = f"{uuid4()}%_/"
        fresh = await new_run(store, owner=prefix + "a", levels=Levels(generation=3, suspend=True))
        ended = await ended_run(store, owner=prefix + "b")
        await new_run(store, owner="somebody else")
        (standing,) = await store.live_runs(prefix)
        assert (standing.run_id, standing.owner, standing.attempt) == (fresh, prefix + "a", 0)
        assert (standing.generation, standing.suspend, standing.summary_head) == (3, True, 0)
        assert (standing.claimed, standing.outcome, standing.ended) == (False, None, False)
        assert [row.ended for row in await store.standings([ended])] == [True]

    @scenario
    async def test_a_standing_tells_of_the_newest_attempt_and_the_summary(self, store: LogStore) -> None:
        run_id = await claimed_run(store)
        await store.put_summary(run_id, epoch=1, head=7, summary="{}")
        (standing,) = await store.standings([run_id, uuid4()])
        assert (standing.attempt, standing.claimed, standing.outcome) == (1, True, None)
        assert standing.summary_head == 7
        assert await store.close_attempt(run_id, 1, AttemptOutcome.PAUSED, "Suspended")
        assert (await store.standings([run_id]))[0].outcome is AttemptOutcome.PAUSED
        assert await allocate(store, run_id, 1) == 2
        (standing,) = await store.standings([run_id])
        assert (standing.attempt, standing.claimed, standing.outcome) == (2, False, None)
        assert await store.standings([]) == []

    @scenario
    async def test_a_run_is_adopted_from_the_owner_that_it_has(self, one: LogStore, two: LogStore) -> None:
        run_id = await new_run(one, owner="old", levels=Levels(generation=9, suspend=True))
        levels = Levels(generation=4, budget="{}")
        results = await asyncio.gather(
            *(
                store.adopt(run_id, owner="old", new_owner=name, levels=levels)
                for store, name in ((one, "new"), (two, "newer"))
            )
        )
        assert sorted(results) == [False, True]
        info = await one.get_run(run_id)
        assert info is not None and info.run.levels == levels
        assert info.run.owner == ("new" if results[0] else "newer")
        assert not await one.adopt(uuid4(), owner="old", new_owner="new", levels=levels)

    @scenario
    async def test_a_run_is_read_with_the_stores_clock(self, store: LogStore) -> None:
        run_id = await claimed_run(store)
        info = await store.get_run(run_id)
        assert info is not None and info.last_attempt is not None
        assert info.read_at is not None and info.run.created_at is not None
        assert info.last_attempt.started_at is not None
        assert info.run.created_at <= info.last_attempt.started_at <= info.read_at

    # --- attempts

    @scenario
    async def test_an_attempt_is_allocated_at_the_expected_number_only(self, store: LogStore) -> None:
        run_id = await new_run(store)
        assert await allocate(store, run_id, 1) is None
        assert await allocate(store, run_id, 0) == 1
        assert await allocate(store, run_id, 0) is None
        assert await allocate(store, run_id, 1) == 2
        first, second = await store.attempts(run_id)
        assert (first.attempt, first.outcome, first.process) == (1, AttemptOutcome.DISRUPTED, '{"pod": "p"}')
        assert first.ended_at is not None and not first.claimed
        assert (second.attempt, second.outcome, second.ended_at, second.reason) == (2, None, None, "")
        assert second.started_at is not None and 0 <= second.confirmed_age_seconds < 30
        info = await store.get_run(run_id)
        assert info is not None and info.run.attempt == 2
        assert info.last_attempt is not None and info.last_attempt.attempt == 2

    @scenario
    async def test_an_outcome_that_stands_is_not_changed_by_the_next_attempt(self, store: LogStore) -> None:
        run_id = await new_run(store)
        assert await allocate(store, run_id, 0) == 1
        assert await store.close_attempt(run_id, 1, AttemptOutcome.PAUSED, "suspended")
        assert not await store.close_attempt(run_id, 1, AttemptOutcome.CRASHED, "late")
        assert await allocate(store, run_id, 1) == 2
        first = (await store.attempts(run_id))[0]
        assert (first.outcome, first.reason) == (AttemptOutcome.PAUSED, "suspended")
        assert not await store.close_attempt(run_id, 3, AttemptOutcome.CRASHED, "no such attempt")

    @scenario
    async def test_of_two_that_allocate_the_same_attempt_one_wins(self, one: LogStore, two: LogStore) -> None:
        for _ in range(10):
            run_id = await new_run(one)
            results = await asyncio.gather(
                *(allocate(store, run_id, 0) for store in (one, two, one, two, one, two))
            )
            assert sorted(str(result) for result in results) == ["1"] + ["None"] * 5
            assert [attempt.attempt for attempt in await two.attempts(run_id)] == [1]

    # --- claim and look

    @scenario
    async def test_a_claim_raises_the_epoch_and_a_repeated_claim_does_not(self, store: LogStore) -> None:
        run_id = await new_run(store)
        assert await store.claim(run_id, attempt=0, claimer=b"me") is None
        assert await store.claim(run_id, attempt=1, claimer=b"me") is None
        assert await allocate(store, run_id, 0) == 1
        assert await store.claim(run_id, attempt=1, claimer=b"me") == 1
        assert await store.claim(run_id, attempt=1, claimer=b"me") == 1
        assert (await store.attempts(run_id))[0].claimed
        assert await store.claim(run_id, attempt=1, claimer=b"another") == 2
        look = await store.look(run_id, attempt=1)
        assert look is not None and (look.epoch, look.attempt) == (2, 1)

    @scenario
    async def test_an_older_attempt_cannot_claim(self, store: LogStore) -> None:
        run_id = await claimed_run(store)
        assert await allocate(store, run_id, 1) == 2
        assert await store.claim(run_id, attempt=1, claimer=b"me") is None
        assert await store.claim(run_id, attempt=3, claimer=b"me") is None

    @scenario
    async def test_a_newer_attempt_is_a_newer_epoch_also_to_the_same_claimer(self, store: LogStore) -> None:
        # Else a task of the older attempt in the same process would not be fenced off.
        run_id = await claimed_run(store)
        assert await allocate(store, run_id, 1) == 2
        assert await store.claim(run_id, attempt=2, claimer=b"me") == 2

    @scenario
    async def test_of_concurrent_claims_each_claimer_has_an_epoch_of_its_own(
        self, one: LogStore, two: LogStore
    ) -> None:
        run_id = await new_run(one)
        assert await allocate(one, run_id, 0) == 1
        epochs = await asyncio.gather(
            *(
                (one if number % 2 else two).claim(run_id, attempt=1, claimer=b"%d" % number)
                for number in range(8)
            )
        )
        assert sorted(epoch or 0 for epoch in epochs) == list(range(1, 9))

    @scenario
    async def test_looks_claims_and_allocations_at_once_break_nothing(
        self, one: LogStore, two: LogStore, three: LogStore
    ) -> None:
        run_id = await new_run(one)
        for number in range(15):
            allocated, rival, _, _ = await asyncio.gather(
                allocate(one, run_id, number),
                allocate(two, run_id, number),
                three.look(run_id, attempt=number),
                three.close_attempt(run_id, number, AttemptOutcome.FENCED, "race"),
            )
            assert {allocated, rival} == {None, number + 1}
            epoch, _, _ = await asyncio.gather(
                one.claim(run_id, attempt=number + 1, claimer=b"c%d" % number),
                two.look(run_id, attempt=number + 1),
                three.look(run_id, attempt=number + 1),
            )
            assert epoch == number + 1
        attempts = await two.attempts(run_id)
        assert [attempt.attempt for attempt in attempts] == list(range(1, 16))
        assert all(attempt.claimed for attempt in attempts)
        assert all(attempt.outcome is not None for attempt in attempts[:-1])

    @scenario
    async def test_an_ended_run_is_neither_allocated_nor_claimed(self, store: LogStore) -> None:
        run_id = await ended_run(store)
        assert await allocate(store, run_id, 1) is None
        assert await store.claim(run_id, attempt=1, claimer=b"me") is None
        look = await store.look(run_id, attempt=1)
        assert look is not None and look.ended and look.head == 2

    @scenario
    async def test_a_look_confirms_its_own_attempt_while_that_has_no_outcome(self, store: LogStore) -> None:
        run_id = await new_run(store)
        assert await allocate(store, run_id, 0) == 1

        async def age() -> float:
            return (await store.attempts(run_id))[0].confirmed_age_seconds

        await asyncio.sleep(0.05)
        assert await store.look(run_id, attempt=0) is not None
        assert await store.look(run_id, attempt=2) is not None
        assert await age() >= 0.05
        assert await store.look(run_id, attempt=1) is not None
        assert await age() < 0.05
        assert await store.close_attempt(run_id, 1, AttemptOutcome.FAILED, "done")
        await asyncio.sleep(0.05)
        assert await store.look(run_id, attempt=1) is not None
        assert await age() >= 0.05

    @scenario
    async def test_a_look_names_the_server_as_the_token_does(self, one: LogStore, two: LogStore) -> None:
        run_id = await new_run(one)
        look = await two.look(run_id, attempt=0)
        assert look is not None and look.head == 0
        assert look.server == (await one.connect()).server == (await two.connect()).server

    # --- reopening

    @scenario
    async def test_reopening_takes_the_next_place_and_raises_epoch_and_attempt(self, store: LogStore) -> None:
        run_id = await ended_run(store)
        for seq in (1, 2, 4):
            assert not await store.reopen(log_row(run_id, seq, b"reopened"))
        assert await store.reopen(log_row(run_id, 3, b"reopened"))
        assert (await store.read_rows(run_id))[-1] == (3, b"reopened")
        look = await store.look(run_id, attempt=1)
        assert look is not None and (look.epoch, look.attempt, look.ended, look.head) == (2, 2, False, 3)
        info = await store.get_run(run_id)
        assert info is not None and info.run.ended_at is None
        assert info.last_attempt is not None and info.last_attempt.attempt == 1
        assert await store.claim(run_id, attempt=1, claimer=b"me") is None
        assert await store.claim(run_id, attempt=2, claimer=b"me") is None, "nobody was given attempt 2"
        assert await allocate(store, run_id, 2) == 3
        assert await store.claim(run_id, attempt=3, claimer=b"me") == 3

    @scenario
    async def test_a_run_that_has_not_ended_is_not_reopened(self, store: LogStore) -> None:
        run_id = await claimed_run(store)
        assert not await store.reopen(log_row(run_id, 1, b"reopened"))
        assert await store.read_rows(run_id) == []
        look = await store.look(run_id, attempt=1)
        assert look is not None and (look.epoch, look.attempt) == (1, 1)

    @scenario
    async def test_of_two_that_reopen_one_wins(self, one: LogStore, two: LogStore) -> None:
        run_id = await ended_run(one)
        results = await asyncio.gather(
            *(store.reopen(log_row(run_id, 3, b"reopened")) for store in (one, two, one, two))
        )
        assert sorted(results) == [False, False, False, True]
        look = await one.look(run_id, attempt=0)
        assert look is not None and (look.epoch, look.head) == (2, 3)
