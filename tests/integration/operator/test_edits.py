"""Edits of a run at moments at which they hurt: the last one counts, and what ended stays ended."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from agentrun.proto import log_pb2 as pb
from tests.integration.operator.bench import Bench, labelled, manifest, wants
from tests.integration.operator.conftest import Play
from tests.integration.operator.fake_api import Body
from tests.integration.operator.kubelet import end_pod, set_status

SWEEPS_SECONDS = 1.5
"""A sweep and a half: what it could find is found."""


def told(b: Bench, reason: str) -> bool:
    return reason in [event["reason"] for event in b.api.events_about("hello")]


def pods_made(b: Bench) -> int:
    return sum((write.verb, write.resource) == ("create", "pods") for write in b.api.writes)


def test_a_suspend_that_is_taken_back_before_the_claim_costs_a_pod_and_no_disruption(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest())
        name = (await b.pod())["metadata"]["name"]
        b.api.edit("pods", name, lambda pod: pod["spec"].update(nodeName="node-1"))
        scheduled = [{"type": "PodScheduled", "status": "True"}]
        set_status(b.api, name, {"phase": "Pending", "conditions": scheduled})
        b.api.edit("agentruns", "hello", wants(suspend=True))
        await b.until(
            lambda: "deletionTimestamp" in (b.api.get("pods", name) or {"metadata": {}})["metadata"]
        )
        b.api.edit("agentruns", "hello", wants(suspend=False))
        await b.runner(2)
        b.api.vanish("pods", name)
        status = await b.phase("Running", attempt=2)
        await asyncio.sleep(SWEEPS_SECONDS)
        assert (status["disruptions"], status["failures"], pods_made(b)) == (0, 0, 2)
        assert not told(b, "Disrupted")

    play(scenario)


def test_a_suspend_that_is_taken_back_while_the_runner_heeds_it_is_no_disruption(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest())
        runner = await b.runner()
        await b.phase("Running")
        b.api.edit("agentruns", "hello", wants(suspend=True))
        await b.phase("Pausing", "Suspending")
        b.api.edit("agentruns", "hello", wants(suspend=False))
        await runner.park("Suspended")
        end_pod(b.api, runner.pod, 75)
        await b.runner(2)
        status = await b.phase("Running", attempt=2)
        assert (status["disruptions"], status["failures"], pods_made(b)) == (0, 0, 2)

    play(scenario)


@pytest.mark.parametrize("milliseconds", [0, 5, 20, 100])
def test_a_suspend_for_a_moment_right_behind_the_creation_leaves_no_trace(
    play: Play, milliseconds: int
) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest())
        for suspend in (True, False):
            await asyncio.sleep(milliseconds / 1000)
            b.api.edit("agentruns", "hello", wants(suspend=suspend))
            b.api.edit("agentruns", "hello", labelled(milliseconds))
        await b.until(
            lambda: (
                b.api.pods_of("hello")
                and b.status().get("observedGeneration") == 3
                and b.status()["phase"] == "Pending"
            )
        )
        newest = b.status()["attempt"]
        await b.runner(newest)
        status = await b.phase("Running")
        assert (status["disruptions"], status["failures"]) == (0, 0)
        assert pods_made(b) <= 2 and len(b.api.writes_about("hello")) < 20

    play(scenario)


def test_a_shutdown_that_comes_behind_the_final_record_changes_nothing(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest())
        runner = await b.runner()
        await b.phase("Running")
        await runner.end(pb.OUTCOME_SUCCEEDED, answer="42")
        b.api.edit("agentruns", "hello", wants(shutdown="Terminate"))
        end_pod(b.api, runner.pod, 143)
        status = await b.phase("Succeeded", "Completed")
        await asyncio.sleep(SWEEPS_SECONDS)
        after = b.status()
        assert (after["phase"], after["completionTime"]) == ("Succeeded", status["completionTime"])
        assert (after["result"]["preview"], after["observedGeneration"]) == ("42", 2)

    play(scenario)


@pytest.mark.parametrize("code", [143, 137])
def test_a_cancelled_run_stays_so_whatever_its_pod_says_later(play: Play, code: int) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest(podRetentionPolicy="Always"))
        runner = await b.runner()
        await b.phase("Running")
        await b.stop()
        # All of it is seen at once, and the pod's end first.
        end_pod(b.api, runner.pod, code)
        b.api.edit("agentruns", "hello", wants(shutdown="Stop"))
        await b.start()
        status = await b.phase("Cancelled", "Cancelled")
        for number in range(3):
            b.api.edit("pods", runner.pod, labelled(number))
            b.api.edit("agentruns", "hello", labelled(number))
        await asyncio.sleep(SWEEPS_SECONDS)
        after = b.status()
        assert (after["phase"], after["completionTime"]) == ("Cancelled", status["completionTime"])
        assert pods_made(b) == 1

    play(scenario)


def test_an_edit_of_a_run_that_has_ended_is_seen_and_nothing_begins_anew(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest())
        runner = await b.runner()
        await runner.end(pb.OUTCOME_SUCCEEDED)
        end_pod(b.api, runner.pod, 0)
        status = await b.phase("Succeeded")
        b.api.edit("agentruns", "hello", wants(ttlSecondsAfterFinished=3600, budget={"turns": 3}))
        await b.until(lambda: b.status()["observedGeneration"] == 2)
        after = b.status()
        assert (after["phase"], after["completionTime"]) == ("Succeeded", status["completionTime"])
        assert {condition["observedGeneration"] for condition in after["conditions"]} == {2}
        assert pods_made(b) == 1

    play(scenario)


def test_a_run_whose_requests_hang_holds_up_no_other_one(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        never = asyncio.Event()

        async def hang(request: web.Request, body: Body) -> web.StreamResponse | None:
            name = str(body.get("metadata", {}).get("name", ""))
            if request.method == "POST" and request.path.endswith("/pods") and name.startswith("slow"):
                await never.wait()
            return None

        b.api.faults.append(hang)
        b.api.put("agentruns", manifest("slow"))
        names = [f"run-{number}" for number in range(10)]
        for name in names:
            b.api.put("agentruns", manifest(name))
        for name in names:
            runner = await b.runner(1, name)
            await runner.end(pb.OUTCOME_SUCCEEDED)
            end_pod(b.api, runner.pod, 0)
        for name in names:
            await b.phase("Succeeded", name=name)
        assert not b.api.pods_of("slow")
        b.api.faults.clear()
        never.set()
        await b.pod(1, "slow")

    play(scenario)
