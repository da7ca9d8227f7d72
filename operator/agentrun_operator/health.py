"""Liveness, readiness and metrics over HTTP.

Who calls: the app; the kubelet and Prometheus ask. What holds: liveness fails when a
restart would help (a watcher is gone or tells nothing, a worker is stuck, the sweep is
late), readiness also when it would not (the store is away, the API server refuses what a
sweep asks for): the process then lives on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import web

from agentrun_operator.facts import Key
from agentrun_operator.metrics import Metrics
from agentrun_operator.queue import WorkQueue
from agentrun_operator.watching import WatchProbe

WATCHERS = ("agentruns", "pods")
STUCK_SECONDS_MAX = 120.0
START_SECONDS_MAX = 120.0
SWEEPS_MISSED_MAX = 3.0


@dataclass(kw_only=True)
class Health:
    """What the parts of the process say of themselves. Times are of `clock`."""

    clock: Callable[[], float]
    queue: WorkQueue[Key]
    probe: WatchProbe
    sweep_seconds: float
    silent_seconds_max: float
    """A watch that has missed things for longer is dead."""

    started_at: float
    watching: bool = False
    """Kopf was started, so its watchers are to be there."""

    watching_since: float = 0.0
    swept_at: float | None = None
    store_is_up: bool = False
    sweep_problem: str = ""
    """Why the last sweep could not be finished."""

    task_names: Callable[[], list[str]] = field(
        default=lambda: [task.get_name() for task in asyncio.all_tasks()]
    )

    def dead(self) -> list[str]:
        """Why the process should be restarted; []: it should not."""
        now = self.clock()
        found = []
        if (busy := self.queue.busy_longest) > STUCK_SECONDS_MAX:
            found.append(f"a worker has been at one run for {busy:.0f} s")
        if self.watching:
            found += self._watch_problems(now)
        since = self.swept_at if self.swept_at is not None else self.started_at
        if now - since > SWEEPS_MISSED_MAX * self.sweep_seconds + STUCK_SECONDS_MAX:
            found.append(f"no sweep has been tried for {now - since:.0f} s")
        return found

    def _watch_problems(self, now: float) -> list[str]:
        found = []
        if now - self.watching_since > START_SECONDS_MAX:
            watchers = [name for name in self.task_names() if name.startswith("watcher for ")]
            found += [
                f"there is no watcher of {kind}"
                for kind in WATCHERS
                if not any(name.startswith(f"watcher for {kind}.") for name in watchers)
            ]
        for kind, seconds in self.probe.silent_seconds().items():
            if seconds > self.silent_seconds_max:
                found.append(f"the watch of {kind} has told nothing for {seconds:.0f} s of what changed")
        return found

    def unready(self) -> list[str]:
        """Why nothing is to be expected of the process now; []: it is ready."""
        found = self.dead()
        if not self.watching:
            found.append("waiting for the API server and the AgentRun CRD")
        if not self.store_is_up:
            found.append("the store cannot be read")
        elif self.sweep_problem:
            found.append(f"the last sweep could not be finished: {self.sweep_problem}")
        return found


async def serve(health: Health, metrics: Metrics, port: int) -> tuple[web.AppRunner, int]:
    """Answers on /healthz, /readyz and /metrics; the runner to clean up, and the port."""

    async def alive(_: web.Request) -> web.Response:
        return _answer(health.dead())

    async def ready(_: web.Request) -> web.Response:
        return _answer(health.unready())

    async def told(_: web.Request) -> web.Response:
        metrics.queue.set(health.queue.due)
        metrics.stuck.set(health.queue.busy_longest)
        return web.Response(body=metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4"})

    app = web.Application()
    app.router.add_get("/healthz", alive)
    app.router.add_get("/readyz", ready)
    app.router.add_get("/metrics", told)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, None if port else "127.0.0.1", port)
    await site.start()
    return runner, int(runner.addresses[0][1])


def _answer(problems: list[str]) -> web.Response:
    if problems:
        return web.Response(status=503, text="\n".join(problems) + "\n")
    return web.Response(text="ok\n")
