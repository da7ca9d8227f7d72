"""Ids of tool calls, for one request.

A provider's ids are data: they come empty, twice, or with characters that it
refuses itself. A request needs them unique and well formed, so those that are
not are replaced by the call's place in the conversation. The ids of a turn
depend on what stands before it alone: a longer conversation keeps the prefix,
and the provider's cache with it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentrun.models.base import Message
from agentrun.proto import transcript_pb2 as pb

_WELL_FORMED = re.compile(r"[a-zA-Z0-9_-]{1,64}").fullmatch
_NAME = re.compile(r"[^a-zA-Z0-9_-]")


def wire_ids(messages: Sequence[Message]) -> list[list[str]]:
    """For each assistant turn the ids of its calls, in order; all are different."""
    used: set[str] = set()
    turns = [message for message in messages if isinstance(message, pb.AssistantTurn)]
    return [
        [_one(call.wire_id, f"call_{place}_{index}", used) for index, call in enumerate(calls_of(turn))]
        for place, turn in enumerate(turns)
    ]


def calls_of(turn: pb.AssistantTurn) -> list[pb.ToolCallPart]:
    """The tool calls of a turn, in order."""
    return [part.tool_call for part in turn.parts if part.HasField("tool_call")]


def wire_name(name: str) -> str:
    """A tool's name as a provider takes it back, whatever the model made up."""
    return _NAME.sub("_", name)[:64] or "unnamed"


def _one(recorded: str, invented: str, used: set[str]) -> str:
    chosen = recorded
    if not _WELL_FORMED(recorded) or recorded in used:
        chosen = invented
        while chosen in used:
            chosen += "_"
    used.add(chosen)
    return chosen
