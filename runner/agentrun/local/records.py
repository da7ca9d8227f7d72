"""What records say, for people and for programs that read our JSON. Pure.

Who calls: the command's views and its progress. What holds: any record of any log
gives something; what is not understood is described by its size.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from google.protobuf.message import DecodeError, Message

from agentrun.graph.types import PROTOBUF, scope_of
from agentrun.log.replay import ASK, ATTEMPT, INTENT, REOPENED, TRY
from agentrun.proto import log_pb2 as pb
from agentrun.proto import transcript_pb2 as transcript

SHOWN_CHARACTERS_MAX = 100
MESSAGE_CHARACTERS_MAX = 1000
"""Of a message that stands for itself, where a line in between others has SHOWN_CHARACTERS_MAX."""

_TYPES: dict[str, type[Message]] = {
    "UserMessage": transcript.UserMessage,
    "AssistantTurn": transcript.AssistantTurn,
    "ToolResult": transcript.ToolResult,
    "ToolList": transcript.ToolList,
    "RunResult": transcript.RunResult,
    "Shortening": transcript.Shortening,
}
_TYPE_OF_KIND = {
    "append_user_message": "UserMessage",
    "run_assistant_turn": "AssistantTurn",
    "tool_call": "ToolResult",
    "list_tools": "ToolList",
    "finalize_run": "RunResult",
    "shorten_results": "Shortening",
    "summarise": "Shortening",
}


def decode_output(kind: str, media_type: str, data: bytes) -> Any:
    """An output as a message of ours, as parsed JSON or as text; None where it is none of these."""
    base, _, parameters = media_type.partition(";")
    try:
        if base == PROTOBUF:
            named = parameters.strip().removeprefix("type=").rpartition(".")[2]
            made = _TYPES.get(named or _TYPE_OF_KIND.get(kind, ""))
            return made.FromString(data) if made is not None else None
        if base == "application/json":
            return json.loads(data)
        if base.startswith("text/"):
            return data.decode()
    except (DecodeError, ValueError):
        return None
    return None


def answer_of(record: pb.NodeRecord, data: bytes) -> str | None:
    """The answer that a final record holds, as text; None where it has none."""
    if record.final.outcome != pb.OUTCOME_SUCCEEDED:
        return None
    value = decode_output(record.kind, record.output.media_type, data)
    if isinstance(value, transcript.RunResult):
        return value.text
    if isinstance(value, transcript.AssistantTurn):
        return _said(value)
    if isinstance(value, Message):
        return None
    if isinstance(value, str):
        return value
    return None if value is None else json.dumps(value, ensure_ascii=False)


def result_text(data: bytes) -> str:
    """The text of a RunResult's bytes; ValueError where they are none."""
    value = decode_output("finalize_run", PROTOBUF, data)
    if not isinstance(value, transcript.RunResult):
        raise ValueError("the output is no RunResult")
    return value.text


def describe(record: pb.NodeRecord, data: bytes | None) -> str:
    """A record in a few words. `data`: its output, None where it is not at hand."""
    if record.HasField("final"):
        final = record.final
        return one_line(f"{outcome_name(final.outcome)}: {final.reason} {final.message}".strip())
    if record.HasField("error"):
        again = f", again in {record.error.retry_in_ms / 1000:g} s" if record.error.retryable else ""
        return one_line(f"{record.error.reason}: {record.error.message}", keep=again)
    if record.kind == ASK:
        ask = record.ask
        return one_line(f"{ask.reason}: {ask.subject}({ask.detail})", keep=f"; waits as {ask.id}")
    if record.kind in (INTENT, REOPENED):
        return f"of {record.parents[0]}" if record.parents else ""
    value = decode_output(record.kind, record.output.media_type, data) if data is not None else None
    return one_line(_words(record, value))


