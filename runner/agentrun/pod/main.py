"""A runner pod: reads its run, claims it, runs it, and says how it ended.

Who calls: `__main__`, with the signals heard already. What holds: nothing is called
out before the store is reached and the run is claimed; whatever happens is told in a
line of the log and by an exit code (0 ended well, 1 ended otherwise, 2 cannot start,
75 paused, 76 fenced off), and the log in the store decides all the same.
"""

from __future__ import annotations

import asyncio
import os
import traceback
from contextlib import suppress
from typing import NoReturn

from agentrun.log.appender import OUTAGE_SECONDS_MAX, retried
from agentrun.log.blobs import TableBlobs
from agentrun.log.clock import Clock
from agentrun.log.environment import SettingsError
from agentrun.log.errors import (
    Fenced,
    LogError,
    RunEnded,
    StoreUnavailable,
)
from agentrun.log.postgres import PostgresStore
from agentrun.log.replay import decode
from agentrun.log.store import AttemptOutcome, LogStore, RunInfo
from agentrun.log.summary import Phase, phase_of
from agentrun.pod import ending, settings
from agentrun.pod.ending import CannotStart, Ending
from agentrun.pod.output import Output, take_over_logging
from agentrun.pod.settings import Settings
from agentrun.signals import EXIT_PAUSED, LAST_WORDS_SECONDS_MAX, Signals, close_attempt_apart

CONNECT_SECONDS_MAX = 5.0
WAITING_TOLD_SECONDS = 15.0
"""How often a pod that waits for the store says so."""

CLOSE_SECONDS_MAX = 1.0

HARD_END_SECONDS_MAX = 0.5
HARD_END_SHARE = 0.1
"""The process ends itself this long before the kubelet does: 10 % of the grace, at most 0.5 s."""


def main(signals: Signals) -> NoReturn:
    """Runs the pod and ends the process, whatever threads are left in it."""
    log_settings = settings.log_settings()
    output = Output(log_settings)
    signals.on_early = lambda: _leave_early(output)
    try:
        told = settings.read()
        output.hide(told.passwords)
        output.context.update(run=str(told.run_id), attempt=told.attempt)
        take_over_logging(output, log_settings)
        loop = asyncio.new_event_loop()
        end = loop.run_until_complete(_Pod(told, output, signals).run())
    except SettingsError as error:
        for problem in error.problems:
            output.write("bad_setting", "error", message=problem)
        end = Ending(code=ending.EXIT_CANNOT_START, reason="InvalidSettings", message=ending.cut(str(error)))
    except Exception as error:
        output.write("fault", "error", message=str(error), trace=traceback.format_exc())
        message = ending.cut(output.clean(f"{type(error).__name__}: {error}"))
        end = Ending(code=ending.EXIT_FAULT, reason="Fault", message=message)
    _leave(output, end)
    os._exit(end.code)


def hard_end_seconds(grace_seconds: float) -> float:
    """When the process ends itself after SIGTERM, whatever it waits for."""
    return grace_seconds - min(HARD_END_SECONDS_MAX, HARD_END_SHARE * grace_seconds)


def last_words_seconds(grace_seconds: float) -> float:
    """When its last words are said, should it still live: when nodes in flight are given up already."""
    return hard_end_seconds(grace_seconds) - min(LAST_WORDS_SECONDS_MAX, HARD_END_SHARE * grace_seconds)


_STOPPED_EARLY = Ending(
    code=EXIT_PAUSED,
    phase=Phase.PAUSED,
    reason="Terminated",
    message="stopped before the run was claimed",
)


def _leave_early(output: Output) -> NoReturn:
    try:
        _leave(output, _STOPPED_EARLY)
    finally:
        os._exit(EXIT_PAUSED)


def _leave(output: Output, end: Ending) -> None:
    output.write(
        "ended",
        "info" if end.code in (ending.EXIT_SUCCEEDED, EXIT_PAUSED) else "error",
        phase=end.phase,
        reason=end.reason,
        message=end.message,
        exit_code=end.code,
    )
    ending.write_last_words(end, settings.termination_log())


