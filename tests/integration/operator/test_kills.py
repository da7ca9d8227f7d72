"""The operator is killed at random moments while runs live through all that may happen to them."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import pytest

from agentrun.log.errors import LogError
from agentrun.log.replay import ATTEMPT
from agentrun.proto import log_pb2 as pb
from tests.integration.operator.bench import Bench, manifest, wants
from tests.integration.operator.conftest import Play
from tests.integration.operator.kubelet import Runner, end_pod, start_pod

RUNS = 10
STEPS = 4
SECONDS_MAX = 120.0
LIVES = ("plain", "crash", "evict", "vanish", "suspend", "cancel", "delete")


class Life:
    """Plays one run: its pods start, work, and meet their fate."""

    def __init__(self, b: Bench, name: str, fate: str, rng: random.Random) -> None:
        self.b, self.name, self.fate, self.rng = b, name, fate, rng
        self.met = False
        self.uid = b.api.put("agentruns", manifest(name, terminationGracePeriodSeconds=1))["metadata"]["uid"]

    async def play(self) -> None:
        seen: set[str] = set()
        while not await self.ended():
            for pod in self.b.api.pods_of(self.name):
                name = pod["metadata"]["name"]
                if name not in seen:
                    seen.add(name)
                    await self.attempt(name)
                elif pod["metadata"].get("deletionTimestamp"):
                    end_pod(self.b.api, name, 137)
            await asyncio.sleep(0.05)

    async def ended(self) -> bool:
        from uuid import UUID

        info = await self.b.store.get_run(UUID(self.uid))
        return info is not None and info.run.ended

    async def attempt(self, name: str) -> None:
        pod = start_pod(self.b.api, name)
        runner = Runner(self.b.store, pod)
        try:
            log = await runner.claim()
            for number in range(STEPS):
                if f"step-{number}" not in log.history.done:
                    await runner.step(f"step-{number}")
                await asyncio.sleep(self.rng.random() * 0.2)
                if not self.met and number == 1 and await self.meet(runner):
                    return
                current = self.b.api.get("pods", name)
                if current is None or current["metadata"].get("deletionTimestamp"):
                    await runner.park("Terminated")
                    self.end(name, 75)
                    return
            await runner.end(pb.OUTCOME_SUCCEEDED)
            self.end(name, 0)
        except LogError:
            self.end(name, 76)

    def end(self, name: str, code: int, **more: str) -> None:
        with suppress(KeyError):
            end_pod(self.b.api, name, code, **more)

    async def meet(self, runner: Runner) -> bool:
        """True: this attempt is over."""
        self.met = True
        if self.fate == "crash":
            self.end(runner.pod, 137, reason="OOMKilled")
        elif self.fate == "evict":
            self.end(runner.pod, 137, disruption="EvictionByEvictionAPI")
        elif self.fate == "vanish":
            self.b.api.vanish("pods", runner.pod)
        elif self.fate == "suspend":
            self.b.api.edit("agentruns", self.name, wants(suspend=True))
            await runner.park("Suspended")
            self.end(runner.pod, 75)
            await asyncio.sleep(self.rng.random() * 2)
            self.b.api.edit("agentruns", self.name, wants(suspend=False))
        elif self.fate == "cancel":
            self.b.api.edit("agentruns", self.name, wants(shutdown="Terminate"))
            self.end(runner.pod, 137)
        elif self.fate == "delete":
            self.b.api.remove("agentruns", self.name)
            self.end(runner.pod, 137)
        return self.fate != "plain"


@pytest.mark.parametrize("seed", [1, 2])
def test_whenever_it_is_killed_each_run_ends_right(play: Play, seed: int) -> None:
    async def scenario(b: Bench) -> None:
        rng = random.Random(seed)
        lives = [Life(b, f"run-{n}", LIVES[n % len(LIVES)], rng) for n in range(RUNS)]
        playing = [asyncio.create_task(life.play()) for life in lives]
        async with asyncio.timeout(SECONDS_MAX):
            while not all(task.done() for task in playing):
                await asyncio.sleep(0.2 + rng.random() * 0.6)
                if rng.random() < 0.6:
                    await b.kill()
                    await asyncio.sleep(rng.random() * 0.3)
                    await b.start()
            await asyncio.gather(*playing)
        for life in lives:
            history = await b.until_ended(life.uid)  # it replays: no hole, no id twice
            assert history.final is not None
            cancelled = life.fate in ("cancel", "delete")
            outcome = history.final.final.outcome
            assert outcome == (pb.OUTCOME_CANCELLED if cancelled else pb.OUTCOME_SUCCEEDED), life.fate
            if life.fate == "delete":
                continue
            status = await b.phase("Cancelled" if cancelled else "Succeeded", name=life.name)
            if not cancelled:  # who dies of a cancel may count as a crash, and it does not matter
                assert status["failures"] == (1 if life.fate == "crash" else 0), life.fate
            made = [w for w in b.api.writes_about(life.name) if (w.verb, w.resource) == ("create", "pods")]
            names = [w.name for w in made]
            assert len(set(names)) == len(names)  # no name twice
            assert sum(1 for id_ in history.ids if id_.startswith(ATTEMPT)) <= len(names) + 1
        await b.until(lambda: all(p["status"]["phase"] == "Failed" for p in b.api.all("pods")))

    play(scenario)
