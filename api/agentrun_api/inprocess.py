"""Runs carried out by this process, for one machine.

Who calls: the app. What holds: level-triggered, as the operator is. A start or a signal only
writes what is wanted and wakes; what is done is decided from what is read, for every run of this
server at every look. So a run that an earlier process left behind is found and goes on, and two
servers on one database carry a run out once: the attempt's number decides, and the log fences.
"""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from agentrun.agent import Program, SetupError, prepare
from agentrun.graph.session import Session
from agentrun.local.cancelling import end_run
from agentrun.local.errors import HeldElsewhere
from agentrun.local.holders import Holder, holder
from agentrun.local.levels import change_levels, first_levels, of_resume, of_shutdown
from agentrun.local.process import this_machine, this_process
from agentrun.local.records import result_text
from agentrun.local.runs import allocate, definition_of, spec_of
from agentrun.local.stores import DSN_VARIABLE, passwords
from agentrun.log.appender import Appender
from agentrun.log.asks import is_answered
from agentrun.log.clock import Clock
from agentrun.log.errors import Fenced, LogError, RunEnded, StoreUnavailable
from agentrun.log.replay import History, decode
from agentrun.log.store import Levels, LogStore, RunInfo, RunRow
from agentrun.log.summary import Phase
from agentrun.spec import (
    CONFIG_DIR_VARIABLE,
    AgentRun,
    AgentRunSpec,
    ManifestError,
    definition_digest,
    resolve_secrets,
    resolve_texts,
    same_definition,
)
from agentrun_api.access import ALL_NAMESPACES
from agentrun_api.executor import Signal, Stand, Started, StartRefused
from agentrun_api.inprocess_plan import Do, next_of, stand_of

log = logging.getLogger(__name__)

OWNER_PREFIX = "server/"
NOBODY = "/"
"""No owner begins so: a namespace has no runs where there are no namespaces."""

LOOK_SECONDS = 2.0
"""How often all runs are looked at where no hint says that one has changed."""

RUNS_MAX = 64
"""Runs that one process carries out at once; others wait."""

KEYS = UUID("6f2d3c1e-9a2b-5e0c-8f57-0d8a4b7f2c11")
"""The namespace of run ids that are made of keys."""

WAIT_SECONDS = 0.1
COMMAND = "agentrun api"

SETTLED = frozenset({Phase.PAUSED, Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED})


@dataclass
class _Running:
    """A run that this process carries out."""

    task: asyncio.Task[None]
    session: Session | None = None