class _Pod:
    def __init__(self, told: Settings, output: Output, signals: Signals) -> None:
        self._told = told
        self._output = output
        self._signals = signals
        self._store = self._open()

    def _open(self) -> LogStore:
        told = self._told
        return PostgresStore.open(
            told.database_url,
            prepared_statements=told.prepared_statements,
            connect_timeout_seconds=CONNECT_SECONDS_MAX,
            application_name="agentrun-pod",
            migrate=False,  # the operator's: a runner's role needs no more than to read and write
            listen_dsn=told.listen_url,
        )

    async def run(self) -> Ending:
        """How it ended; raises what is a fault of ours."""
        end = await self._attempt()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS_MAX):
                await self._store.close()
        return end

    async def _attempt(self) -> Ending:
        told = self._told
        self._output.write(
            "starting", pod=told.pod_name, node=told.node_name, grace_seconds=told.grace_seconds
        )
        try:
            info = await self._reach()
            if info is None:
                return _fenced("there is no such run")
            if info.run.ended:
                return await self._ended()
            if info.run.attempt != told.attempt:
                return _fenced(f"attempt {told.attempt} is not the newest, which is {info.run.attempt}")
            return await self._session(info)
        except RunEnded as error:
            return await self._ended(error.seq)
        except Fenced as error:
            return _fenced(error.why)
        except StoreUnavailable as error:
            return self._end(EXIT_PAUSED, "StoreUnavailable", error, phase=Phase.PAUSED)
        except CannotStart as error:
            end = error.ending
            await self._close_attempt(end)
            return end
        except LogError as error:
            return self._end(ending.EXIT_CANNOT_START, type(error).__name__, error)

    def _end(self, code: int, reason: str, error: Exception, *, phase: str = "") -> Ending:
        return Ending(
            code=code, phase=phase, reason=reason, message=ending.cut(self._output.clean(str(error)))
        )

    async def _reach(self) -> RunInfo | None:
        """The run's row; waits for a store that is away, and says so."""
        told_at = float("-inf")

        def tell(seconds: float, error: StoreUnavailable | None) -> None:
            nonlocal told_at
            if seconds - told_at >= WAITING_TOLD_SECONDS:
                told_at = seconds
                self._output.write("waiting_for_store", "warning", message=error)

        run_id = self._told.run_id
        return await retried(lambda: self._store.get_run(run_id), Clock(), OUTAGE_SECONDS_MAX, tell)

    async def _session(self, info: RunInfo) -> Ending:
        # Imported when the store is reached: a pod that waits for it has time, and one that
        # was started in vain needs none of this.
        from agentrun.graph.session import Session
        from agentrun.pod import program as programs
        from agentrun.pod.progress import Progress, result_text

        told, store = self._told, self._store
        program = await programs.load(
            store, info, told.config_dir, hide=self._output.hide, hidden=told.passwords
        )
        progress = Progress(self._output)
        session = Session(
            store,
            program,
            run_id=told.run_id,
            attempt=told.attempt,
            process=told.process,
            grace_seconds=told.grace_seconds,
            observer=progress.observe,
            blobs=TableBlobs(store),
            on_claimed=progress.claimed,
            result_text=result_text,
        )
        self._signals.last_words = lambda: close_attempt_apart(self._open, told.run_id, told.attempt)
        self._signals.watch(
            session.stop,
            session.stop_at_once,
            words_seconds=last_words_seconds(told.grace_seconds),
            end_seconds=hard_end_seconds(told.grace_seconds),
        )
        try:
            outcome = await session.run()
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS_MAX):
                    await program.close()
        return Ending(
            code=ending.code_of(outcome.outcome),
            phase=phase_of(outcome.outcome),
            reason=outcome.reason,
            message=ending.cut(self._output.clean(outcome.message)),
        )

    async def _ended(self, seq: int = 0) -> Ending:
        """How a run ended that has ended already; reads the log for it."""
        run_id = self._told.run_id
        for number, data in reversed(await self._store.read_rows(run_id, after=max(0, seq - 1))):
            record = decode(run_id, number, data)
            if record.HasField("final"):
                final = record.final
                return Ending(
                    code=ending.code_of(final.outcome),
                    phase=phase_of(final.outcome),
                    reason=final.reason,
                    message=ending.cut("the run had ended already"),
                )
        return _fenced("the run was forgotten")

    async def _close_attempt(self, end: Ending) -> None:
        """Says in the store why the attempt ended, for the pod and its words may be gone soon."""

        async def close() -> None:
            told = self._told
            await self._store.close_attempt(told.run_id, told.attempt, AttemptOutcome.FAILED, end.note)
            await self._store.notify([told.run_id])

        with suppress(LogError, TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS_MAX):
                await close()


def _fenced(why: str) -> Ending:
    return Ending(code=ending.EXIT_FENCED, reason="Fenced", message=ending.cut(why))
