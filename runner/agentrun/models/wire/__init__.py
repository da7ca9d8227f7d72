"""What providers' APIs look like on the wire, one module a dialect.

A dialect reads an answer into our schema and writes an assistant turn back.
Both are ours, and not a library's, because both must be exact: arguments byte
for byte, signatures and server blocks word for word, usage as it was sent. The
rest of a request (addresses, headers, tools, settings) is the library's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from agentrun.models.wire.usage import Counts
from agentrun.proto import transcript_pb2 as pb

__all__ = ["Dialect"]


class Dialect(Protocol):
    """The functions that a dialect's module has."""

    def read(self, text: str, body: dict[str, Any]) -> pb.AssistantTurn:
        """The turn in `body`, which is the JSON `text` parsed; raises `BadAnswer` when it holds none.

        Sets parts, finish_raw, model and response_id; `finish_raw` is empty when
        the provider gave no reason.
        """

    def write(self, turn: pb.AssistantTurn, ids: Sequence[str], *, own: bool) -> str:
        """The turn as JSON: one or more objects with commas between, never none.

        `ids` are the wire ids of its calls, in order. What only its author
        understands (thinking, server blocks) is written only when `own`.
        """

    def counts(self, body: dict[str, Any]) -> Counts:
        """What `body` says of the tokens used; nothing where it says nothing sane."""
