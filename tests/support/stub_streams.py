"""Whole answers as the streams that their providers would have sent, and streams as bytes.

    events = events_of("anthropic", body)
    Reply(pieces=framed(events))

An event is (name, data). A body is in the provider's own shape, without a stream.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Event = tuple[str, str]
DONE: Event = ("", "[DONE]")


def events_of(provider: str, body: Mapping[str, Any]) -> list[Event]:
    """What a server of the provider sends for `body`, cut into small pieces."""
    return list(_BY_PROVIDER[provider](body))


def framed(events: Sequence[Event], end: bytes = b"\n", space: str = " ") -> list[bytes]:
    """The bytes of each event. `end` ends lines."""
    found = []
    for name, data in events:
        lines = [f"event:{space}{name}"] if name else []
        lines += [f"data:{space}{line}" for line in data.split("\n")]
        found.append(b"".join(line.encode() + end for line in lines) + end)
    return found


def cut(text: str, size: int = 3) -> list[str]:
    """In small pieces."""
    return [text[start : start + size] for start in range(0, len(text), size)]


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _chat(body: Mapping[str, Any]) -> Iterator[Event]:
    head = {"id": body.get("id"), "model": body.get("model"), "object": "chat.completion.chunk"}
    choice = body["choices"][0]
    message = choice["message"]

    def chunk(delta: Any, finish: Any = None) -> Event:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
        return "", _dumps({**head, "choices": choices, "usage": None})

    yield chunk({"role": "assistant", "content": ""})
    for field in ("reasoning_content", "reasoning", "content", "refusal"):
        yield from (chunk({field: piece}) for piece in cut(message.get(field) or ""))
    for index, call in enumerate(message.get("tool_calls") or []):
        function = call["function"]
        more = {key: value for key, value in call.items() if key != "function"}
        first = {**more, "index": index, "function": {"name": function["name"], "arguments": ""}}
        yield chunk({"tool_calls": [first]})
        for piece in cut(function["arguments"]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, choice["finish_reason"])
    if body.get("usage"):
        yield "", _dumps({**head, "choices": [], "usage": body["usage"]})
    yield DONE


def _anthropic(body: Mapping[str, Any]) -> Iterator[Event]:
    def event(kind: str, **more: Any) -> Event:
        return kind, _dumps({"type": kind, **more})

    usage = body.get("usage") or {}
    first = {key: value for key, value in usage.items() if key != "output_tokens"}
    message = {**body, "content": [], "stop_reason": None, "usage": {**first, "output_tokens": 1}}
    yield event("message_start", message=message if usage else {**message, "usage": None})
    yield event("ping")
    for index, block in enumerate(body["content"]):
        yield from _anthropic_block(event, index, block)
    last = {"usage": {"output_tokens": usage["output_tokens"]}} if "output_tokens" in usage else {}
    yield event("message_delta", delta={"stop_reason": body.get("stop_reason")}, **last)
    yield event("message_stop")


def _anthropic_block(event: Callable[..., Event], index: int, block: Mapping[str, Any]) -> Iterator[Event]:
    def delta(kind: str, **more: Any) -> Event:
        return event("content_block_delta", index=index, delta={"type": kind, **more})

    kind = block["type"]
    opened = dict(block)
    if kind in ("text", "thinking"):
        opened |= {kind: ""} | ({"signature": ""} if kind == "thinking" else {})
    if kind in ("tool_use", "server_tool_use"):
        opened["input"] = {}
    yield event("content_block_start", index=index, content_block=opened)
    if kind in ("text", "thinking"):
        yield from (delta(f"{kind}_delta", **{kind: piece}) for piece in cut(block[kind]))
    if kind == "thinking":
        yield delta("signature_delta", signature=block["signature"])
    if kind in ("tool_use", "server_tool_use"):
        written = block["input"] if isinstance(block["input"], str) else _dumps(block["input"])
        yield from (delta("input_json_delta", partial_json=piece) for piece in cut(written))
    yield event("content_block_stop", index=index)


def _google(body: Mapping[str, Any]) -> Iterator[Event]:
    candidate = body["candidates"][0]
    rest = {key: value for key, value in body.items() if key not in ("candidates", "usageMetadata")}
    pieces: list[dict[str, Any]] = []
    for part in candidate["content"]["parts"]:
        if set(part) <= {"text", "thought"}:
            pieces += [{**part, "text": piece} for piece in cut(part["text"])]
        else:
            pieces.append(part)
    usage = {"usageMetadata": body["usageMetadata"]} if "usageMetadata" in body else {}
    more = {key: value for key, value in candidate.items() if key != "content"}
    for part in pieces:
        yield "", _dumps({**rest, "candidates": [{"content": {"parts": [part], "role": "model"}}], **usage})
    yield "", _dumps({**rest, "candidates": [{"content": {"parts": []}, **more}], **usage})


def _responses(body: Mapping[str, Any]) -> Iterator[Event]:
    def event(kind: str, **more: Any) -> Event:
        return kind, _dumps({"type": kind, **more})

    started = {**body, "output": [], "status": "in_progress", "usage": None}
    yield event("response.created", response=started)
    for index, item in enumerate(body["output"]):
        yield event("response.output_item.added", output_index=index, item={**item, "content": []})
        if item["type"] == "message":
            for content in item["content"]:
                for piece in cut(content.get("text") or ""):
                    yield event("response.output_text.delta", output_index=index, delta=piece)
        if item["type"] == "function_call":
            for piece in cut(item["arguments"]):
                yield event("response.function_call_arguments.delta", output_index=index, delta=piece)
        yield event("response.output_item.done", output_index=index, item=item)
    end = body.get("status") or "completed"
    yield event(f"response.{end}", response=body)


_BY_PROVIDER: Mapping[str, Callable[[Mapping[str, Any]], Iterator[Event]]] = {
    "openai": _chat,
    "anthropic": _anthropic,
    "google": _google,
    "openai-responses": _responses,
}
