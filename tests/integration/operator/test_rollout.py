"""A new runner image rolls over live runs, so many at once."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from agentrun.proto import log_pb2 as pb
from agentrun_operator.podspec import PodSettings
from agentrun_operator.settings import RolloutPolicy
from tests.integration.operator.bench import Bench, manifest
from tests.integration.operator.conftest import Play
from tests.integration.operator.kubelet import Runner, end_pod

RUNS = 6
DOWN_MAX = 2


def test_a_new_image_takes_down_so_many_at_once_and_every_run_goes_on(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentrun_operator.rollout.SETTLE_SECONDS", 0.5)

    async def scenario(b: Bench) -> None:
        names = [f"run-{number}" for number in range(RUNS)]
        for name in names:
            b.api.put("agentruns", manifest(name))
        old = {name: await b.runner(1, name) for name in names}
        for name in names:
            await old[name].step("one")
            await b.phase("Running", name=name)
        await b.stop()
        b.settings = replace(
            b.settings,
            pods=PodSettings(image="runner:2"),
            rollout=RolloutPolicy.IMMEDIATE,
            rollout_unavailable_max=DOWN_MAX,
        )
        await b.start()
        new: dict[str, Runner] = {}
        worst = 0

        async def down() -> list[str]:
            return [
                name
                for name in names
                if name not in new
                and any(p["metadata"].get("deletionTimestamp") for p in b.api.pods_of(name))
            ]

        while len(new) < RUNS:
            going = await b.until(lambda: [n for n in names if n not in new and is_going(b, n)])
            await asyncio.sleep(0.3)  # long enough for a third one to be taken down by mistake
            worst = max(worst, len(await down()))
            name = going[0]
            await old[name].park("Terminated")
            end_pod(b.api, old[name].pod, 75)
            new[name] = await b.runner(2, name)
            await b.phase("Running", name=name)
        assert worst <= DOWN_MAX
        for name, runner in new.items():
            assert runner.log is not None and "one" in runner.log.history.done
            pods = b.api.pods_of(name)
            assert [p["spec"]["containers"][0]["image"] for p in pods] == ["runner:2"]
            await runner.end(pb.OUTCOME_SUCCEEDED)
            end_pod(b.api, runner.pod, 0)
            status = await b.phase("Succeeded", name=name)
            assert (status["disruptions"], status["failures"]) == (1, 0)

    play(scenario)


def is_going(b: Bench, name: str) -> bool:
    return any(pod["metadata"].get("deletionTimestamp") for pod in b.api.pods_of(name))
