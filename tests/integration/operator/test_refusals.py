"""Pods that the API server refuses: each waits with its reason, and starts when it can."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from agentrun.proto import log_pb2 as pb
from agentrun_operator.settings import RolloutPolicy
from tests.integration.operator.bench import Bench, manifest
from tests.integration.operator.conftest import Play
from tests.integration.operator.fake_api import Body, refuse
from tests.integration.operator.kubelet import end_pod


class Gate:
    """Answers the creation of pods while it is shut."""

    def __init__(self, code: int, message: str, reason: str = "Forbidden", **details: Any) -> None:
        self.answer = (code, reason, message)
        self.details = details
        self.shut = True
        self.times = 0
        self.let_through_after = 10**9

    async def __call__(self, request: web.Request, body: Body) -> web.StreamResponse | None:
        if request.method != "POST" or not request.path.endswith("/pods") or not self.shut:
            return None
        self.times += 1
        if self.times > self.let_through_after:
            return None
        return refuse(*self.answer, **self.details)


QUOTA = 'pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2'


def test_a_run_over_quota_waits_with_the_servers_words_and_starts_when_there_is_room(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        gate = Gate(403, QUOTA)
        b.api.faults.append(gate)
        b.api.put("agentruns", manifest(startDeadlineSeconds=3))
        status = await b.phase("Pending", "ExceededQuota")
        assert status["message"] == QUOTA and "pod" not in status
        await b.until(lambda: gate.times > 12)  # every 0.3 s
        assert b.status()["phase"] == "Pending"  # the start deadline does not count
        writes = len(b.api.writes_about("hello"))
        gate.shut = False
        runner = await b.runner()
        status = await b.phase("Running")
        assert (runner.attempt, status["failures"], status["disruptions"]) == (1, 0, 0)
        assert writes <= 3

    play(scenario)


def test_two_of_five_fit_and_the_others_follow_one_by_one(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        async def quota(request: web.Request, body: Body) -> web.StreamResponse | None:
            if request.method == "POST" and request.path.endswith("/pods") and counted() >= 2:
                return refuse(403, "Forbidden", QUOTA)
            return None

        def counted() -> int:
            """Pods that a quota counts: not those that have ended, and are about to be deleted."""
            phases = [pod["status"].get("phase") for pod in b.api.all("pods")]
            return sum(phase not in ("Succeeded", "Failed") for phase in phases)

        b.api.faults.append(quota)
        names = [f"run-{number}" for number in range(5)]
        for name in names:
            b.api.put("agentruns", manifest(name))
        done: set[str] = set()
        while len(done) < 5:
            alive = await b.until(
                lambda: [p for p in b.api.all("pods") if p["status"].get("phase") == "Pending"]
            )
            assert counted() <= 2
            name = alive[0]["metadata"]["ownerReferences"][0]["name"]
            runner = await b.runner(1, name)
            await runner.end(pb.OUTCOME_SUCCEEDED)
            end_pod(b.api, runner.pod, 0)
            await b.phase("Succeeded", name=name)
            done.add(name)
        assert all(b.status(name)["attempt"] == 1 for name in names)

    play(scenario)


def test_a_quota_that_is_being_written_is_tried_again_at_once(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        gate = Gate(
            409,
            'Operation cannot be fulfilled on resourcequotas "q": the object has been modified',
            reason="Conflict",
        )
        gate.let_through_after = 3
        b.api.faults.append(gate)
        b.api.put("agentruns", manifest())
        await b.pod()
        assert gate.times == 4 and b.status().get("reason") in (None, "Starting")

    play(scenario)


def test_a_webhook_that_is_away_delays_a_run(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        gate = Gate(
            500,
            'Internal error occurred: failed calling webhook "inj.example.test": context deadline exceeded',
            reason="InternalError",
        )
        b.api.faults.append(gate)
        b.api.put("agentruns", manifest())
        await b.phase("Pending", "WebhookUnavailable")
        gate.shut = False
        await b.pod()
        await b.phase("Pending", "Starting")

    play(scenario)


def test_a_policy_that_says_no_is_told_and_not_asked_every_second(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        text = 'admission webhook "v.example.test" denied the request: image not signed'
        gate = Gate(403, text)
        b.api.faults.append(gate)
        b.api.put("agentruns", manifest())
        status = await b.phase("Pending", "PolicyDenied")
        assert status["message"] == text
        await asyncio.sleep(1.5)
        assert gate.times == 1

    play(scenario)


@pytest.mark.parametrize("policy", RolloutPolicy)
def test_a_pod_that_a_webhook_has_changed_is_still_ours(
    play: Play, monkeypatch: pytest.MonkeyPatch, policy: RolloutPolicy
) -> None:
    monkeypatch.setattr("agentrun_operator.rollout.SETTLE_SECONDS", 0.2)

    async def scenario(b: Bench) -> None:
        async def mutate(request: web.Request, body: Body) -> web.StreamResponse | None:
            if request.method == "POST" and request.path.endswith("/pods"):
                body["spec"]["containers"][0]["image"] = "mirror.example.test/runner:1"
                body["spec"]["containers"][0]["env"].append({"name": "HTTP_PROXY", "value": "http://p"})
                body["spec"]["containers"].insert(0, {"name": "proxy", "image": "proxy"})
                body["spec"]["initContainers"] = [{"name": "early", "image": "p", "restartPolicy": "Always"}]
                body["metadata"]["labels"]["app.kubernetes.io/name"] += "-x7"
            return None

        b.api.faults.append(mutate)
        b.api.put("agentruns", manifest())
        runner = await b.runner()
        await b.phase("Running")
        await asyncio.sleep(1.5)  # a sweep: another image than was asked for is no older one
        await runner.end(pb.OUTCOME_SUCCEEDED)
        end_pod(b.api, runner.pod, 0)
        await b.phase("Succeeded")
        created = [w for w in b.api.writes if (w.verb, w.resource) == ("create", "pods")]
        assert len(created) == 1

    play(scenario, rollout=policy)


def test_a_namespace_that_goes_is_left_alone(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        gate = Gate(
            403,
            'pods "x" is forbidden: unable to create new content in namespace demo because it is being '
            "terminated",
            causes=[{"reason": "NamespaceTerminating"}],
        )
        b.api.faults.append(gate)
        b.api.put("agentruns", manifest())
        await b.until(lambda: gate.times == 1)
        await asyncio.sleep(2.5)
        assert gate.times == 1 and not b.api.writes_about("hello")
        body = b.api.get("agentruns", "hello")
        assert body is not None
        b.api.remove("agentruns", "hello")
        await b.until_ended(body["metadata"]["uid"])

    play(scenario)


def test_a_stranger_under_the_pods_name_costs_a_number_and_nothing_else(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        taken: list[str] = []

        async def squat(request: web.Request, body: Body) -> web.StreamResponse | None:
            if request.method == "POST" and request.path.endswith("/pods") and not taken:
                taken.append(body["metadata"]["name"])
                b.api.put("pods", {"metadata": {"name": taken[0]}, "spec": {"containers": []}})
            return None

        b.api.faults.append(squat)
        b.api.put("agentruns", manifest())
        await b.runner(2)
        status = await b.phase("Running", attempt=2)
        assert (status["disruptions"], status["failures"]) == (0, 0)
        assert b.api.get("pods", taken[0]) is not None

    play(scenario)
