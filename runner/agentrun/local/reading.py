"""A run's log read at once, and what its records' outputs hold.

Who calls: the commands, and the API.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from agentrun.local.records import answer_of
from agentrun.log.blobs import TableBlobs
from agentrun.log.errors import LogError
from agentrun.log.replay import History, decode
from agentrun.log.store import LogStore, RunInfo
from agentrun.proto import log_pb2 as pb


@dataclass
class Log:
    """A run's log, read at once."""

    history: History
    records: list[tuple[int, pb.NodeRecord]] = field(default_factory=list)


async def read_log(store: LogStore, info: RunInfo) -> Log:
    """Reads and folds it. Raises CorruptLog."""
    log = Log(History(info.run.run_id))
    for seq, data in await store.read_rows(info.run.run_id):
        record = decode(info.run.run_id, seq, data)
        log.history.fold(seq, record)
        log.records.append((seq, record))
    return log


async def payload(store: LogStore, info: RunInfo, output: pb.Payload) -> bytes:
    """The bytes of an output, from wherever they are."""
    if output.WhichOneof("where") != "blob":
        return output.inline
    return await TableBlobs(store).get(info.run.run_id, output.blob)


async def read_answer(store: LogStore, info: RunInfo, history: History) -> str | None:
    """The answer of a run that has ended well, else None."""
    final = history.final
    if final is None:
        return None
    with suppress(LogError):
        return answer_of(final, await payload(store, info, final.output))
    return None
