"""Runs of a manifest in real time, in this process, with the log in memory: for models over HTTP.

run = LiveRun(manifest)
assert run.go().reason == "Completed"       # a first process; `go` again is the next one
assert run.history.done["turn-1"]
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from agentrun.agent import prepare
from agentrun.graph.executor import Outcome
from agentrun.graph.session import Session
from agentrun.log.memory import Database, MemoryStore
from agentrun.log.replay import History
from agentrun.log.store import AttemptOutcome, RunRow
from agentrun.proto import log_pb2
from agentrun.proto import transcript_pb2 as pb
from agentrun.spec import parse_object


class LiveRun:
    """One run. `secrets` as `prepare` takes them."""

    def __init__(
        self, manifest: Mapping[str, Any], secrets: Mapping[tuple[str, str], str] | None = None
    ) -> None:
        self.spec = parse_object(manifest, source="a test").spec
        self.secrets = dict(secrets or {})
        self.run_id = uuid4()
        self.database = Database(time.time)

    def change(self, manifest: Mapping[str, Any]) -> None:
        """For the next process."""
        self.spec = parse_object(manifest, source="a test").spec

    def go(self, *, seconds_max: float = 60.0, **session: Any) -> Outcome:
        """One process, to its end."""

        async def main() -> Outcome:
            async with asyncio.timeout(seconds_max):
                return await self._process(session)

        return asyncio.run(main())

    async def _process(self, more: Mapping[str, Any]) -> Outcome:
        store = MemoryStore(self.database)
        if await store.get_run(self.run_id) is None:
            row = RunRow(run_id=self.run_id, owner="test", name="t", definition=b"", digest="")
            await store.create_run(row)
        info = await store.get_run(self.run_id)
        assert info is not None
        attempt = await store.allocate_attempt(
            self.run_id, expected=info.run.attempt, process="", previous=AttemptOutcome.DISRUPTED
        )
        assert attempt is not None, "the run has ended"
        program = prepare(self.spec, self.secrets)
        try:
            return await Session(store, program, run_id=self.run_id, attempt=attempt, **more).run()
        finally:
            await program.close()

    @property
    def history(self) -> History:
        """Replayed from the rows."""
        history = History(self.run_id)
        history.fold_rows(sorted(self.database.runs[self.run_id].log.items()))
        return history

    @property
    def records(self) -> dict[str, log_pb2.NodeRecord]:
        """By id, in the order of the log."""
        rows = sorted(self.database.runs[self.run_id].log.items())
        found = [log_pb2.NodeRecord.FromString(data) for _, data in rows]
        return {record.id: record for record in found}

    @property
    def answer(self) -> str:
        final = self.history.final
        assert final is not None
        return pb.RunResult.FromString(final.output.inline).text

    def turn(self, number: int) -> pb.AssistantTurn:
        """The recorded turn."""
        return pb.AssistantTurn.FromString(self.history.done[f"turn-{number}"].output.inline)


def manifest(model: Mapping[str, Any], **spec: Any) -> dict[str, Any]:
    """A manifest of one agent; `agent`: more of its fields."""
    agent = {"model": dict(model), **spec.pop("agent", {})}
    return {
        "apiVersion": "agentrun.dev/v1alpha1",
        "kind": "AgentRun",
        "metadata": {"name": "test"},
        "spec": {"prompt": "Go on.", "agent": agent, **spec},
    }
