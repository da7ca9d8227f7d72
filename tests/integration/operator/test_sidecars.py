"""Containers beside the runner: its end alone is the attempt's, whatever they do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from agentrun.proto import log_pb2 as pb
from tests.integration.operator.bench import Bench, manifest
from tests.integration.operator.conftest import Play
from tests.integration.operator.fake_api import Body
from tests.integration.operator.kubelet import Runner, start_pod

GOES_ON = {"name": "proxy", "state": {"running": {}}}
STOPPED = {"name": "proxy", "state": {"terminated": {"exitCode": 143, "reason": "Error"}}}


def ended(code: int) -> Body:
    reason = "Completed" if code == 0 else "Error"
    return {"name": "runner", "state": {"terminated": {"exitCode": code, "reason": reason}}}


def with_proxy(b: Bench, name: str, kind: str, phase: str, proxy: Mapping[str, Any], runner: Body) -> None:
    """The pod's status, with the proxy that an admission webhook put into it."""

    def change(pod: Body) -> None:
        status = pod["status"]
        status["phase"] = phase
        if kind == "native":
            pod["spec"]["initContainers"] = [{"name": "proxy", "restartPolicy": "Always"}]
            status["initContainerStatuses"] = [dict(proxy)]
            status["containerStatuses"] = [runner]
        else:
            status["containerStatuses"] = [dict(proxy), runner]

    b.api.edit("pods", name, change)


@pytest.mark.parametrize("kind", ["classic", "native"])
def test_a_run_ends_well_beside_a_proxy_that_goes_on_and_its_pod_goes(play: Play, kind: str) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest())
        runner = await b.runner()
        await b.phase("Running")
        await runner.end(pb.OUTCOME_SUCCEEDED)
        with_proxy(b, runner.pod, kind, "Running", GOES_ON, ended(0))
        await b.phase("Succeeded")
        await b.until(lambda: b.api.pods_of("hello")[0]["metadata"].get("deletionTimestamp"))

    play(scenario)


@pytest.mark.parametrize("kind", ["classic", "native"])
def test_a_runner_that_fails_beside_a_proxy_that_goes_on_is_followed_by_the_next(
    play: Play, kind: str
) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest(podRetentionPolicy="Never"))
        runner = await b.runner()
        with_proxy(b, runner.pod, kind, "Running", GOES_ON, ended(1))
        status = await b.phase("Pending", "BackOff")
        assert "exit code 1" in status["message"] and status["failures"] == 1
        # It holds its proxy's container no longer than that.
        await b.until(
            lambda: all(
                pod["metadata"].get("deletionTimestamp")
                for pod in b.api.pods_of("hello")
                if pod["metadata"]["name"] == runner.pod
            )
        )
        await b.runner(2)
        await b.phase("Running", attempt=2)

    play(scenario)


@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (1, "Failed")])
def test_how_a_native_proxy_ends_behind_the_runner_decides_nothing(play: Play, code: int, phase: str) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest())
        runner = await b.runner()
        outcome = pb.OUTCOME_SUCCEEDED if code == 0 else pb.OUTCOME_FAILED
        await runner.end(outcome, "Completed" if code == 0 else "LoopDetected")
        with_proxy(b, runner.pod, "native", phase, STOPPED, ended(code))
        status = await b.phase(phase)
        assert (status["failures"], status["disruptions"]) == (0, 0)

    play(scenario)


def test_a_proxy_whose_image_never_comes_is_why_the_run_waits(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest())
        name = (await b.pod())["metadata"]["name"]
        stuck = {"name": "proxy", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no mesh"}}}
        starting = {"name": "runner", "state": {"waiting": {"reason": "PodInitializing"}}}
        with_proxy(b, name, "native", "Pending", stuck, starting)
        assert (await b.phase("Pending", "ImagePullBackOff"))["message"] == "no mesh"
        start_pod(b.api, name)
        await Runner(b.store, (await b.pod())).claim()
        await b.phase("Running")

    play(scenario)
