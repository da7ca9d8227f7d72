"""A whole body as the stream of events that each provider would send instead, in pieces of any size.

For the strict stubs: what a stream says is what the body says, so the same rules hold of it.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import httpx2

from tests.support.strict.exact import Obj, dump, parse, quote


def streamed(shape: str, body: str, rng: random.Random) -> bytes:
    """The stream: with the line ends, comments and pings that real servers send."""
    end = rng.choice(["\n", "\n", "\r\n"])
    lines = [f": a comment{end}{end}"] if rng.random() < 0.3 else []
    for name, data in _EVENTS[shape](parse(body), rng):
        head = f"event: {name}{end}" if name else ""
        lines.append(f"{head}data: {data}{end}{end}")
        if rng.random() < 0.05:
            lines.append(f":{end}{end}")
    return "".join(lines).encode()


class Pieces(httpx2.AsyncByteStream):
    """Bytes in pieces that end anywhere; `cut`: the connection goes away behind so many of them."""

    def __init__(self, data: bytes, rng: random.Random, cut: int | None = None) -> None:
        self._data = data if cut is None else data[:cut]
        self._cut = cut is not None
        self._rng = rng

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._data
        while left:
            size = self._rng.choice([1, 7, 100, 5000])
            yield left[:size]
            left = left[size:]
        if self._cut:
            raise httpx2.ReadError("the connection went away")


_Events = Iterator[tuple[str, str]]


def _pieces(text: str, rng: random.Random) -> list[str]:
    """The text in up to three pieces, none of them empty."""
    cuts = sorted(rng.randrange(len(text) + 1) for _ in range(rng.choice([0, 1, 2])))
    ends = [0, *cuts, len(text)]
    return [piece for start, end in itertools.pairwise(ends) if (piece := text[start:end])]


def _anthropic(body: Obj, rng: random.Random) -> _Events:
    usage = dump(body["usage"])
    message = dump(body.without("content", "stop_reason", "usage"))
    yield (
        "message_start",
        f'{{"type":"message_start","message":{message[:-1]},"content":[],"usage":{usage}}}}}',
    )
    for index, block in enumerate(body["content"]):
        deltas: list[str] = []
        kind, opened = block["type"], dump(block)
        if kind == "text":
            opened = dump(Obj([("type", kind), ("text", ""), ("citations", None)]))
            deltas = [f'"type":"text_delta","text":{quote(piece)}' for piece in _pieces(block["text"], rng)]
        elif kind == "thinking":
            opened = dump(Obj([("type", kind), ("thinking", ""), ("signature", "")]))
            thought = _pieces(block["thinking"], rng)
            deltas = [f'"type":"thinking_delta","thinking":{quote(piece)}' for piece in thought]
            deltas.append(f'"type":"signature_delta","signature":{quote(block["signature"])}')
        elif "input" in block:
            members = [(key, value) for key, value in block.pairs if key != "input"]
            opened = dump(Obj([*members, ("input", Obj([]))]))
            written = _pieces(dump(block["input"]), rng)
            deltas = [f'"type":"input_json_delta","partial_json":{quote(piece)}' for piece in ["", *written]]
        start = f'{{"type":"content_block_start","index":{index},"content_block":{opened}}}'
        yield "content_block_start", start
        for delta in deltas:
            written_delta = f'{{"type":"content_block_delta","index":{index},"delta":{{{delta}}}}}'
            yield "content_block_delta", written_delta
        yield "content_block_stop", f'{{"type":"content_block_stop","index":{index}}}'
        if rng.random() < 0.1:
            yield "ping", '{"type":"ping"}'
    why = dump(body["stop_reason"])
    yield "message_delta", f'{{"type":"message_delta","delta":{{"stop_reason":{why}}},"usage":{usage}}}'
    yield "message_stop", '{"type":"message_stop"}'


def _chat(body: Obj, rng: random.Random) -> _Events:
    choice = body["choices"][0]
    message = choice["message"]
    head = dump(body.without("choices", "usage"))[:-1]

    def chunk(delta: str, finish: str = "null") -> tuple[str, str]:
        return "", f'{head},"choices":[{{"index":0,"delta":{delta},"finish_reason":{finish}}}]}}'

    yield chunk('{"role":"assistant","content":""}')
    for piece in _pieces(message.get("reasoning_content") or "", rng):
        yield chunk(f'{{"reasoning_content":{quote(piece)}}}')
    if message.get("reasoning_details"):
        yield chunk(f'{{"reasoning_details":{dump(message["reasoning_details"])}}}')
    for piece in _pieces(message["content"] or "", rng):
        yield chunk(f'{{"content":{quote(piece)}}}')
    for index, call in enumerate(message.get("tool_calls") or []):
        function = call["function"]
        named = f'"id":{quote(call["id"])},"type":"function","function":{{"name":{quote(function["name"])}'
        yield chunk(f'{{"tool_calls":[{{"index":{index},{named},"arguments":""}}}}]}}')
        for piece in _pieces(function["arguments"], rng):
            more = f'"function":{{"arguments":{quote(piece)}}}'
            yield chunk(f'{{"tool_calls":[{{"index":{index},{more}}}]}}')
    yield chunk("{}", dump(choice["finish_reason"]))
    yield "", f'{head},"choices":[],"usage":{dump(body["usage"])}}}'
    yield "", "[DONE]"


def _responses(body: Obj, rng: random.Random) -> _Events:
    begun = dump(Obj([*body.without("output", "usage", "status").pairs, ("status", "in_progress")]))
    yield "response.created", f'{{"type":"response.created","response":{begun}}}'
    for index, item in enumerate(body["output"]):
        place = f'"output_index":{index},"item":{dump(item)}'
        yield "response.output_item.added", f'{{"type":"response.output_item.added",{place}}}'
        yield "response.output_item.done", f'{{"type":"response.output_item.done",{place}}}'
    whole = body if rng.random() < 0.5 else body.without("output")
    end = f"response.{body['status']}"
    yield end, f'{{"type":"{end}","response":{dump(whole)}}}'


def _google(body: Obj, rng: random.Random) -> _Events:
    candidate = body["candidates"][0]
    head = dump(body.without("candidates", "usageMetadata"))[:-1]
    for part in candidate["content"]["parts"]:
        content = f'{{"role":"model","parts":[{dump(part)}]}}'
        yield "", f'{head},"candidates":[{{"index":0,"content":{content}}}]}}'
    usage = dump(body["usageMetadata"])
    why = dump(candidate["finishReason"])
    yield "", f'{head},"usageMetadata":{usage},"candidates":[{{"index":0,"finishReason":{why}}}]}}'


_EVENTS: Mapping[str, Callable[[Any, random.Random], _Events]] = {
    "anthropic": _anthropic,
    "openai": _chat,
    "openai-responses": _responses,
    "google": _google,
}
