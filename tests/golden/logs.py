"""Golden logs: what released formats look like, and what they fold to.

A folder `format-N` a format, written once by `make` and never changed: a log that was
written by a release must replay in every later one. In it, a log a folder:

    log.jsonl       {"seq", "record"}: a row of run_log a line, the record in base64
    fold.json       what it folds to
    blobs.jsonl     {"sha256", "data"}: what its records point at (may be missing)
    manifest.json   what ran (may be missing)
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID

from agentrun.log.asks import waiting
from agentrun.log.replay import History
from agentrun.proto import log_pb2 as pb

FOLDER = Path(__file__).parent
RUN = UUID("6ba7b810-9dad-41d1-80b4-00c04fd430c8")
"""The run that every golden log is of: it stands in no record."""

Rows = list[tuple[int, bytes]]


def golden_logs() -> list[Path]:
    """The folders of all logs of all formats."""
    return sorted(path.parent for path in FOLDER.glob("format-*/*/log.jsonl"))


def read_rows(folder: Path) -> Rows:
    lines = (json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines())
    return [(line["seq"], base64.b64decode(line["record"])) for line in lines]


def read_blobs(folder: Path) -> dict[bytes, bytes]:
    file = folder / "blobs.jsonl"
    lines = (json.loads(line) for line in file.read_text().splitlines()) if file.exists() else ()
    return {bytes.fromhex(line["sha256"]): base64.b64decode(line["data"]) for line in lines}


def write(folder: Path, rows: Rows, blobs: dict[bytes, bytes], manifest: Any = None) -> None:
    """Writes a log and what it folds to; FileExistsError where there is one."""
    folder.mkdir(parents=True)
    _write_lines(folder / "log.jsonl", ({"seq": seq, "record": _text(data)} for seq, data in rows))
    (folder / "fold.json").write_text(json.dumps(fold_of(rows), indent=1) + "\n")
    if blobs:
        lines = ({"sha256": digest.hex(), "data": _text(data)} for digest, data in sorted(blobs.items()))
        _write_lines(folder / "blobs.jsonl", lines)
    if manifest is not None:
        (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


def fold_of(rows: Sequence[tuple[int, bytes]]) -> dict[str, Any]:
    """All that a replay knows, as JSON."""
    history = History(RUN)
    history.fold_rows(rows)
    totals = history.totals
    return {
        "head": history.head,
        "epoch": history.epoch,
        "attempt": history.attempt,
        "done": {id_: _record(record) for id_, record in history.done.items()},
        "spawned": {id_: [s.kind, list(s.parents), _payload(s.input)] for id_, s in history.spawned.items()},
        "pending": [spawn.id for spawn in history.pending()],
        "tries": history.tries,
        "lastTry": {id_: _error(record) for id_, record in history.last_try.items()},
        "failed": list(history.failed),
        "intents": sorted(history.intents),
        "consumed": sorted(history.consumed),
        **({"asks": {ask.id: [ask.node_id, ask.reason] for ask in waiting(history)}} if history.asks else {}),
        "final": [history.final_seq, _final(history.final)] if history.final is not None else None,
        "totals": {
            "tokensIn": totals.tokens_in,
            "tokensOut": totals.tokens_out,
            "tokensCached": totals.tokens_cached,
            "tokensReasoning": totals.tokens_reasoning,
            "turns": totals.turns,
            "retries": totals.retries,
            "estimated": totals.estimated,
            "busyUs": totals.busy.total_us,
        },
    }


def _record(record: pb.NodeRecord) -> dict[str, Any]:
    return {
        "kind": record.kind,
        "parents": list(record.parents),
        "output": _payload(record.output),
        "spawned": [spawn.id for spawn in record.spawned],
        "attempt": record.attempt,
        "epoch": record.epoch,
        "writer": record.writer.hex(),
        "startedUs": record.started_us,
        "finishedUs": record.finished_us,
    }


def _payload(payload: pb.Payload) -> list[Any]:
    if payload.WhichOneof("where") == "blob":
        blob = payload.blob
        return ["blob", payload.media_type, blob.url, blob.size_bytes, blob.sha256.hex()]
    return ["inline", payload.media_type, len(payload.inline), sha256(payload.inline).hexdigest()]


def _error(record: pb.NodeRecord) -> list[Any]:
    error = record.error
    return [record.id, error.reason, error.message, error.retryable, error.retry_in_ms]


def _final(record: pb.NodeRecord) -> list[Any]:
    return [record.id, record.final.outcome, record.final.reason, record.final.message]


def _write_lines(file: Path, lines: Iterable[Any]) -> None:
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
