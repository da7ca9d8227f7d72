"""The record that ends a run from outside its graph, and how texts for records are bounded.

Who calls: the executor, and whoever ends a run that no process runs (the command, the
operator). Pure.
"""

from __future__ import annotations

from agentrun.log.replay import FINALIZE
from agentrun.log.text import safe_text
from agentrun.proto import log_pb2 as pb

MESSAGE_BYTES_MAX = 1024
TEXT = "text/plain"


def bounded(text: str) -> str:
    """A text for an error or an end: safe, at most MESSAGE_BYTES_MAX bytes of UTF-8."""
    data = safe_text(text).encode()
    if len(data) <= MESSAGE_BYTES_MAX:
        return data.decode()
    return data[: MESSAGE_BYTES_MAX - 3].decode("utf-8", "ignore") + "…"


def final_record(outcome: pb.Outcome, reason: str, message: str, *, epoch: int, now_us: int) -> pb.NodeRecord:
    """The record that ends a run without a node of its graph saying so."""
    return pb.NodeRecord(
        id=f"end.{epoch}",
        kind=FINALIZE,
        output=pb.Payload(media_type=TEXT),
        final=pb.Final(outcome=outcome, reason=bounded(reason), message=bounded(message)),
        started_us=now_us,
        finished_us=now_us,
    )
