"""Nodes, namespaces and objects that go while runs live in them."""

from __future__ import annotations

import asyncio
import json
import logging
from uuid import UUID

import pytest
from aiohttp import web

from agentrun.log.errors import Fenced
from agentrun.proto import log_pb2 as pb
from tests.integration.operator.bench import Bench, labelled, manifest
from tests.integration.operator.conftest import Play
from tests.integration.operator.fake_api import Body, refuse
from tests.integration.operator.kubelet import end_pod, set_status

GIVEN = "22222222-2222-4333-8444-555555555555"

LEFT_BEHIND = {
    "exitCode": 137,
    "reason": "ContainerStatusUnknown",
    "message": "The container could not be located when the pod was terminated",
    "startedAt": "0001-01-01T00:00:00Z",
    "finishedAt": "0001-01-01T00:00:00Z",
}


@pytest.mark.parametrize("deleted", [False, True])
def test_what_a_lost_node_left_behind_is_a_disruption(play: Play, deleted: bool) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest())
        runner = await b.runner()
        await runner.step("one")
        await b.phase("Running")
        odd = {
            "name": "runner",
            "state": {"waiting": {"reason": "ContainerCreating"}},
            "lastState": {"terminated": LEFT_BEHIND},
        }
        if deleted:
            b.api.remove("pods", runner.pod)
        set_status(b.api, runner.pod, {"phase": "Running", "containerStatuses": [odd]})
        second = await b.runner(2)
        assert second.log is not None and "one" in second.log.history.done
        status = await b.phase("Running", attempt=2)
        assert (status["disruptions"], status["failures"]) == (1, 0)

    play(scenario)


def test_a_node_that_is_deleted_is_shown_and_its_run_goes_on_elsewhere(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentrun_operator.observe.SILENT_SECONDS", 0.3)

    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest(terminationGracePeriodSeconds=600))
        runner = await b.runner()
        await b.phase("Running")
        b.api.vanish("nodes", "node-1")
        await asyncio.sleep(0.4)  # the runner says nothing any more
        b.api.edit("pods", runner.pod, labelled(1))
        status = await b.phase("Running", "NodeUnreachable")
        assert "node-1" in status["message"]
        await b.runner(2, node="node-2")
        status = await b.phase("Running", attempt=2)
        assert (status["disruptions"], status["failures"]) == (1, 0)
        with pytest.raises(Fenced):
            await runner.step("late")

    play(scenario)


def test_a_pod_that_is_collected_with_its_node_is_replaced(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest())
        runner = await b.runner()
        await b.phase("Running")
        b.api.vanish("nodes", "node-1")
        condition = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}
        set_status(b.api, runner.pod, {"phase": "Failed", "conditions": [condition]})
        b.api.vanish("pods", runner.pod)
        await b.runner(2, node="node-2")
        status = await b.phase("Running", attempt=2)
        assert (status["disruptions"], status["failures"]) == (1, 0)

    play(scenario)


def test_a_namespace_that_goes_with_its_runs_is_asked_once_a_run_and_the_runs_are_cancelled(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[str] = []

    async def terminating(request: web.Request, body: Body) -> web.StreamResponse | None:
        if request.method != "POST":
            return None
        if request.path.endswith("/pods"):
            asked.append(body["metadata"]["name"])
        return refuse(
            403,
            "Forbidden",
            f'{request.path.rpartition("/")[2]} "x" is forbidden: unable to create new content in namespace '
            "demo because it is being terminated",
            causes=[{"reason": "NamespaceTerminating"}],
        )

    async def scenario(b: Bench) -> None:
        names = ("one", "two", "three")
        for name in names:
            b.api.put("agentruns", manifest(name))
        runners = {name: await b.runner(1, name) for name in names}
        for name in names:
            await b.phase("Running", name=name)
        caplog.clear()
        b.api.faults.append(terminating)
        for runner in runners.values():  # pods may go before the objects that own them
            b.api.vanish("pods", runner.pod)
        await b.until(lambda: len(asked) == len(names))
        await asyncio.sleep(2.5)  # two sweeps
        assert len(asked) == len(names)
        for name in names:
            b.api.remove("agentruns", name)
        for runner in runners.values():
            history = await b.until_ended(runner.run_id)
            assert history.final is not None and history.final.final.outcome == pb.OUTCOME_CANCELLED
        loud = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert len(loud) <= 2 * len(names), [record.getMessage() for record in loud]

    play(scenario)
    assert len(asked) == 3


def test_the_same_again_a_day_later_is_another_run(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        ids = []
        for _ in range(2):
            b.api.put("agentruns", manifest())
            runner = await b.runner()
            assert runner.log is not None and not runner.log.history.done
            ids.append(runner.run_id)
            await runner.step("one")
            await runner.end(pb.OUTCOME_SUCCEEDED, answer="done")
            end_pod(b.api, runner.pod, 0)
            status = await b.phase("Succeeded")
            assert (status["runID"], status["attempt"]) == (str(runner.run_id), 1)
            b.api.remove("agentruns", "hello")
            await b.until(lambda: not b.api.pods_of("hello"))
        assert ids[0] != ids[1]

    play(scenario)


def test_another_prompt_under_the_same_name_starts_from_nothing_beside_the_old_pod(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest())
        old = await b.runner()
        await old.step("one")
        await b.phase("Running")
        b.api.remove("agentruns", "hello")  # its pod has its grace
        made = b.api.put("agentruns", manifest(prompt="something else"))
        new_id = UUID(made["metadata"]["uid"])

        def new_pod() -> Body | None:
            return next((pod for pod in b.api.pods_of("hello") if pod["metadata"]["name"] != old.pod), None)

        pod = await b.until(new_pod)
        assert b.api.get("pods", old.pod) is not None
        info = await b.store.get_run(new_id)
        assert info is not None and json.loads(info.run.definition)["prompt"] == "something else"
        assert await b.store.read_rows(new_id) == []
        await old.park("Terminated")  # the old one drains under its own id
        end_pod(b.api, old.pod, 75)
        history = await b.until_ended(old.run_id)
        assert "one" in history.done
        status = await b.phase("Pending", "Starting")
        assert (status["runID"], status["pod"]["name"]) == (str(new_id), pod["metadata"]["name"])
        assert (status["attempt"], status["disruptions"], status["failures"]) == (1, 0, 0)

    play(scenario)


def test_a_created_again_object_is_kept_for_its_time_and_not_deleted_at_once(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest(runID=GIVEN))
        runner = await b.runner()
        await runner.end(pb.OUTCOME_SUCCEEDED, answer="42")
        end_pod(b.api, runner.pod, 0)
        await b.phase("Succeeded")
        b.api.remove("agentruns", "hello")
        await asyncio.sleep(4.5)  # longer ago than the time to live that the next one has
        b.api.put("agentruns", manifest(runID=GIVEN, ttlSecondsAfterFinished=4))
        status = await b.phase("Succeeded")
        assert status["result"]["preview"] == "42"
        await asyncio.sleep(2.5)  # at once would be a second behind its status
        assert b.api.get("agentruns", "hello") is not None
        await b.until(lambda: b.api.get("agentruns", "hello") is None)
        assert not b.api.pods_of("hello")

    play(scenario)
