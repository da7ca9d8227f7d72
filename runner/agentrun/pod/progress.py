"""What a run's own events look like in a pod's log.

Who calls: the session that `main` runs. What holds: a line says what happened, how
long it took and what it cost; never what was said.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.message import DecodeError

from agentrun.graph.executor import Executor
from agentrun.graph.observing import PASSING
from agentrun.log.replay import TRY
from agentrun.log.runlog import RunLog
from agentrun.pod.output import Output
from agentrun.proto import log_pb2 as pb
from agentrun.proto.transcript_pb2 import RunResult

AWAY_TOLD_SECONDS = 15.0
"""How often it is told that the store is still away."""


class Progress:
    """Writes a line an event."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._away_told = float("-inf")

    def claimed(self, log: RunLog, executor: Executor) -> None:
        """For Session's `on_claimed`."""
        history = log.history
        self._output.write(
            "claimed",
            epoch=log.epoch,
            head=history.head,
            done=len(history.done),
            pending=len(history.pending()),
        )

    def observe(self, event: str, node: str, fields: Mapping[str, Any]) -> None:
        """For Session's `observer`."""
        if event in PASSING:
            return
        if event == "store_away":
            self._store_away(fields["seconds"], fields["error"])
            return
        if event == "store_back":
            self._away_told = float("-inf")
            self._output.write(event)
            return
        record = fields.get("record")
        if not isinstance(record, pb.NodeRecord):
            shown: dict[str, Any] = {name: value for name, value in fields.items() if name != "attempt"}
            self._output.write(event, node=node, **shown)
            return
        cost = record.cost
        shown = {"node": node, "ms": cost.wall_ms}
        if record.kind != TRY:
            shown["kind"] = record.kind
        if cost.tokens_in or cost.tokens_out:
            shown |= {"tokens_in": cost.tokens_in, "tokens_out": cost.tokens_out}
        if record.HasField("error"):
            error = record.error
            shown |= {"reason": error.reason, "message": error.message, "retryable": error.retryable}
            if error.retry_in_ms:
                shown["retry_in_ms"] = error.retry_in_ms
        if record.HasField("final"):
            shown |= {"outcome": pb.Outcome.Name(record.final.outcome).removeprefix("OUTCOME_").lower()}
        self._output.write(event, "warning" if event == "failed" else "info", **shown)

    def _store_away(self, seconds: float, error: str) -> None:
        if seconds - self._away_told >= AWAY_TOLD_SECONDS:
            self._away_told = seconds
            self._output.write("store_away", "warning", seconds=round(seconds), message=error)


def result_text(data: bytes) -> str:
    """The answer in a final record's output. ValueError where there is none."""
    try:
        return RunResult.FromString(data).text
    except DecodeError as error:
        raise ValueError("the output is no answer") from error
