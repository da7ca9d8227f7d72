"""Runs from apply to their end, with the operator whole and everything around it played."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from agentrun.log.errors import Fenced
from agentrun.proto import log_pb2 as pb
from agentrun_operator.crd_status import RunStatus
from tests.integration.operator.bench import Bench, manifest, wants
from tests.integration.operator.conftest import Play
from tests.integration.operator.fake_api import Body, refuse
from tests.integration.operator.kubelet import Runner, end_pod, set_status, start_pod

WRITES_MAX = 8
SUCCEEDED, FAILED = pb.OUTCOME_SUCCEEDED, pb.OUTCOME_FAILED


def test_an_ordinary_run_costs_at_most_eight_writes_and_tells_its_story(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest())
        pod = await b.pod()
        await b.phase("Pending", "Starting")
        # What a kubelet does on the way to a running container is not worth a write.
        name = pod["metadata"]["name"]
        scheduled = [{"type": "PodScheduled", "status": "True"}]
        set_status(b.api, name, {"phase": "Pending", "conditions": scheduled})
        waiting = {"name": "runner", "state": {"waiting": {"reason": "ContainerCreating"}}}
        set_status(b.api, name, {"phase": "Pending", "conditions": scheduled, "containerStatuses": [waiting]})
        runner = await b.runner()
        await b.phase("Running")
        await runner.step("one")
        await runner.end(SUCCEEDED, answer="hello there")
        end_pod(b.api, runner.pod, 0)
        status = await b.phase("Succeeded", "Completed")
        assert status["result"]["preview"] == "hello there"
        assert status["budget"]["tokens"]["used"] == 10
        await b.until(lambda: not b.api.pods_of("hello"))
        await asyncio.sleep(1.5)  # a sweep finds nothing to write
        writes = b.api.writes_about("hello")
        assert len(writes) <= WRITES_MAX, [(w.verb, w.resource) for w in writes]
        assert [e["reason"] for e in b.api.events_about("hello")] == ["PodCreated", "Succeeded"]
        body = b.api.get("agentruns", "hello")
        assert body is not None
        assert "finalizers" not in body["metadata"] and "annotations" not in body["metadata"]
        assert set(body["spec"]) == set(manifest()["spec"])
        # Nothing of Kopf's, and no result of a handler.
        assert body["status"].keys() <= {field.alias for field in RunStatus.model_fields.values()}
        assert {(w.verb, w.resource) for w in writes} == {
            ("create", "pods"),
            ("delete", "pods"),
            ("create", "events"),
            ("patch", "agentruns/status"),
        }

    play(scenario)


def test_a_sidecar_neither_holds_nor_confuses_the_outcome(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest())
        runner = await b.runner()
        await runner.end(SUCCEEDED)

        def only_the_runner_ends(pod: Body) -> None:
            pod["status"]["containerStatuses"] = [
                {"name": "proxy", "state": {"running": {}}},
                {"name": "runner", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
            ]

        b.api.edit("pods", runner.pod, only_the_runner_ends)
        await b.phase("Succeeded")
        await b.until(lambda: b.api.pods_of("hello")[0]["metadata"].get("deletionTimestamp"))

    play(scenario)


def test_a_crash_backs_off_draws_a_retry_and_goes_on(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest())
        runner = await b.runner()
        await runner.step("one")
        end_pod(b.api, runner.pod, 137, reason="OOMKilled")
        await b.phase("Pending", "BackOff")
        assert b.status()["failures"] == 1 and "memory" in b.status()["message"]
        second = await b.runner(2)
        status = await b.phase("Running", attempt=2)
        assert (status["failures"], status["disruptions"]) == (1, 0)
        assert status["budget"]["retries"]["used"] == 1
        await second.end(SUCCEEDED)
        end_pod(b.api, second.pod, 0)
        await b.phase("Succeeded")
        # The one that failed is kept to look at.
        await b.until(lambda: [p["metadata"]["name"] for p in b.api.pods_of("hello")] == [runner.pod])

    play(scenario)


def test_crashes_beyond_the_retries_pause_the_run_until_there_are_more(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest(budget={"retries": 1}))
        for number in (1, 2):
            pod = await b.pod(number)
            start_pod(b.api, pod["metadata"]["name"])
            end_pod(b.api, pod["metadata"]["name"], 1, message="boom")
        status = await b.phase("Paused", "BudgetExceeded")
        assert "boom" in status["message"]
        await asyncio.sleep(0.5)
        assert len(b.api.pods_of("hello")) == 2
        b.api.edit("agentruns", "hello", wants(budget={"retries": 5}))
        await b.pod(3)

    play(scenario)


DISRUPTIONS: dict[str, dict[str, str]] = {
    "eviction": {"disruption": "EvictionByEvictionAPI"},
    "preemption": {"disruption": "PreemptionByScheduler"},
    "taint": {"disruption": "DeletionByTaintManager"},
    "shutdown": {"disruption": "TerminationByKubelet"},
}


@pytest.mark.parametrize("name", DISRUPTIONS)
def test_a_disruption_is_replaced_and_no_failure(play: Play, name: str) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest())
        runner = await b.runner()
        await runner.step("one")
        end_pod(b.api, runner.pod, 137, **DISRUPTIONS[name])
        second = await b.runner(2)
        assert "one" in (second.log.history.done if second.log else {})
        status = await b.phase("Running", attempt=2)
        assert (status["disruptions"], status["failures"]) == (1, 0)
        assert status["budget"]["retries"]["used"] == 0
        await b.until(lambda: "Disrupted" in [e["reason"] for e in b.api.events_about("hello")])
        await b.until(lambda: len(b.api.pods_of("hello")) == 1)  # the old one is no use to anybody

    play(scenario)


def test_node_pressure_leaves_no_container_status_and_is_a_disruption(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest())
        runner = await b.runner()
        set_status(b.api, runner.pod, {"phase": "Failed", "reason": "Evicted", "message": "low on memory"})
        await b.pod(2)
        await b.until(lambda: b.status().get("disruptions") == 1)
        assert b.status()["failures"] == 0

    play(scenario)


def test_a_drained_runner_is_replaced_when_its_container_has_ended(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest())
        runner = await b.runner()
        await b.phase("Running")
        b.api.remove("pods", runner.pod)
        await b.phase("Pausing", "PodDeleted")
        await runner.park("Terminated")
        await asyncio.sleep(0.4)
        assert len(b.api.pods_of("hello")) == 1  # it has not ended yet
        end_pod(b.api, runner.pod, 75)
        await b.pod(2)
        assert b.status()["phase"] != "Succeeded"

    play(scenario)


def test_exit_0_without_a_final_record_is_no_success(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest())
        runner = await b.runner()
        end_pod(b.api, runner.pod, 0)
        await b.phase("Pending", "BackOff")
        await b.pod(2)

    play(scenario)


def test_a_pod_deleted_behind_the_final_record_changes_nothing(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest())
        runner = await b.runner()
        await runner.end(SUCCEEDED)
        b.api.remove("pods", runner.pod)
        end_pod(b.api, runner.pod, 143)
        await b.phase("Succeeded")
        await asyncio.sleep(1.2)
        assert b.status()["phase"] == "Succeeded" and not b.api.pods_of("hello")

    play(scenario)


def test_suspend_parks_and_resume_goes_on(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest())
        runner = await b.runner()
        await b.phase("Running")
        b.api.edit("agentruns", "hello", wants(suspend=True))
        await b.phase("Pausing", "Suspending")
        look = await b.store.look(runner.run_id, attempt=1)
        assert look is not None and look.levels.suspend
        await runner.park("Suspended")
        end_pod(b.api, runner.pod, 75)
        await b.phase("Paused", "Suspended")
        await b.until(lambda: not b.api.pods_of("hello"))
        b.api.edit("agentruns", "hello", wants(suspend=False))
        await b.runner(2)
        status = await b.phase("Running", attempt=2)
        assert (status["disruptions"], status["failures"]) == (0, 0)

    play(scenario)


def test_suspend_is_enforced_on_a_pod_that_does_not_heed_it(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest(terminationGracePeriodSeconds=1))
        runner = await b.runner()
        b.api.edit("agentruns", "hello", wants(suspend=True))
        await b.until(lambda: b.api.pods_of("hello")[0]["metadata"].get("deletionTimestamp"))
        end_pod(b.api, runner.pod, 137)
        status = await b.phase("Paused", "Suspended")
        assert status["disruptions"] == 0

    play(scenario)


@pytest.mark.parametrize("how", ["Stop", "Terminate"])
def test_a_shutdown_ends_the_run_also_where_its_runner_does_not_heed_it(play: Play, how: str) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest(terminationGracePeriodSeconds=1))
        runner = await b.runner()
        b.api.edit("agentruns", "hello", wants(shutdown=how))
        await b.until(lambda: b.api.pods_of("hello")[0]["metadata"].get("deletionTimestamp"))
        end_pod(b.api, runner.pod, 137)
        await b.phase("Cancelled", "Cancelled")
        with pytest.raises(Fenced):
            await runner.step("late")

    play(scenario)


def test_a_budget_that_is_raised_lets_a_parked_run_go_on(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest(budget={"turns": 1}))
        runner = await b.runner()
        await runner.step("one")
        await runner.park("BudgetExceeded", "1 of 1 turns are used")
        end_pod(b.api, runner.pod, 75)
        status = await b.phase("Paused", "BudgetExceeded")
        assert status["budget"]["turns"] == {"used": 1, "limit": 1}
        await b.until(lambda: not b.api.pods_of("hello"))
        b.api.edit("agentruns", "hello", wants(budget={"turns": 2}))
        await b.runner(2)
        await b.phase("Running", attempt=2)

    play(scenario)


def test_a_retry_token_continues_a_failed_run_once(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest(retryToken="a"))
        runner = await b.runner()
        await runner.step("one")
        await runner.end(FAILED, "LoopDetected")
        end_pod(b.api, runner.pod, 1)
        status = await b.phase("Failed", "LoopDetected")
        assert status["observedRetryToken"] == "a"
        b.api.edit("agentruns", "hello", wants(retryToken="b"))
        second = await b.runner(3)  # attempt 2 is nobody's: it keeps whoever slept from claiming
        assert second.log is not None and "one" in second.log.history.done
        status = await b.phase("Running", attempt=3)
        assert status["observedRetryToken"] == "b" and "completionTime" not in status
        await second.end(FAILED, "LoopDetected")
        end_pod(b.api, second.pod, 1)
        await b.phase("Failed")
        await asyncio.sleep(1.2)
        assert b.status()["phase"] == "Failed"

    play(scenario)


def test_what_cannot_start_fails_with_its_last_words(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest())
        pod = await b.pod()
        start_pod(b.api, pod["metadata"]["name"])
        words = '{"exitCode": 2, "reason": "InvalidDefinition", "message": "no such tool"}'
        end_pod(b.api, pod["metadata"]["name"], 2, message=words)
        status = await b.phase("Failed", "InvalidDefinition")
        assert status["message"] == "no such tool"
        assert len(b.api.pods_of("hello")) == 1

    play(scenario)


def test_a_start_deadline_fails_a_run_whose_image_never_comes(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest(startDeadlineSeconds=3))
        pod = await b.pod()
        waiting = {"name": "runner", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no"}}}
        set_status(b.api, pod["metadata"]["name"], {"phase": "Pending", "containerStatuses": [waiting]})
        await b.phase("Pending", "ImagePullBackOff")
        status = await b.phase("Failed", "StartDeadlineExceeded")
        assert "ImagePullBackOff" in status["message"]
        await b.until(lambda: not b.api.pods_of("hello"))

    play(scenario)


def test_a_completion_deadline_fails_a_run_that_goes_on(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest(completionDeadlineSeconds=1))
        runner = await b.runner()
        await b.until(lambda: b.api.pods_of("hello")[0]["metadata"].get("deletionTimestamp"))
        await runner.park("Terminated")
        end_pod(b.api, runner.pod, 75)
        await b.phase("Failed", "DeadlineExceeded")

    play(scenario)


def test_an_object_goes_when_its_time_is_over(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest(ttlSecondsAfterFinished=1))
        runner = await b.runner()
        await runner.end(SUCCEEDED)
        end_pod(b.api, runner.pod, 0)
        await b.phase("Succeeded")
        await b.until(lambda: b.api.get("agentruns", "hello") is None)
        info = await b.store.get_run(runner.run_id)
        assert info is not None and info.run.ended

    play(scenario)


def test_a_lost_node_is_shown_and_its_run_goes_on_elsewhere(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest(terminationGracePeriodSeconds=600))
        runner = await b.runner()
        await b.phase("Running")
        dark = [{"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
        b.api.edit("nodes", "node-1", lambda node: node["status"].update(conditions=dark))
        b.api.remove("pods", runner.pod)  # the taint eviction: the kubelet never answers
        await b.phase("Pausing", "NodeUnreachable")
        second = await b.runner(2, node="node-2")
        status = await b.phase("Running", attempt=2)
        assert (status["disruptions"], status["failures"]) == (1, 0)
        with pytest.raises(Fenced):  # the old one wakes up
            await runner.step("late")
        end_pod(b.api, runner.pod, 76)
        await second.end(SUCCEEDED)
        end_pod(b.api, second.pod, 0)
        await b.phase("Succeeded")

    play(scenario)


def test_without_the_right_to_read_nodes_a_pods_grace_decides(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        async def forbid(request: web.Request, body: Body) -> web.StreamResponse | None:
            if "/nodes/" in request.path:
                return refuse(403, "Forbidden", "nodes is forbidden")
            return None

        b.api.faults.append(forbid)
        b.api.put("agentruns", manifest(terminationGracePeriodSeconds=1))
        runner = await b.runner()
        b.api.remove("pods", runner.pod)
        await b.phase("Pausing", "PodDeleted")
        await b.pod(2)
        await b.until(lambda: b.status()["disruptions"] == 1)

    play(scenario)


def test_a_config_map_that_is_missing_is_told_from_the_pods_events(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentrun_operator.observe.STUCK_SECONDS", 0.5)
    monkeypatch.setattr("agentrun_operator.plan_live.RECHECK_SECONDS", 0.5)

    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest())
        pod = await b.pod()
        event = {
            "metadata": {"name": "e1"},
            "reason": "FailedMount",
            "message": 'MountVolume.SetUp failed for volume "x" : configmap "texts" not found',
            "involvedObject": {"uid": pod["metadata"]["uid"], "name": pod["metadata"]["name"]},
        }
        b.api.put("events", event)
        set_status(
            b.api,
            pod["metadata"]["name"],
            {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]},
        )
        await b.phase("Pending", "ConfigMapMissing")

    play(scenario)


def test_a_runner_that_slept_before_its_claim_cannot_claim(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest())
        pod = await b.pod()
        start_pod(b.api, pod["metadata"]["name"])
        sleeper = Runner(b.store, pod)
        await b.phase("Pending", "Starting")
        b.api.vanish("pods", pod["metadata"]["name"])
        second = await b.runner(2)
        with pytest.raises(Fenced):
            await sleeper.claim()
        await second.step("one")

    play(scenario)