def _words(record: pb.NodeRecord, value: Any) -> str:
    if isinstance(value, transcript.UserMessage):
        return value.text or "the run's prompt"
    if isinstance(value, transcript.AssistantTurn):
        return " ".join(filter(None, [_said(value).strip(), _calls(value)]))
    if isinstance(value, transcript.ToolResult):
        how = transcript.ToolOutcome.Name(value.outcome).removeprefix("TOOL_OUTCOME_").lower()
        return f"{value.name} {how}: {value.content}"
    if isinstance(value, transcript.ToolList):
        return _offer(value)
    if isinstance(value, transcript.RunResult):
        return value.text
    if isinstance(value, transcript.Shortening):
        return _shortened(record, value)
    if isinstance(value, str):
        return value
    if value is not None:
        return json.dumps(value, ensure_ascii=False)
    spawned = f"then {', '.join(spawn.id for spawn in record.spawned)}" if record.spawned else ""
    size = output_size(record.output)
    return "; ".join(filter(None, [f"{size} bytes" if size else "", spawned]))


def _offer(found: transcript.ToolList) -> str:
    """2 tools: read, write; tool 'x' is left out: …"""
    if found.unavailable:
        return f"no tools: {found.unavailable}"
    names = ", ".join(tool.label for tool in found.tools)
    count = "1 tool" if len(found.tools) == 1 else f"{len(found.tools)} tools"
    return "; ".join([f"{count}: {names}" if names else count, *found.warnings])


def _shortened(record: pb.NodeRecord, told: transcript.Shortening) -> str:
    """What its step has done; the message holds what earlier ones did, too."""
    if record.kind == "summarise":
        return f"a summary of the turns up to {told.summary_to}: {told.summary}"
    return f"long results of the turns up to {told.results_to} are put aside"


def _calls(turn: transcript.AssistantTurn) -> str:
    """(calls lookup ×3, word_count), in the order of the first call of each."""
    counts = Counter(part.tool_call.name for part in turn.parts if part.HasField("tool_call"))
    names = [name if count == 1 else f"{name} ×{count}" for name, count in counts.items()]
    return f"(calls {', '.join(names)})" if names else ""


def _said(turn: transcript.AssistantTurn) -> str:
    return "".join(part.text.text for part in turn.parts if part.HasField("text"))


def output_size(payload: pb.Payload) -> int:
    """Bytes, wherever they are."""
    return payload.blob.size_bytes if payload.WhichOneof("where") == "blob" else len(payload.inline)


def outcome_name(outcome: pb.Outcome) -> str:
    """Succeeded, Failed, Cancelled, Unspecified."""
    return pb.Outcome.Name(outcome).removeprefix("OUTCOME_").capitalize()


def called_tool(done: Mapping[str, pb.NodeRecord], node_id: str) -> transcript.ToolCallPart | None:
    """The call that a `tool_call` node makes, from its turn's record; None if it is not at hand."""
    scope = scope_of(node_id)
    number, _, index = node_id[len(scope) :].removeprefix("call-").partition("-")
    turn = done.get(f"{scope}turn-{number}")
    if turn is None or not index.isdigit():
        return None
    value = decode_output(turn.kind, turn.output.media_type, turn.output.inline)
    if not isinstance(value, transcript.AssistantTurn):
        return None
    calls = [part.tool_call for part in value.parts if part.HasField("tool_call")]
    return calls[int(index)] if int(index) < len(calls) else None


def one_line(text: str, *, keep: str = "", characters_max: int = SHOWN_CHARACTERS_MAX) -> str:
    """Text as one line of a terminal may show it: bounded, without control characters."""
    flat = " ".join(text[: 4 * characters_max].split())
    flat = "".join(c if c.isprintable() else "\ufffd" for c in flat)
    if len(flat) > characters_max:
        flat = flat[: characters_max - 1] + "…"
    return flat + keep


def moment(us: int) -> str | None:
    """Microseconds since 1970 as RFC 3339, UTC; None for 0."""
    return instant(datetime.fromtimestamp(us / 1e6, UTC)) if us else None


def instant(when: datetime | None) -> str | None:
    """RFC 3339, UTC, milliseconds."""
    if when is None:
        return None
    return when.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


IS_OF_LOG = frozenset({ATTEMPT, TRY, INTENT, ASK, REOPENED})
"""Kinds of records that are no step of the graph."""
