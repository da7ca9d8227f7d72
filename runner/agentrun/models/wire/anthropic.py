"""Anthropic's messages.

A turn is a list of blocks, and goes back as that list: thinking with its
signature, server tools and blocks that are not known yet word for word. What the API gives
and then refuses is left out: text blocks without visible text, and of a turn that
was cut a server tool's call whose result never came. No turn ends with thinking.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentrun.log.text import safe_text
from agentrun.models.wire.ids import wire_name
from agentrun.models.wire.rawjson import BadAnswer, compact, extras, parse, raw, sendable_arguments
from agentrun.models.wire.usage import Counts, added, count
from agentrun.models.wire.values import NO_ANSWER, as_dict, as_list, as_text
from agentrun.proto import transcript_pb2 as pb

_INPUT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def read(text: str, body: dict[str, Any]) -> pb.AssistantTurn:
    if not isinstance(body.get("content"), list):
        raise BadAnswer(f"a message without content: {text[:200]}")
    turn = pb.AssistantTurn(
        finish_raw=as_text(body.get("stop_reason")),
        model=as_text(body.get("model")),
        response_id=as_text(body.get("id")),
    )
    for index, block in enumerate(body["content"]):
        if isinstance(block, dict):
            _read_block(turn.parts.add(), block, text, index)
    return turn


def _read_block(part: pb.Part, block: dict[str, Any], text: str, index: int) -> None:
    kind = block.get("type")
    if kind == "text":
        part.text.text = as_text(block.get("text"))
        part.provider_details = extras(block, "type", "text")
    elif kind == "thinking":
        part.thinking.text = as_text(block.get("thinking"))
        part.thinking.signature = as_text(block.get("signature"))
        part.provider_details = extras(block, "type", "thinking", "signature")
    elif kind == "redacted_thinking":
        part.thinking.signature = as_text(block.get("data"))
        part.thinking.redacted = True
    elif kind == "tool_use":
        part.tool_call.wire_id = as_text(block.get("id"))
        part.tool_call.name = as_text(block.get("name"))
        given = block.get("input")
        written = raw(text, "content", index, "input") if given is not None else None
        # A server that is only almost compatible sends the arguments as a string.
        part.tool_call.arguments = as_text(given) if isinstance(given, str) else safe_text(written or "")
        part.provider_details = extras(block, "type", "id", "name", "input")
    else:
        part.opaque.provider = "anthropic"
        part.opaque.kind = as_text(kind)
        part.opaque.json = safe_text(raw(text, "content", index) or "{}")


def write(turn: pb.AssistantTurn, ids: Sequence[str], *, own: bool) -> str:
    blocks: list[str] = []
    open_ended, place = True, 0
    cut_off = _unanswered(turn) if turn.truncated else ()
    for part in turn.parts:
        kind = part.WhichOneof("part")
        more = parse(part.provider_details) if own and part.provider_details else {}
        if kind == "text" and part.text.text.strip():
            blocks.append(compact({"type": "text", "text": part.text.text, **more}))
            open_ended = False
        elif kind == "tool_call":
            blocks.append(_call(part.tool_call, ids[place], more))
            place, open_ended = place + 1, False
        elif kind == "thinking" and own and part.thinking.signature:
            blocks.append(_thinking(part.thinking, more))
            open_ended = True
        elif kind == "opaque" and own and part.opaque.provider == "anthropic" and part not in cut_off:
            blocks.append(part.opaque.json)
            open_ended = False
    if open_ended:
        blocks.append(compact({"type": "text", "text": NO_ANSWER}))
    return ",".join(blocks)


def _unanswered(turn: pb.AssistantTurn) -> list[pb.Part]:
    """Calls of the provider's own tools that the turn holds no result of."""
    opaque = [(part, as_dict(parse(part.opaque.json))) for part in turn.parts if part.HasField("opaque")]
    answered = {as_text(block.get("tool_use_id")) for _, block in opaque}
    return [
        part
        for part, block in opaque
        if part.opaque.kind.endswith("_tool_use") and as_text(block.get("id")) not in answered
    ]


def _call(call: pb.ToolCallPart, wire_id: str, more: dict[str, Any]) -> str:
    head = compact({"type": "tool_use", "id": wire_id, "name": wire_name(call.name), **more})
    return f'{head[:-1]},"input":{sendable_arguments(call.arguments)}}}'


def _thinking(thinking: pb.ThinkingPart, more: dict[str, Any]) -> str:
    if thinking.redacted:
        return compact({"type": "redacted_thinking", "data": thinking.signature})
    return compact({"type": "thinking", "thinking": thinking.text, "signature": thinking.signature, **more})


def counts(body: dict[str, Any]) -> Counts:
    """`iterations` (compaction) may hold more than the top level, or the same: the larger counts."""
    usage = as_dict(body.get("usage"))
    rounds = [as_dict(entry) for entry in as_list(usage.get("iterations"))]
    return Counts(
        sent=_larger(_sent(usage), added(*(_sent(entry) for entry in rounds))),
        written=_larger(
            count(usage.get("output_tokens")), added(*(entry.get("output_tokens") for entry in rounds))
        ),
        cached=_larger(
            count(usage.get("cache_read_input_tokens")),
            added(*(entry.get("cache_read_input_tokens") for entry in rounds)),
        ),
        reasoning=count(as_dict(usage.get("output_tokens_details")).get("thinking_tokens")),
    )


def _sent(usage: dict[str, Any]) -> int | None:
    return added(*(usage.get(key) for key in _INPUT))


def _larger(one: int | None, other: int | None) -> int | None:
    return max((number for number in (one, other) if number is not None), default=None)
