"""Objects that go and come: cancelled, parked, adopted, never mixed up."""

from __future__ import annotations

import asyncio

import pytest

from agentrun.log.errors import RunEnded
from agentrun.proto import log_pb2 as pb
from tests.integration.operator.bench import Bench, manifest
from tests.integration.operator.conftest import Play
from tests.integration.operator.kubelet import end_pod

GIVEN = "11111111-2222-4333-8444-555555555555"


def test_deleting_an_object_cancels_its_run(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest())
        runner = await b.runner()
        await b.phase("Running")
        b.api.remove("agentruns", "hello")
        await asyncio.sleep(0.3)
        look = await b.store.look(runner.run_id, attempt=0)
        assert look is not None and look.levels.shutdown == "Stop" and not look.ended
        await runner.park("Terminated")
        end_pod(b.api, runner.pod, 75)
        history = await b.until_ended(runner.run_id)
        assert history.final is not None and history.final.final.outcome == pb.OUTCOME_CANCELLED

    play(scenario)


def test_deleting_an_object_with_a_given_id_parks_its_run_and_another_adopts_it(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest(runID=GIVEN))
        runner = await b.runner()
        await runner.step("one")
        b.api.remove("agentruns", "hello")
        await asyncio.sleep(0.3)
        await runner.park("Suspended")
        end_pod(b.api, runner.pod, 75)
        await asyncio.sleep(1.5)
        info = await b.store.get_run(runner.run_id)
        assert info is not None and info.run.levels.suspend and not info.run.ended
        b.api.put("agentruns", manifest(runID=GIVEN))
        second = await b.runner(2)
        assert second.log is not None and "one" in second.log.history.done
        await b.phase("Running", attempt=2)

    play(scenario)


def test_an_object_adopts_a_finished_log_and_spends_nothing(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest(runID=GIVEN))
        runner = await b.runner()
        await runner.end(pb.OUTCOME_SUCCEEDED, answer="42")
        end_pod(b.api, runner.pod, 0)
        await b.phase("Succeeded")
        b.api.remove("agentruns", "hello")
        await b.until(lambda: not b.api.pods_of("hello"))
        b.api.put("agentruns", manifest(runID=GIVEN, budget={"turns": 7}))
        status = await b.phase("Succeeded")
        assert status["result"]["preview"] == "42"
        assert not b.api.pods_of("hello")
        b.api.remove("agentruns", "hello")
        b.api.put("agentruns", manifest(runID=GIVEN, prompt="something else"))
        await b.phase("Pending", "DefinitionDiffers")
        b.api.put("agentruns", manifest("other", runID=GIVEN))
        await b.phase("Pending", "RunIDTaken", name="other")

    play(scenario)


def test_the_same_name_with_another_uid_is_another_run(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest())
        old = await b.runner()
        await old.step("one")
        await b.phase("Running")
        b.api.remove("agentruns", "hello")
        b.api.put("agentruns", manifest(prompt="something else"))
        await b.until(lambda: len(b.api.pods_of("hello")) == 2)
        new_pod = next(p for p in b.api.pods_of("hello") if p["metadata"]["name"] != old.pod)
        status = await b.phase("Pending", "Starting")
        assert status["runID"] != str(old.run_id) and status["pod"]["name"] == new_pod["metadata"]["name"]
        end_pod(b.api, old.pod, 137)  # the old one's late end is no news of the new one
        await b.until_ended(old.run_id)
        assert b.status()["phase"] == "Pending" and b.status()["failures"] == 0

    play(scenario)


def test_a_run_of_the_command_is_never_touched(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        from uuid import UUID

        from agentrun.log.store import RunRow

        row = RunRow(run_id=UUID(GIVEN), owner="local/hello", name="x", definition=b"{}", digest="d")
        elsewhere = RunRow(
            run_id=UUID(GIVEN.replace("1", "9")),
            owner="other/demo/gone/some-uid",
            name="x",
            definition=b"{}",
            digest="d",
        )
        await b.store.create_run(row)
        await b.store.create_run(elsewhere)
        b.api.put("agentruns", manifest(runID=GIVEN))
        await b.phase("Pending", "RunIDTaken")
        await asyncio.sleep(2.5)
        for run in (row, elsewhere):
            info = await b.store.get_run(run.run_id)
            assert info is not None and info.run.attempt == 0 and not info.run.levels.shutdown

    play(scenario)


def test_an_object_that_waits_for_a_finalizer_starts_nothing_more(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest())
        runner = await b.runner()
        await b.phase("Running")

        def going(body: dict[str, object]) -> None:
            metadata = body["metadata"]
            assert isinstance(metadata, dict)
            metadata |= {"deletionTimestamp": "2026-11-30T12:00:00Z", "finalizers": ["x.example/y"]}
            metadata["generation"] += 1

        b.api.edit("agentruns", "hello", going)
        await b.phase("Pausing", "Stopping")
        b.api.remove("pods", runner.pod)
        end_pod(b.api, runner.pod, 75)
        await b.phase("Cancelled")
        assert not b.api.pods_of("hello")

    play(scenario)


def test_what_happened_while_the_operator_was_away_is_seen_to_after(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        names = ("deleted", "finished", "failed", "suspended", "evicted", "given")
        for name in names:
            b.api.put("agentruns", manifest(name, **({"runID": GIVEN} if name == "given" else {})))
        runners = {name: await b.runner(1, name) for name in names}
        for name in names:
            await b.phase("Running", name=name)
        await b.stop()
        for name in ("deleted", "given"):
            b.api.remove("agentruns", name)
            b.api.vanish("pods", runners[name].pod)
        await runners["finished"].end(pb.OUTCOME_SUCCEEDED)
        end_pod(b.api, runners["finished"].pod, 0)
        await runners["failed"].end(pb.OUTCOME_FAILED, "LoopDetected")
        b.api.remove("pods", runners["failed"].pod, grace=0)
        b.api.edit("agentruns", "suspended", lambda body: body["spec"].update(suspend=True))
        end_pod(b.api, runners["suspended"].pod, 137)
        b.api.vanish("pods", runners["evicted"].pod)
        await b.start()
        await b.phase("Succeeded", name="finished")
        await b.phase("Failed", "LoopDetected", name="failed")
        await b.phase("Paused", "Suspended", name="suspended")
        await b.runner(2, "evicted")
        assert (await b.phase("Running", name="evicted"))["disruptions"] == 1
        history = await b.until_ended(runners["deleted"].run_id)
        assert history.final is not None and history.final.final.outcome == pb.OUTCOME_CANCELLED

        async def parked() -> bool:
            info = await b.store.get_run(runners["given"].run_id)
            return info is not None and info.run.levels.suspend and not info.run.ended

        await b.until_async(parked)
        with pytest.raises(RunEnded):
            await runners["deleted"].claim()

    play(scenario)
