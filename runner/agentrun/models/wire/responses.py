"""OpenAI's responses.

A turn is a list of items. Reasoning items, and items of the provider's own
tools, go back as they came; messages and calls keep their item ids, for a
reasoning item must be followed by the item that it led to. Where that never
came, because the turn was cut, a word of ours stands in its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentrun.log.text import safe_text
from agentrun.models.errors import http_error
from agentrun.models.wire.ids import wire_name
from agentrun.models.wire.rawjson import BadAnswer, compact, extras, parse, raw, sendable_arguments
from agentrun.models.wire.usage import Counts, count
from agentrun.models.wire.values import NO_ANSWER, as_dict, as_list, as_text
from agentrun.proto import transcript_pb2 as pb

_WHOLE = ("completed", "incomplete", "")


def read(text: str, body: dict[str, Any]) -> pb.AssistantTurn:
    status = as_text(body.get("status"))
    if status == "failed":
        error = as_dict(body.get("error"))
        said = as_text(error.get("message")) or "the response failed"
        raise http_error("openai-responses", 200, said, code=as_text(error.get("code")))
    if not isinstance(body.get("output"), list):
        raise BadAnswer(f"a response without output: {text[:200]}")
    if status not in _WHOLE:
        raise BadAnswer(f"a response that is {status}")
    reason = as_text(as_dict(body.get("incomplete_details")).get("reason"))
    turn = pb.AssistantTurn(
        finish_raw=reason or status,
        model=as_text(body.get("model")),
        response_id=as_text(body.get("id")),
    )
    for index, item in enumerate(body["output"]):
        if isinstance(item, dict):
            _read_item(turn, item, text, index)
    return turn


def _read_item(turn: pb.AssistantTurn, item: dict[str, Any], text: str, index: int) -> None:
    kind = item.get("type")
    if kind == "message":
        _read_message(turn, item)
    elif kind == "function_call":
        part = turn.parts.add()
        part.tool_call.wire_id = as_text(item.get("call_id"))
        part.tool_call.id = as_text(item.get("id"))
        part.tool_call.name = as_text(item.get("name"))
        given = item.get("arguments")
        written = as_text(given) if isinstance(given, str) else raw(text, "output", index, "arguments")
        part.tool_call.arguments = safe_text(written or "") if given is not None else ""
        part.provider_details = extras(item, "type", "call_id", "id", "name", "arguments", "status")
    elif kind == "reasoning":
        part = turn.parts.add()
        shown = [*as_list(item.get("summary")), *as_list(item.get("content"))]
        part.thinking.text = "\n\n".join(filter(None, (as_text(as_dict(s).get("text")) for s in shown)))
        part.thinking.id = as_text(item.get("id"))
        part.provider_details = compact({key: value for key, value in item.items() if value is not None})
    else:
        part = turn.parts.add()
        part.opaque.provider = "openai-responses"
        part.opaque.kind = as_text(kind)
        part.opaque.json = safe_text(raw(text, "output", index) or "{}")


def _read_message(turn: pb.AssistantTurn, item: dict[str, Any]) -> None:
    for content in map(as_dict, as_list(item.get("content"))):
        refused = content.get("type") == "refusal"
        part = turn.parts.add()
        part.text.text = as_text(content.get("refusal" if refused else "text"))
        part.text.id = as_text(item.get("id"))
        part.provider_details = extras(content, "type", "text", "refusal", "logprobs")
        if refused:
            turn.finish_raw = "refusal"


def write(turn: pb.AssistantTurn, ids: Sequence[str], *, own: bool) -> str:
    items: list[str | dict[str, Any]] = []
    open_ended, place = True, 0
    for part in turn.parts:
        kind = part.WhichOneof("part")
        more = parse(part.provider_details) if own and part.provider_details else {}
        if kind == "text" and part.text.text.strip():
            _add_message(items, part.text, more, own=own)
            open_ended = False
        elif kind == "tool_call":
            items.append(_call(part.tool_call, ids[place], more, own=own))
            place, open_ended = place + 1, False
        elif kind == "thinking" and own and part.provider_details:
            items.append(part.provider_details)
            open_ended = True
        elif kind == "opaque" and own and part.opaque.provider == "openai-responses":
            items.append(part.opaque.json)
            open_ended = False
    if open_ended:
        items.append({"role": "assistant", "content": NO_ANSWER})
    return ",".join(item if isinstance(item, str) else compact(item) for item in items)


def _add_message(
    items: list[str | dict[str, Any]], text: pb.TextPart, more: dict[str, Any], *, own: bool
) -> None:
    if not own or not text.id:
        items.append({"role": "assistant", "content": text.text})
        return
    content = {"type": "output_text", "text": text.text, "annotations": [], **more}
    last = items[-1] if items else None
    if isinstance(last, dict) and last.get("id") == text.id:
        last["content"].append(content)  # several texts of one item: an id may stand once
        return
    items.append(
        {"type": "message", "role": "assistant", "id": text.id, "status": "completed", "content": [content]}
    )


def _call(call: pb.ToolCallPart, wire_id: str, more: dict[str, Any], *, own: bool) -> dict[str, Any]:
    item: dict[str, Any] = {"type": "function_call", "call_id": wire_id, "name": wire_name(call.name)}
    item["arguments"] = sendable_arguments(call.arguments)
    if own and call.id:
        item["id"] = call.id
    return {**item, **more}


def counts(body: dict[str, Any]) -> Counts:
    usage = as_dict(body.get("usage"))
    return Counts(
        sent=count(usage.get("input_tokens")),
        written=count(usage.get("output_tokens")),
        total=count(usage.get("total_tokens")),
        cached=count(as_dict(usage.get("input_tokens_details")).get("cached_tokens")),
        reasoning=count(as_dict(usage.get("output_tokens_details")).get("reasoning_tokens")),
    )
