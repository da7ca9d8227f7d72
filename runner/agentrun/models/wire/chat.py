"""OpenAI's chat completions, and the many servers that imitate them.

Reasoning comes in a field beside the content (`reasoning_content`,
`reasoning`) and goes back in the same field; arguments are strings already, and
stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentrun.log.text import safe_text
from agentrun.models.wire.ids import wire_name
from agentrun.models.wire.rawjson import BadAnswer, compact, extras, parse, raw, sendable_arguments
from agentrun.models.wire.usage import Counts, count
from agentrun.models.wire.values import NO_ANSWER, as_dict, as_list, as_text
from agentrun.proto import transcript_pb2 as pb

_REASONING = ("reasoning_content", "reasoning")
_DETAILS = "reasoning_details"


def read(text: str, body: dict[str, Any]) -> pb.AssistantTurn:
    choices = as_list(body.get("choices"))
    if not choices or not isinstance(choices[0], dict):
        raise BadAnswer(f"no choices: {text[:200]}")
    choice = choices[0]
    message = choice.get("message")
    if not isinstance(message, dict):
        raise BadAnswer(f"a choice without a message: {text[:200]}")
    turn = pb.AssistantTurn(
        finish_raw=as_text(choice.get("finish_reason")),
        model=as_text(body.get("model")),
        response_id=as_text(body.get("id")),
    )
    _read_thinking(turn, message, text)
    content = _content(turn, message.get("content"))
    if content:
        turn.parts.add().text.text = content
    refusal = as_text(message.get("refusal"))
    if refusal:
        turn.parts.add().text.text = refusal
        turn.finish_raw = "refusal"
    _read_calls(turn, message, text)
    return turn


def _read_thinking(turn: pb.AssistantTurn, message: dict[str, Any], text: str) -> None:
    for field in _REASONING:
        thought = as_text(message.get(field))
        if thought:
            turn.parts.add().thinking.MergeFrom(pb.ThinkingPart(text=thought, id=field))
            break
    if as_list(message.get(_DETAILS)):
        details = raw(text, "choices", 0, "message", _DETAILS) or "[]"
        opaque = pb.OpaquePart(provider="openai", kind=_DETAILS, json=safe_text(details))
        turn.parts.add().opaque.MergeFrom(opaque)


def _content(turn: pb.AssistantTurn, content: Any) -> str:
    """The text, which some servers send in pieces, thoughts among them."""
    if not isinstance(content, list):
        return as_text(content)
    pieces: list[str] = []
    for piece in content:
        block = as_dict(piece)
        if block.get("type") == "thinking":
            thought = "".join(as_text(as_dict(inner).get("text")) for inner in as_list(block.get("thinking")))
            turn.parts.add().thinking.text = thought or as_text(block.get("thinking"))
        else:
            pieces.append(as_text(block.get("text")))
    return "".join(pieces)


def _read_calls(turn: pb.AssistantTurn, message: dict[str, Any], text: str) -> None:
    place: tuple[str | int, ...] = ("choices", 0, "message")
    for index, call in enumerate(as_list(message.get("tool_calls"))):
        if not isinstance(call, dict):
            continue
        kind = "custom" if "function" not in call and isinstance(call.get("custom"), dict) else "function"
        function = as_dict(call.get(kind))
        key = "input" if kind == "custom" else "arguments"
        part = turn.parts.add()
        part.tool_call.name = as_text(function.get("name"))
        part.tool_call.wire_id = as_text(call.get("id"))
        part.tool_call.arguments = _arguments(function, key, text, (*place, "tool_calls", index, kind, key))
        part.provider_details = extras(call, "id", "type", "index", "function", "custom")
    legacy = message.get("function_call")
    if isinstance(legacy, dict) and not as_list(message.get("tool_calls")):
        call_part = turn.parts.add().tool_call
        call_part.name = as_text(legacy.get("name"))
        call_part.arguments = _arguments(legacy, "arguments", text, (*place, "function_call", "arguments"))


def _arguments(function: dict[str, Any], key: str, text: str, path: tuple[str | int, ...]) -> str:
    """The string as it is; some servers send the object itself, which is cut out of the text."""
    value = function.get(key)
    if value is None or isinstance(value, str):
        return as_text(value)
    return safe_text(raw(text, *path) or "")


def write(turn: pb.AssistantTurn, ids: Sequence[str], *, own: bool) -> str:
    message: dict[str, Any] = {"role": "assistant", "content": None}
    calls: list[dict[str, Any]] = []
    said = "".join(part.text.text for part in turn.parts if part.HasField("text"))
    for part in turn.parts:
        kind = part.WhichOneof("part")
        if kind == "tool_call":
            more = parse(part.provider_details) if own and part.provider_details else {}
            function = {
                "name": wire_name(part.tool_call.name),
                "arguments": sendable_arguments(part.tool_call.arguments),
            }
            calls.append({"id": ids[len(calls)], "type": "function", "function": function, **more})
        elif kind == "thinking" and own and part.thinking.id in _REASONING:
            message[part.thinking.id] = part.thinking.text
        elif kind == "opaque" and own and part.opaque.kind == _DETAILS:
            message[_DETAILS] = parse(part.opaque.json)
    if calls:
        message["tool_calls"] = calls
    if said.strip():
        message["content"] = said
    elif not calls:
        message["content"] = NO_ANSWER
    return compact(message)


def counts(body: dict[str, Any]) -> Counts:
    usage = as_dict(body.get("usage"))
    cached = count(as_dict(usage.get("prompt_tokens_details")).get("cached_tokens"))
    return Counts(
        sent=count(usage.get("prompt_tokens")),
        written=count(usage.get("completion_tokens")),
        total=count(usage.get("total_tokens")),
        cached=cached if cached is not None else count(usage.get("prompt_cache_hit_tokens")),
        reasoning=count(as_dict(usage.get("completion_tokens_details")).get("reasoning_tokens")),
    )