class InProcessRunExecutor:
    """See the module's docstring. `environ` holds the secrets, as for the command."""

    def __init__(
        self, store: LogStore, *, environ: Mapping[str, str] = os.environ, clock: Clock | None = None
    ) -> None:
        self._store = store
        self._environ = environ
        self._clock = clock or Clock()
        self._appender = Appender(store, self._clock)
        self._machine = this_machine()
        self._running: dict[UUID, _Running] = {}
        self._wake = asyncio.Event()
        self._stopping = False
        self._refused: dict[UUID, str] = {}
        """Runs that cannot start here, and why; until somebody says something about them."""

    # --- what is wanted

    async def start(self, manifest: AgentRun, *, key: str = "") -> Started:
        run_id = manifest.spec.run_id or (uuid.uuid5(KEYS, key) if key else uuid.uuid4())
        await self._check(manifest.spec)
        data = definition_of(manifest.spec)
        name = manifest.metadata.name or manifest.metadata.generate_name or "run"
        row = RunRow(
            run_id=run_id,
            owner=OWNER_PREFIX + name,
            name=name,
            definition=data,
            digest=definition_digest(data),
            levels=first_levels(manifest.spec),
        )
        created = await self._store.create_run(row)
        if not created:
            found = await self._store.get_run(run_id)
            same = found is not None and same_definition(found.run.definition, data)
            if found is None or not same or found.run.owner != row.owner:
                raise StartRefused("Conflict", f"run {run_id} is there already, with another manifest")
        self._wake.set()
        return Started(run_id=run_id, created=created)

    async def _check(self, spec: AgentRunSpec) -> None:
        """Whatever keeps this run from starting here is told to who starts it."""
        try:
            program = await asyncio.to_thread(self._program, spec)
        except _CANNOT_START as error:
            raise StartRefused("CannotStart", str(error)) from error
        await program.close()

    def _program(self, spec: AgentRunSpec) -> Program:
        secrets, dsn = resolve_secrets(spec, self._environ), self._environ.get(DSN_VARIABLE, "")
        return prepare(self._with_texts(spec), secrets, hidden=passwords(dsn), config_dir=self._config_dir)

    @property
    def _config_dir(self) -> Path | None:
        folder = self._environ.get(CONFIG_DIR_VARIABLE)
        return Path(folder) if folder else None

    def _with_texts(self, spec: AgentRunSpec) -> AgentRunSpec:
        return resolve_texts(spec, self._config_dir)

    async def signal(self, run: RunRow, signal: Signal) -> None:
        if not run.owner.startswith(OWNER_PREFIX):
            raise StartRefused("OwnedElsewhere", f"run {run.run_id} belongs to {run.owner}: change it there")
        info = await self._store.get_run(run.run_id)
        if info is None:
            raise StartRefused("NotFound", f"there is no run {run.run_id}")
        await change_levels(self._store, info, partial(_changed, signal=signal))
        self._refused.pop(run.run_id, None)
        self._wake.set()

    async def wait(self, run_id: UUID) -> Stand:
        while True:
            info = await self._store.get_run(run_id)
            if info is None:
                raise KeyError(run_id)
            stand = self.stand(info)
            idle = run_id in self._refused or await self._next(info) is Do.NOTHING
            if stand.phase in SETTLED and idle and run_id not in self._running:
                return stand
            await asyncio.sleep(WAIT_SECONDS)

    def namespace(self, manifest: AgentRun) -> str:
        return ALL_NAMESPACES

    def owner_prefix(self, namespace: str) -> str:
        return NOBODY if namespace else ""

    def stand(self, info: RunInfo) -> Stand:
        if why := self._refused.get(info.run.run_id):
            return Stand(phase=Phase.PAUSED, reason="CannotStart", message=why)
        return stand_of(info, self._holder(info))

    async def look(self, info: RunInfo) -> Stand:
        return self.stand(info)

    def _holder(self, info: RunInfo) -> Holder:
        return holder(info.last_attempt, self._machine)

    # --- what is done

    async def run(self) -> None:
        """Carries runs out until it is cancelled; then pauses what runs here, within its grace."""
        with suppress(StoreUnavailable):
            await self._store.listen(self._hint)
        try:
            while True:
                self._wake.clear()
                try:
                    await self._look()
                except LogError as error:
                    log.warning("runs cannot be looked at: %s", error)
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await self._wake.wait()
        finally:
            await self._pause_all()

    def _hint(self, run_id: UUID | None) -> None:
        # Of the runs that run here, their own sessions take care.
        if run_id not in self._running:
            self._wake.set()

    async def _look(self) -> None:
        for standing in await self._store.live_runs(OWNER_PREFIX):
            run_id = standing.run_id
            if len(self._running) >= RUNS_MAX:
                return
            if run_id in self._running or run_id in self._refused:
                continue
            info = await self._store.get_run(run_id)
            if info is None:
                continue
            do = await self._next(info)
            if do is not Do.NOTHING:
                work = self._carry_out(info) if do is Do.START else self._end(run_id)
                self._running[run_id] = _Running(asyncio.create_task(self._through(run_id, work)))

    async def _next(self, info: RunInfo) -> Do:
        who = self._holder(info)
        do = next_of(info, who, answered=False)
        if do is Do.NOTHING and next_of(info, who, answered=True) is Do.START:
            return next_of(info, who, answered=await _answered(self._store, info.run.run_id))
        return do

    async def _through(self, run_id: UUID, work: Coroutine[Any, Any, None]) -> None:
        """What is done for one run, to its end, whatever that is."""
        try:
            await work
        except _CANNOT_START as error:
            self._refused[run_id] = str(error)
            log.warning("run %s cannot start: %s", run_id, error)
        except (Fenced, RunEnded, HeldElsewhere) as error:
            log.info("run %s is somebody else's: %s", run_id, error)
        except LogError as error:
            log.warning("run %s: %s", run_id, error)
        except Exception:
            log.exception("run %s: a fault of agentrun", run_id)
            self._refused[run_id] = "a fault of agentrun; the server's log says more"
        finally:
            del self._running[run_id]
            self._wake.set()

    async def _end(self, run_id: UUID) -> None:
        await end_run(self._store, run_id, this_process(COMMAND), "cancelled over the API")

    async def _carry_out(self, info: RunInfo) -> None:
        spec = await spec_of(self._store, info, self._with_texts)
        program = await asyncio.to_thread(self._program, spec)
        try:
            process = replace(this_process(COMMAND), generation=info.run.levels.generation)
            allocated = await allocate(self._store, info.run.run_id, process, take_over=False)
            if allocated.attempt is not None:
                await self._run_session(info.run.run_id, allocated.attempt, program, spec)
        finally:
            await program.close()

    async def _run_session(self, run_id: UUID, attempt: int, program: Program, spec: AgentRunSpec) -> None:
        running = self._running[run_id]
        running.session = Session(
            self._store,
            program,
            run_id=run_id,
            attempt=attempt,
            process=f"{COMMAND} on {self._machine.host}, pid {os.getpid()}",
            grace_seconds=spec.termination_grace_period_seconds,
            result_text=result_text,
            appender=self._appender,
        )
        if self._stopping:
            running.session.stop()
        outcome = await running.session.run()
        log.info("run %s: %s", run_id, outcome.reason or outcome.outcome)

    async def _pause_all(self) -> None:
        """Within the grace of each, which its session keeps."""
        self._stopping = True
        tasks = [running.task for running in self._running.values()]
        for running in self._running.values():
            if running.session is not None:
                running.session.stop()
        if tasks:
            await asyncio.wait(tasks)
        await self._appender.close()


async def _answered(store: LogStore, run_id: UUID) -> bool:
    """The run's inbox has an answer that it waits for."""
    inbox = await store.inbox(run_id)
    if not inbox:
        return False
    history = History(run_id)
    for seq, data in await store.read_rows(run_id):
        history.fold(seq, decode(run_id, seq, data))
    return is_answered(history, inbox)


_CANNOT_START = (ManifestError, SetupError)


def _changed(stored: Levels, *, signal: Signal) -> Levels:
    wanted = of_resume(signal.budget)(stored) if signal.budget else stored
    wanted = of_shutdown(signal.shutdown)(wanted) if signal.shutdown else wanted
    return replace(wanted, suspend=stored.suspend if signal.suspend is None else signal.suspend)
