"""Anthropic's messages, as strict as the API is and its documentation says.

- A text is never blank; a message is never empty; its last block is never thinking.
- Results stand first in the message behind their calls, one for each, with nothing empty in them.
- Thinking and server tools come back as they were. A server tool's call has its result in the same
  or the next message of the model; only the newest one may still be under way (a paused turn, or
  one that waits for the results of the client's own tools).
- The conversation ends with the user, or with a paused turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.support.strict import ids
from tests.support.strict.answers import Answer, Part, Style
from tests.support.strict.exact import Obj, dump, parse, quote
from tests.support.strict.ledger import Given, match

_ENDS = {"stop": "end_turn", "calls": "tool_use", "length": "max_tokens", "pause": "pause_turn"}
_THINKING = ("thinking", "redacted_thinking")
_SERVER, _RESULT = "server_tool_use", "web_search_tool_result"


class Anthropic:
    """See the module's docstring."""

    name = "anthropic"
    style = Style(redacted=True, server=True, pause=True)
    field = "messages"

    def tools(self, body: Obj) -> list[str]:
        return [tool["name"] for tool in body.get("tools") or []]

    def spoken(self, message: Obj) -> bool:
        return bool(message.get("role") == "assistant")

    # --- what is refused whatever was said

    def rules(self, body: Obj) -> Iterator[str]:
        if "max_tokens" not in body:
            yield "max_tokens: Field required"
        yield from ids.twice(self.tools(body))
        yield from (f"the tool {name!r}" for name in self.tools(body) if not ids.WELL_FORMED(name))
        messages = body["messages"]
        if messages and messages[0].get("role") != "user":
            yield "the first message is not the user's"
        uses: list[str] = []
        for place, message in enumerate(messages):
            blocks = _blocks(message)
            yield from (f"message {place}: {problem}" for problem in self._message(message, blocks))
            uses += [block.get("id") for block in blocks if block.get("type") in ("tool_use", _SERVER)]
        yield from ids.twice(uses)
        yield from self._pairs(messages)
        yield from self._server_pairs(messages)

    def _message(self, message: Obj, blocks: list[Any]) -> Iterator[str]:
        if not blocks:
            yield "all messages must have non-empty content"
            return
        if message["role"] == "assistant" and blocks[-1].get("type") in _THINKING:
            yield "the final block in an assistant message cannot be `thinking`"
        for block in blocks:
            if block.get("type") == "text" and not str(block.get("text") or "").strip():
                yield "text content blocks must contain non-whitespace text"
            if block.get("type") == "tool_use" and not isinstance(block.get("input"), Obj):
                yield f"input should be a valid dictionary: {dump(block)}"
            if block.get("type") == "tool_result" and not _result_text(block).strip():
                yield f"an empty result: {dump(block)}"

    def _pairs(self, messages: list[Any]) -> Iterator[str]:
        waiting: list[str] = []
        for place, message in enumerate(messages):
            blocks = _blocks(message)
            kinds = [block.get("type") for block in blocks]
            results = [block.get("tool_use_id") for block in blocks if block.get("type") == "tool_result"]
            if results != waiting:
                yield f"message {place}: results {results} for the calls {waiting}"
            if results and kinds[: len(results)] != ["tool_result"] * len(results):
                yield f"message {place}: results have to come first: {kinds}"
            waiting = [block.get("id") for block in blocks if block.get("type") == "tool_use"]
        if waiting:
            yield f"tool_use without tool_result: {waiting}"

    def _server_pairs(self, messages: list[Any]) -> Iterator[str]:
        open_: set[str] = set()
        newest = max((i for i, message in enumerate(messages) if self.spoken(message)), default=0)
        for place, message in enumerate(messages):
            blocks, own = _blocks(message), False
            for block in blocks:
                own = own or block.get("type") == "tool_use"
                if block.get("type") == _SERVER:
                    open_.add(block["id"])
                elif block.get("type") == _RESULT and block.get("tool_use_id") not in open_:
                    yield f"message {place}: a server's result without its call: {dump(block)}"
                elif block.get("type") == _RESULT:
                    open_.discard(block["tool_use_id"])
            if not self.spoken(message):
                continue
            following = messages[place + 1] if place + 1 < len(messages) else None
            waits = own or following is None or self.spoken(following)
            if open_ and not (waits and (place == newest or self._answers(messages[place + 1 :], open_))):
                yield f"message {place}: server tool use {sorted(open_)} without its result"
                open_.clear()

    def _answers(self, messages: list[Any], open_: set[str]) -> bool:
        """The next message of the model has the results."""
        spoken = next((message for message in messages if self.spoken(message)), None)
        found = {block.get("tool_use_id") for block in _blocks(spoken) if block.get("type") == _RESULT}
        return open_ <= found

    # --- what was said

    def wire(self, answer: Answer) -> Any:
        blocks = [_written(part) for part in answer.parts]
        return parse(f"[{','.join(blocks)}]")

    def body(self, given: Given) -> str:
        tokens_in, cached, out, reasoning = given.answer.usage
        usage = (
            f'{{"input_tokens":{tokens_in - cached},"cache_read_input_tokens":{cached},"output_tokens":{out},'
            f'"output_tokens_details":{{"thinking_tokens":{reasoning}}}}}'
        )
        blocks = ",".join(_written(part) for part in given.answer.parts)
        return (
            f'{{"id":{quote(given.id)},"type":"message","role":"assistant","model":"strict",'
            f'"content":[{blocks}],"stop_reason":"{_ENDS[given.answer.end]}","usage":{usage}}}'
        )

    def results(self, rest: list[Any]) -> list[str]:
        blocks = [block for message in rest for block in _blocks(message)]
        return [_result_text(block) for block in blocks if block.get("type") == "tool_result"]

    def error(self, status: int, code: str, message: str) -> str:
        return f'{{"type":"error","error":{{"type":{quote(code)},"message":{quote(message)}}}}}'

    # --- what comes back

    def follows(self, given: Given, rest: list[Any]) -> Iterator[str]:
        if not self.spoken(rest[0]):
            yield f"an answer is missing: {dump(rest[0])}"
            return
        blocks = _blocks(rest[0])
        calls = given.answer.calls
        yield from match(_returning(given), _without_placeholder(given, blocks), _alike)
        uses = [block for block in blocks if block.get("type") == "tool_use"]
        yield from ids.names(calls, [(use.get("id"), use.get("name")) for use in uses])
        for call, use in zip(calls, uses, strict=False):
            if problem := ids.arguments(call, use.get("input")):
                yield problem
        said = rest[1:]
        if len(said) > 1 or any(self.spoken(message) for message in said):
            yield f"more than one turn at once: {dump(rest)}"
        if not said and given.answer.end != "pause":
            yield "ends with the model's turn, which was not paused"
        if said and not calls and given.answer.end == "pause":
            yield f"a paused turn has to go on: {dump(said)}"


