"""The operator as one process: Kopf's watches, workers, hints, sweeps, health.

Who calls: `cli`. What holds: a store that is away at the start is waited for, and says
so in readiness; on SIGTERM no key is taken any more and what is under way is finished
within its bound; a watch that ends for good ends the process, to be restarted.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import kopf

from agentrun.log.errors import LogError
from agentrun.log.postgres import PostgresStore
from agentrun.log.store import LogStore
from agentrun_operator.apply import new_identity
from agentrun_operator.facts import Key
from agentrun_operator.handlers import Handlers, kopf_settings
from agentrun_operator.health import Health, serve
from agentrun_operator.hints import Hints
from agentrun_operator.kube import Kube, KubeError, KubeUnavailable
from agentrun_operator.metrics import Metrics
from agentrun_operator.queue import WorkQueue
from agentrun_operator.reconciler import Reconciler
from agentrun_operator.settings import Settings
from agentrun_operator.sweep import Sweep
from agentrun_operator.tell import Changed
from agentrun_operator.watching import WatchProbe

log = logging.getLogger(__name__)

FINISH_SECONDS_MAX = 15.0
"""What is under way when the process is to end gets so long."""

RETRY_SECONDS = 5.0
LOST_HINTS_SECONDS = 2.0


class WatchEnded(Exception):
    """A watch cannot go on, and nothing in this process would open it again."""


class App:
    """See the module's docstring. `run` returns when `stop` was set, or Kopf has ended."""

    def __init__(self, kube: Kube, store: LogStore, settings: Settings, metrics: Metrics) -> None:
        clock = time.monotonic
        self._kube = kube
        self._store = store
        self._settings = settings
        self.metrics = metrics
        self.queue: WorkQueue[Key] = WorkQueue(clock)
        self.reconciler = Reconciler(
            kube, store, settings, identity=new_identity(), metrics=metrics, clock=clock
        )
        memories = self.reconciler.memories
        self.probe = WatchProbe(clock)
        self.hints = Hints(store, self.queue, memories, settings)
        self.sweep = Sweep(
            kube,
            store,
            settings,
            queue=self.queue,
            memories=memories,
            metrics=metrics,
            probe=self.probe,
        )
        self.handlers = Handlers(self.queue, memories, self.probe)
        self.health = Health(
            clock=clock,
            queue=self.queue,
            probe=self.probe,
            sweep_seconds=settings.times.sweep,
            silent_seconds_max=settings.watch_silent,
            started_at=clock(),
        )
        self.stop = asyncio.Event()
        self.port = 0

    async def run(self) -> None:
        """Until stopped."""
        server, self.port = await serve(self.health, self.metrics, self._settings.http_port)
        parts: list[Coroutine[Any, Any, None]] = [
            self._listen(),
            self.hints.loop(),
            self._sweeps(),
            self._lost_hints(),
        ]
        around = [asyncio.create_task(part) for part in parts]
        workers = [
            asyncio.create_task(self._work(), name=f"worker {number}")
            for number in range(self._settings.workers)
        ]
        try:
            await self._wait_for_crd()
            if not self.stop.is_set():
                await self._watch(around)
        finally:
            self.stop.set()
            for task in around:
                task.cancel()
            await self._finish(workers)
            await asyncio.wait(around)
            await server.cleanup()

    async def _watch(self, around: list[asyncio.Task[None]]) -> None:
        """Kopf, until it ends. It hears SIGTERM and SIGINT itself; a part that fails ends it."""
        self.health.watching, self.health.watching_since = True, self.health.clock()
        for task in around:
            task.add_done_callback(self._part_ended)
        where: dict[str, Any] = (
            {"namespaces": self._settings.namespaces} if self._settings.namespaces else {"clusterwide": True}
        )
        # Not `kopf.operator`: in its end it cancels whatever task the process has.
        tasks = await kopf.spawn_tasks(
            registry=self.handlers.registry(),
            settings=kopf_settings(self._settings),
            standalone=True,
            stop_flag=self.stop,
            **where,
        )
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            ended, _ = await asyncio.wait(tasks, timeout=FINISH_SECONDS_MAX)
        for task in ended:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise WatchEnded(f"a watch has ended, so this process does: {error}") from error

    def _part_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a part of the operator has failed: %r", error, exc_info=error)
            self.stop.set()

    async def _wait_for_crd(self) -> None:
        """Kopf looks once which resources there are, so they have to be there."""
        said = ""
        while not self.stop.is_set():
            try:
                async for _ in self._kube.list_runs(next(iter(self._settings.namespaces), "")):
                    break
                return
            except (KubeError, KubeUnavailable) as error:
                if str(error) != said:
                    said = str(error)
                    log.warning("AgentRuns cannot be listed yet: %s", said)
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY_SECONDS):
                    await self.stop.wait()

    # --- workers

    async def _work(self) -> None:
        while True:
            key = await self.queue.get()
            await self._look(key)

    async def _look(self, key: Key) -> None:
        started = time.monotonic()
        result = "failed"
        try:
            requeue = await self.reconciler.reconcile(key)
        except Changed:
            result = "changed"
            self.queue.done(key, 0.0)
        except (LogError, KubeError, KubeUnavailable) as error:
            wait = self.queue.failed(key)
            log.warning("%s: %s; looking again in %.1f s", key, error, wait)
        except Exception:
            result = "fault"
            wait = self.queue.failed(key)
            log.exception("%s: a fault of the operator; looking again in %.1f s", key, wait)
        else:
            result = "done"
            self.queue.done(key, requeue)
        finally:
            self.metrics.reconciles.labels(result).inc()
            self.metrics.seconds.observe(time.monotonic() - started)

    async def _finish(self, workers: list[asyncio.Task[None]]) -> None:
        """Workers that look at a key finish that, within a bound; the others end."""
        self.queue.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(FINISH_SECONDS_MAX):
                await self.queue.drained()
        for task in workers:
            task.cancel()
        await asyncio.wait(workers)
        await self.reconciler.applier.close()

    # --- hints and sweeps

    async def _listen(self) -> None:
        while True:
            try:
                await self._store.listen(self.hints.hint)
                return
            except LogError as error:
                log.warning("hints of the store stay away: %s", error)
                await asyncio.sleep(RETRY_SECONDS)

    async def _sweeps(self) -> None:
        failed = 0
        while True:
            started = time.monotonic()
            if done := await self.sweep.run():
                self.health.store_is_up = True
            else:
                self.health.store_is_up = await self._store_answers()
            failed = 0 if done else failed + 1
            self.health.sweep_problem = self.sweep.problem
            self.health.swept_at = time.monotonic()
            self.metrics.store_up.set(1 if self.health.store_is_up else 0)
            left = self._settings.times.sweep - (time.monotonic() - started)
            if failed:  # soon again, and at the usual pace while the API server goes on to refuse
                left = min(
                    left, RETRY_SECONDS * (2.0 ** min(failed - 1, 10) if self.health.store_is_up else 1.0)
                )
            await asyncio.sleep(max(1.0, left))

    async def _store_answers(self) -> bool:
        try:
            await self._store.standings([])
        except LogError:
            return False
        return True

    async def _lost_hints(self) -> None:
        """Hints that were lost are made up for by a sweep, at a bounded pace."""
        while True:
            await self.hints.lost.wait()
            await asyncio.sleep(LOST_HINTS_SECONDS)
            self.hints.lost.clear()
            await self.sweep.run()


async def run(settings: Settings) -> None:
    """The operator, with connections of its own, until it is told to stop."""
    metrics = Metrics()
    kube = await Kube.connect(timeout_seconds=settings.request_timeout, on_answer=metrics.answered)
    store = PostgresStore.open(
        settings.database_url,
        prepared_statements=settings.prepared_statements,
        listen_dsn=settings.listen_url,
        application_name="agentrun-operator",
    )
    try:
        await App(kube, store, settings, metrics).run()
    finally:
        await store.close()
        await kube.close()
