"""Runs, steps and events in the shapes that `-o json` prints (docs/cli.md). Pure.

Who calls: the command. What holds: the shapes are stable: keys are only added, and a
key is always there, null where there is nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from agentrun.local.holders import Holder, Standing
from agentrun.local.levels import budget_of
from agentrun.local.process import parse_process
from agentrun.local.records import (
    IS_OF_LOG,
    decode_output,
    describe,
    instant,
    moment,
    outcome_name,
    output_size,
)
from agentrun.log.replay import History
from agentrun.log.store import AttemptOutcome, AttemptRow, RunInfo
from agentrun.log.summary import Phase, budget_used, phase_of
from agentrun.proto import log_pb2 as pb

INTERRUPTED = "Interrupted"
"""The reason of a run whose process is dead."""

LIMITS = ("tokens", "wallSeconds", "turns", "retries")


def phase_now(info: RunInfo, who: Holder, history: History | None = None) -> tuple[Phase, str, str]:
    """Phase, reason and message of a run. `history`: its log, where it was read; the summary
    may be behind it."""
    if history is not None and history.final is not None:
        final = history.final.final
        return phase_of(final.outcome), final.reason, final.message
    summary = summary_of(info)
    if info.run.ended:
        phase = Phase(summary.get("phase", Phase.PAUSED))
        return phase, summary.get("reason", ""), summary.get("message", "")
    levels = info.run.levels
    if who.standing is Standing.NEVER:
        return (Phase.PAUSED, "Suspended", "") if levels.suspend else (Phase.PENDING, "", "")
    if who.live:
        if levels.shutdown:
            return Phase.RUNNING, "Cancelling", ""
        return (Phase.PAUSING, "Suspended", "") if levels.suspend else (Phase.RUNNING, "", "")
    attempt = who.attempt
    if attempt is not None and attempt.outcome in (AttemptOutcome.PAUSED, AttemptOutcome.FAILED):
        told = summary.get("reason") == attempt.reason
        return Phase.PAUSED, attempt.reason, summary.get("message", "") if told else ""
    return Phase.PAUSED, INTERRUPTED, ""


def needs_log(info: RunInfo) -> bool:
    """The run has ended and its summary does not know: its writer died in between."""
    return info.run.ended and not Phase(summary_of(info).get("phase", Phase.PAUSED)).terminal


def summary_of(info: RunInfo) -> dict[str, Any]:
    """The stored projection; {} if there is none."""
    value: dict[str, Any] = json.loads(info.summary) if info.summary else {}
    return value


def list_entry(info: RunInfo, who: Holder, history: History | None = None) -> dict[str, Any]:
    """A run in a list."""
    phase, reason, _ = phase_now(info, who, history)
    used = budget_used(history) if history is not None else summary_of(info).get("budget", {})
    return {
        "runID": str(info.run.run_id),
        "name": info.run.name,
        "owner": info.run.owner,
        "phase": str(phase),
        "reason": reason,
        "attempt": info.run.attempt,
        "turns": used.get("turns", 0),
        "tokens": used.get("tokens", 0),
        "createdAt": instant(info.run.created_at),
        "endedAt": instant(info.run.ended_at),
    }


def budget_view(history: History, limits: dict[str, Any]) -> dict[str, Any]:
    """What is used, and of how much (null: no limit)."""
    used = budget_used(history)
    view: dict[str, Any] = {name: {"used": used[name], "limit": limits.get(name)} for name in LIMITS}
    for name in ("tokensIn", "tokensOut", "tokensCached", "tokensReasoning", "estimated"):
        view[name] = used[name]
    view["onExceeded"] = limits.get("onExceeded", "Pause")
    return view


def result_view(
    info: RunInfo,
    history: History,
    *,
    phase: Phase,
    reason: str,
    message: str,
    answer: str | None,
    exit_code: int,
) -> dict[str, Any]:
    """How a run stands when a command that ran it, or asked for its end, is through."""
    return {
        "runID": str(info.run.run_id),
        "name": info.run.name,
        "phase": str(phase),
        "reason": reason,
        "message": message,
        "answer": answer,
        "attempt": history.attempt,
        "budget": budget_view(history, budget_of(info.run.levels)),
        "exitCode": exit_code,
    }


def run_view(
    info: RunInfo,
    who: Holder,
    history: History,
    *,
    attempts: Sequence[AttemptRow],
    records: Sequence[tuple[int, pb.NodeRecord]],
    answer: str | None,
) -> dict[str, Any]:
    """All about a run."""
    phase, reason, message = phase_now(info, who, history)
    levels = info.run.levels
    return {
        "runID": str(info.run.run_id),
        "name": info.run.name,
        "owner": info.run.owner,
        "phase": str(phase),
        "reason": reason,
        "message": message,
        "answer": answer,
        "createdAt": instant(info.run.created_at),
        "endedAt": instant(info.run.ended_at),
        "budget": budget_view(history, budget_of(levels)),
        "levels": {
            "generation": levels.generation,
            "suspend": levels.suspend,
            "shutdown": levels.shutdown_how,
        },
        "attempts": [_attempt_view(row, who) for row in attempts],
        "steps": [_step_view(seq, record) for seq, record in records if record.kind not in IS_OF_LOG],
    }


def _attempt_view(row: AttemptRow, who: Holder) -> dict[str, Any]:
    process = parse_process(row.process)
    newest = who.attempt is not None and row.attempt == who.attempt.attempt
    return {
        "attempt": row.attempt,
        "outcome": str(row.outcome) if row.outcome is not None else None,
        "reason": row.reason,
        "live": newest and who.live,
        "startedAt": instant(row.started_at),
        "endedAt": instant(row.ended_at),
        "process": {"host": process.host, "pid": process.pid, "command": process.command},
    }


def _step_view(seq: int, record: pb.NodeRecord) -> dict[str, Any]:
    return {
        "seq": seq,
        "node": record.id,
        "kind": record.kind,
        "attempt": record.attempt,
        "startedAt": moment(record.started_us),
        "finishedAt": moment(record.finished_us),
        "cost": cost_view(record),
    }


def cost_view(record: pb.NodeRecord) -> dict[str, Any]:
    """What one record cost."""
    cost = record.cost
    return {
        "tokensIn": cost.tokens_in,
        "tokensOut": cost.tokens_out,
        "tokensCached": cost.tokens_cached,
        "wallMs": cost.wall_ms,
        "turns": cost.turns,
        "retries": cost.retries,
        "estimated": cost.estimated,
    }


def event_view(seq: int, record: pb.NodeRecord, data: bytes | None) -> dict[str, Any]:
    """One record of the log. `data`: its output, None where it is not at hand."""
    error, final, ask = record.error, record.final, record.ask
    return {
        "seq": seq,
        "time": moment(record.finished_us),
        "node": record.id,
        "kind": record.kind,
        "what": describe(record, data),
        "attempt": record.attempt,
        "epoch": record.epoch,
        "parents": list(record.parents),
        "spawned": [spawn.id for spawn in record.spawned],
        "consumed": list(record.consumed),
        "ask": {"id": ask.id, "reason": ask.reason, "tool": ask.subject, "arguments": ask.detail}
        if record.HasField("ask")
        else None,
        "cost": cost_view(record),
        "output": {
            "mediaType": record.output.media_type,
            "sizeBytes": output_size(record.output),
            "value": _plain(record, data),
        },
        "error": {
            "reason": error.reason,
            "message": error.message,
            "retryable": error.retryable,
            "retryInMs": error.retry_in_ms,
        }
        if record.HasField("error")
        else None,
        "final": {
            "outcome": outcome_name(final.outcome),
            "reason": final.reason,
            "message": final.message,
        }
        if record.HasField("final")
        else None,
    }


def _plain(record: pb.NodeRecord, data: bytes | None) -> Any:
    """The output as JSON has it: an object, a text; None where it is neither, or not at hand."""
    from google.protobuf.json_format import MessageToDict
    from google.protobuf.message import Message

    if not data:
        return None
    value = decode_output(record.kind, record.output.media_type, data)
    return MessageToDict(value) if isinstance(value, Message) else value
