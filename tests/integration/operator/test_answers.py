"""Runs that wait for a person: parked without a pod, told, answered either way, gone on with."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentrun.log.asks import answer_row, read_answer
from agentrun.proto import log_pb2 as pb
from tests.integration.operator.bench import Bench, manifest
from tests.integration.operator.conftest import Play
from tests.integration.operator.fake_api import Body
from tests.integration.operator.kubelet import Runner, end_pod


def annotate(b: Bench, **annotations: str) -> None:
    def change(body: Body) -> None:
        found = body["metadata"].setdefault("annotations", {})
        found.update({f"agentrun.dev/{name}": text for name, text in annotations.items()})

    b.api.edit("agentruns", "hello", change)


async def parked(b: Bench, *nodes: str) -> tuple[Runner, list[str]]:
    """A run whose calls wait, and their ids."""
    b.api.put("agentruns", manifest())
    runner = await b.runner()
    ids = [await runner.ask(node) for node in nodes]
    await runner.park("ApprovalRequired", "calls wait")
    end_pod(b.api, runner.pod, 75)
    await b.phase("Paused", "ApprovalRequired")
    await b.until(lambda: not b.api.pods_of("hello"))
    return runner, ids


def reasons(b: Bench) -> list[str]:
    return [event["reason"] for event in b.api.events_about("hello")]


async def ended(b: Bench, attempt: int, *consumed: str) -> None:
    """The next pod uses the answers and ends the run."""
    runner = await b.runner(attempt)
    await runner.step("call", consumed=consumed)
    await runner.end(pb.OUTCOME_SUCCEEDED)
    end_pod(b.api, runner.pod, 0)
    assert "waiting" not in await b.phase("Succeeded")


@pytest.mark.parametrize("approve", [True, False])
def test_an_annotation_answers_and_the_run_goes_on(play: Play, approve: bool) -> None:
    async def scenario(b: Bench) -> None:
        runner, (id_,) = await parked(b, "call-1-0")
        status = b.status()
        assert status["waiting"]["count"] == 1
        assert status["waiting"]["calls"] == [
            {"id": id_, "tool": "pay", "reason": "ApprovalRequired", "arguments": '{"n": 1}'}
        ]
        annotate(b, **({"approve": id_} if approve else {"deny": f"{id_}=too much"}))
        await ended(b, 2, id_)
        (row,) = await b.store.inbox(runner.run_id)
        answer = read_answer(row)
        assert (answer.decision == pb.DECISION_APPROVE) is approve
        assert answer.by.startswith("annotation agentrun.dev/") and "demo/hello" in answer.by
        assert answer.reason == ("" if approve else "too much")
        told = "Approved" if approve else "Denied"
        assert [r for r in reasons(b) if r in ("ApprovalRequired", "Approved", "Denied", "Paused")] == [
            "ApprovalRequired",
            told,
        ]
        body = b.api.get("agentruns", "hello")
        assert body is not None and len(body["metadata"]["annotations"]) == 1, "it is the user's"

    play(scenario)


def test_an_answer_of_the_command_starts_a_pod_within_a_moment(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        runner, (id_,) = await parked(b, "call-1-0")
        assert await b.store.post(runner.run_id, answer_row(id_, approve=True, by="ann@desk"))
        began = asyncio.get_running_loop().time()
        await b.store.notify([runner.run_id])
        await b.pod(2)
        assert asyncio.get_running_loop().time() - began < 3
        await ended(b, 2, id_)

    play(scenario)


def test_an_answer_whose_hint_was_lost_is_found_by_the_sweep(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        runner, (id_,) = await parked(b, "call-1-0")
        assert await b.store.post(runner.run_id, answer_row(id_, approve=True, by="ann@desk"))
        await ended(b, 2, id_)

    play(scenario)


def test_rows_and_annotations_that_fit_no_call_start_nothing(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        runner, (id_,) = await parked(b, "call-1-0")
        annotate(b, approve="call-1-0, call-9-9-00000000")
        for stray in ("call-1-0", "turn-2"):
            assert await b.store.post(runner.run_id, answer_row(stray, approve=True, by="eve"))
        await b.store.notify([runner.run_id])
        await b.until(lambda: "no call waits under the id" in b.status().get("message", "") or None)
        await asyncio.sleep(2.5)  # more than two sweeps
        assert [pod["metadata"]["name"] for pod in b.api.pods_of("hello")] == []
        assert (await b.store.get_run(runner.run_id)).run.attempt == 1  # type: ignore[union-attr]
        annotate(b, approve=id_)
        await ended(b, 2, id_)

    play(scenario)


def test_an_annotation_that_comes_with_another_object_of_the_name_approves_nothing(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        _, (id_,) = await parked(b, "call-1-0")
        body: dict[str, Any] = manifest()
        body["metadata"]["annotations"] = {"agentrun.dev/approve": id_}
        b.api.remove("agentruns", "hello")
        await b.until(lambda: b.api.get("agentruns", "hello") is None or None)
        b.api.put("agentruns", body)
        runner = await b.runner()
        other = await runner.ask("call-1-0")
        assert other != id_
        await runner.park("ApprovalRequired", "calls wait")
        end_pod(b.api, runner.pod, 75)
        await b.phase("Paused", "ApprovalRequired")
        await asyncio.sleep(1.5)
        assert await b.store.inbox(runner.run_id) == []
        assert b.api.pods_of("hello") == []

    play(scenario)


def test_a_live_runner_is_answered_too_and_two_operators_post_once(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        await b.start()
        b.api.put("agentruns", manifest())
        runner = await b.runner()
        id_ = await runner.ask("call-1-0")
        await b.until(lambda: b.status().get("waiting"))
        assert b.status()["phase"] == "Running"
        annotate(b, approve=id_)

        async def posted() -> bool:
            return bool(await b.store.inbox(runner.run_id))

        await b.until_async(posted)
        await runner.step("call", consumed=[id_])
        await runner.end(pb.OUTCOME_SUCCEEDED)
        end_pod(b.api, runner.pod, 0)
        await b.phase("Succeeded")
        assert len(await b.store.inbox(runner.run_id)) == 1

    play(scenario)


def test_a_run_that_waits_can_be_cancelled_and_suspended(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        runner, (id_,) = await parked(b, "call-1-0")
        b.api.edit("agentruns", "hello", lambda body: body["spec"].update(suspend=True))
        await b.phase("Paused", "Suspended")
        annotate(b, approve=id_)

        async def posted() -> bool:
            return bool(await b.store.inbox(runner.run_id))

        await b.until_async(posted)
        assert b.api.pods_of("hello") == [], "suspended, whatever was answered"
        b.api.edit("agentruns", "hello", lambda body: body["spec"].update(suspend=False))
        await b.pod(2)
        b.api.edit("agentruns", "hello", lambda body: body["spec"].update(shutdown="Stop"))
        second = await b.pod(2)
        end_pod(b.api, second["metadata"]["name"], 75)
        await b.phase("Cancelled")

    play(scenario)