def _written(part: Part) -> str:
    if part.kind == "text":
        return f'{{"type":"text","text":{quote(part.text)},"citations":null}}'
    if part.kind == "thinking":
        return f'{{"type":"thinking","thinking":{quote(part.text)},"signature":{quote(part.signature)}}}'
    if part.kind == "redacted":
        return f'{{"type":"redacted_thinking","data":{quote(part.signature)}}}'
    if part.kind == "server":
        query = f'{{"query": {part.text} , "query": 1.50}}'
        return f'{{"type":"{_SERVER}","id":"{part.id}","name":"web_search","input":{query}}}'
    if part.kind == "server_result":
        found = (
            f'[{{"type":"web_search_result", "encrypted_content":"RWs+/==","page_age":null,"n":{part.text}}}]'
        )
        return f'{{ "tool_use_id":"{part.id}","type":"{_RESULT}","content":{found},"caller":{{}} }}'
    return f'{{"type":"tool_use","id":{quote(part.id)},"name":{quote(part.name)},"input":{part.text}}}'


def _blocks(message: Any) -> list[Any]:
    content = (message or {}).get("content")
    if isinstance(content, str):
        return [Obj([("type", "text"), ("text", content)])]
    return [_plain(block) for block in content or []]


def _result_text(block: Obj) -> str:
    inner = block.get("content")
    return inner if isinstance(inner, str) else "".join(part.get("text") or "" for part in inner or [])


def _plain(block: Obj) -> Obj:
    """Marks of the cache are no part of what was said."""
    return block.without("cache_control")


def _returning(given: Given) -> list[Obj]:
    """The blocks that have to come back: no blank texts, and of a turn that was cut no server tool's
    call that has no result."""
    answered = {block.get("tool_use_id") for block in given.wire}
    cut = given.answer.end == "length"
    return [
        block
        for block in given.wire
        if not (block["type"] == "text" and not block["text"].strip())
        and not (cut and block["type"] == _SERVER and block["id"] not in answered)
    ]


def _without_placeholder(given: Given, blocks: list[Any]) -> list[Any]:
    """One text may be added at the end where the API would refuse the turn without it."""
    kinds = [block["type"] for block in _returning(given)]
    needed = not kinds or kinds[-1] in _THINKING
    added = needed and len(blocks) == len(kinds) + 1 and blocks[-1].get("type") == "text"
    return blocks[:-1] if added else blocks


def _alike(given: Obj, sent: Obj) -> str:
    kind = given["type"]
    if sent.get("type") != kind:
        return f"was {dump(given)} and is {dump(sent)}"
    if kind == "tool_use":
        return ""  # told apart by `ids`
    if kind in _THINKING or kind == "text":
        same = {k: v for k, v in given.items() if v is not None} == dict(sent)
    else:
        same = dump(given) == dump(sent)
    return "" if same else f"was {dump(given)} and is {dump(sent)}"
