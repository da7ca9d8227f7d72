"""Answers in the shape of any provider: what is meant is said once, for all of them.

answer("google", "Hello", calls=[Call("add", '{"a": 1}')], finish="length", usage=(9, 2))
reply = replied("google", answer(...), stream=True)
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.stub_model import Reply
from tests.support.stub_streams import events_of, framed

FINISHES: Mapping[str, Mapping[str, str]] = {
    "openai": {"stop": "stop", "calls": "tool_calls", "length": "length", "filter": "content_filter"},
    "anthropic": {"stop": "end_turn", "calls": "tool_use", "length": "max_tokens", "filter": "refusal"},
    "google": {"stop": "STOP", "calls": "STOP", "length": "MAX_TOKENS", "filter": "SAFETY"},
    "openai-responses": {"stop": "", "calls": "", "length": "max_output_tokens", "filter": "content_filter"},
}
"""What each provider calls it; another word is said as it is."""


@dataclass(frozen=True)
class Call:
    """`arguments` as the model wrote them; `id` None: there is none."""

    name: str
    arguments: str = "{}"
    id: str | None = "call_0"


def replied(provider: str, body: Mapping[str, Any], *, stream: bool) -> Reply:
    """The reply to a request that asked for a stream, or for none."""
    return Reply(pieces=framed(events_of(provider, body))) if stream else Reply(body=dict(body))


def answer(
    provider: str,
    text: str | None = None,
    *,
    calls: Sequence[Call] = (),
    thinking: str = "",
    finish: str = "",
    usage: Any = (10, 5),
) -> dict[str, Any]:
    """A body. `usage`: (in, out), or what stands in its place; `finish`: of FINISHES, or a word."""
    finish = finish or ("calls" if calls else "stop")
    word = FINISHES[provider].get(finish, finish)
    return _BUILDERS[provider](text, calls, thinking, word, usage)


def usage_of(provider: str, sent: Any = None, written: Any = None, total: Any = None) -> dict[str, Any]:
    """With the names that the provider has; None is left out."""
    names = {
        "openai": ("prompt_tokens", "completion_tokens", "total_tokens"),
        "openai-responses": ("input_tokens", "output_tokens", "total_tokens"),
        "anthropic": ("input_tokens", "output_tokens", ""),
        "google": ("promptTokenCount", "candidatesTokenCount", "totalTokenCount"),
    }[provider]
    pairs = zip(names, (sent, written, total), strict=True)
    return {name: value for name, value in pairs if name and value is not None}


def _with_usage(provider: str, key: str, body: dict[str, Any], usage: Any) -> dict[str, Any]:
    if isinstance(usage, tuple):
        usage = usage_of(provider, *usage)
    return body if usage == "left out" else {**body, key: usage}


def _chat(text: str | None, calls: Sequence[Call], thinking: str, word: str, usage: Any) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if thinking:
        message["reasoning_content"] = thinking
    if calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls
        ]
    choice = {"index": 0, "finish_reason": None if word == "none" else word, "message": message}
    return _with_usage("openai", "usage", {"id": "c", "model": "m", "choices": [choice]}, usage)


def _object(arguments: str) -> Any:
    """As an object where it is one; a server cannot send anything else but a string."""
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _anthropic(
    text: str | None, calls: Sequence[Call], thinking: str, word: str, usage: Any
) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    if thinking:
        content.append({"type": "thinking", "thinking": thinking, "signature": "sig"})
    if text is not None:
        content.append({"type": "text", "text": text})
    content += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": _object(call.arguments)}
        for call in calls
    ]
    reason = None if word == "none" else word
    body = {"id": "m", "type": "message", "role": "assistant", "content": content, "stop_reason": reason}
    return _with_usage("anthropic", "usage", body, usage)


def _google(text: str | None, calls: Sequence[Call], thinking: str, word: str, usage: Any) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    if thinking:
        parts.append({"text": thinking, "thought": True})
    if text is not None:
        parts.append({"text": text})
    for call in calls:
        wire = {"name": call.name, "args": _object(call.arguments)}
        parts.append({"functionCall": wire if call.id is None else {**wire, "id": call.id}})
    candidate = {"content": {"parts": parts, "role": "model"}, "finishReason": word}
    return _with_usage("google", "usageMetadata", {"candidates": [candidate]}, usage)


def _responses(
    text: str | None, calls: Sequence[Call], thinking: str, word: str, usage: Any
) -> dict[str, Any]:
    output: list[dict[str, Any]] = []
    if thinking:
        summary = [{"type": "summary_text", "text": thinking}]
        output.append({"type": "reasoning", "id": "rs", "summary": summary})
    if text is not None:
        content = [{"type": "output_text", "text": text}]
        output.append({"type": "message", "id": "ms", "role": "assistant", "content": content})
    output += [
        {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}
        for call in calls
    ]
    body: dict[str, Any] = {"id": "r", "status": "incomplete" if word else "completed", "output": output}
    if word:
        body["incomplete_details"] = {"reason": word}
    return _with_usage("openai-responses", "usage", body, usage)


_BUILDERS = {
    "openai": _chat,
    "anthropic": _anthropic,
    "google": _google,
    "openai-responses": _responses,
}
