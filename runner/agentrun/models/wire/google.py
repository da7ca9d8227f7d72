"""Google's generateContent.

A turn is a list of parts. A thought signature belongs to the part that it came
with and goes back with it. Calls have ids only sometimes, and arguments are
objects, cut out of the answer as they stand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentrun.log.text import safe_text
from agentrun.models.base import ModelError
from agentrun.models.errors import clip
from agentrun.models.wire.ids import wire_name
from agentrun.models.wire.rawjson import BadAnswer, compact, extras, parse, raw, sendable_arguments
from agentrun.models.wire.usage import Counts, added, count
from agentrun.models.wire.values import NO_ANSWER, as_dict, as_list, as_text
from agentrun.proto import transcript_pb2 as pb

_SIGNATURE = "thoughtSignature"
# Documented for a call that another model made: base64 of "skip_thought_signature_validator".
_NO_SIGNATURE = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="
# Ends at which the model's call could not be read: nothing was said, and another try may do better.
_GARBLED = {"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE"}


def read(text: str, body: dict[str, Any]) -> pb.AssistantTurn:
    candidates = as_list(body.get("candidates"))
    if not candidates:
        blocked = as_text(as_dict(body.get("promptFeedback")).get("blockReason"))
        if blocked:
            raise ModelError(
                "ContentFilter", clip(f"google: the prompt was blocked: {blocked}"), retryable=False
            )
        raise BadAnswer(f"no candidates: {text[:200]}")
    candidate = candidates[0]
    if not isinstance(candidate, dict) or not ("content" in candidate or "finishReason" in candidate):
        raise BadAnswer(f"a candidate without content: {text[:200]}")
    turn = pb.AssistantTurn(
        finish_raw=as_text(candidate.get("finishReason")),
        model=as_text(body.get("modelVersion")),
        response_id=as_text(body.get("responseId")),
    )
    for index, part in enumerate(as_list(as_dict(candidate.get("content")).get("parts"))):
        if isinstance(part, dict):
            _read_part(turn, part, text, index)
    if not turn.parts and turn.finish_raw in _GARBLED:
        said = as_text(candidate.get("finishMessage"))
        raise BadAnswer(f"{turn.finish_raw}: {said}")
    return turn


def _read_part(turn: pb.AssistantTurn, wire: dict[str, Any], text: str, index: int) -> None:
    path = ("candidates", 0, "content", "parts", index)
    call = wire.get("functionCall")
    if isinstance(call, dict):
        part = turn.parts.add()
        part.tool_call.name = as_text(call.get("name"))
        part.tool_call.wire_id = as_text(call.get("id"))
        given = call.get("args")
        # A server that is only almost compatible sends the arguments as a string.
        written = as_text(given) if isinstance(given, str) else raw(text, *path, "functionCall", "args")
        part.tool_call.arguments = safe_text(written or "")
        part.provider_details = extras(wire, "functionCall")
    elif isinstance(wire.get("text"), str):
        details = extras(wire, "text", "thought")
        if not wire["text"] and not details:
            return
        part = turn.parts.add()
        if wire.get("thought"):
            part.thinking.text = as_text(wire["text"])
        else:
            part.text.text = as_text(wire["text"])
        part.provider_details = details
    else:
        part = turn.parts.add()
        part.opaque.provider = "google"
        part.opaque.kind = safe_text(next((key for key in wire if key != _SIGNATURE), ""))
        part.opaque.json = safe_text(raw(text, *path) or "{}")


def write(turn: pb.AssistantTurn, ids: Sequence[str], *, own: bool) -> str:
    parts: list[str] = []
    bare, place = True, 0
    for part in turn.parts:
        kind = part.WhichOneof("part")
        more = parse(part.provider_details) if own and part.provider_details else {}
        if kind == "text" and (part.text.text.strip() or more):
            parts.append(compact({"text": part.text.text, **more}))
            bare = bare and not part.text.text.strip()
        elif kind == "tool_call":
            if place == 0:
                more.setdefault(_SIGNATURE, _NO_SIGNATURE)
            parts.append(_call(part.tool_call, ids[place], more))
            place, bare = place + 1, False
        elif kind == "thinking" and own and (part.thinking.text or more):
            parts.append(compact({"text": part.thinking.text, "thought": True, **more}))
        elif kind == "opaque" and own and part.opaque.provider == "google":
            parts.append(part.opaque.json)
            bare = False
    if bare:
        parts.append(compact({"text": NO_ANSWER}))
    return ",".join(parts)


def _call(call: pb.ToolCallPart, wire_id: str, more: dict[str, Any]) -> str:
    head = compact({"id": wire_id, "name": wire_name(call.name)})
    function = f'{head[:-1]},"args":{sendable_arguments(call.arguments)}}}'
    return f'{{"functionCall":{function},{compact(more)[1:]}' if more else f'{{"functionCall":{function}}}'


def counts(body: dict[str, Any]) -> Counts:
    usage = as_dict(body.get("usageMetadata"))
    return Counts(
        sent=added(usage.get("promptTokenCount"), usage.get("toolUsePromptTokenCount")),
        written=added(usage.get("candidatesTokenCount"), usage.get("thoughtsTokenCount")),
        total=count(usage.get("totalTokenCount")),
        cached=count(usage.get("cachedContentTokenCount")),
        reasoning=count(usage.get("thoughtsTokenCount")),
    )
