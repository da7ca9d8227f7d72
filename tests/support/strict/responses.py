"""OpenAI's responses, without the server's own memory: the whole list of items is sent each time.

- Each call has one output behind it and each output its call; outputs stand in the calls' order.
- No item id stands twice, and each begins as its kind's do.
- Reasoning is followed by an item of the model, and comes back as it was, as items of the
  provider's own tools do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.support.strict import ids
from tests.support.strict.answers import Answer, Part, Style
from tests.support.strict.exact import Obj, dump, parse, quote
from tests.support.strict.ledger import Given

_PREFIXES = {"message": "msg_", "function_call": "fc_", "reasoning": "rs_", "web_search_call": "ws_"}
_OF_THE_MODEL = ("function_call", "reasoning", "web_search_call")


class Responses:
    """See the module's docstring."""

    name = "openai-responses"
    style = Style(server=True, free_arguments=True)
    field = "input"

    def tools(self, body: Obj) -> list[str]:
        return [tool["name"] for tool in body.get("tools") or []]

    def spoken(self, message: Obj) -> bool:
        return message.get("role") == "assistant" or message.get("type") in _OF_THE_MODEL

    # --- what is refused whatever was said

    def rules(self, body: Obj) -> Iterator[str]:
        items = body["input"]
        yield from ids.twice(self.tools(body))
        yield from ids.twice([item["id"] for item in items if item.get("id")])
        yield from ids.twice([item["call_id"] for item in items if item.get("type") == "function_call"])
        waiting: list[str] = []
        for place, item in enumerate(items):
            yield from (f"item {place}: {problem}" for problem in self._item(item))
            kind = item.get("type")
            if kind == "function_call_output":
                if not waiting or item.get("call_id") != waiting[0]:
                    yield f"item {place}: the output of {item.get('call_id')!r} for {waiting}"
                waiting = waiting[1:]
            elif kind == "function_call":
                waiting.append(item.get("call_id"))
            elif waiting and not self.spoken(item):
                yield f"item {place}: no tool output found for {waiting}"
            following = items[place + 1] if place + 1 < len(items) else Obj([])
            if kind == "reasoning" and not self.spoken(following):
                yield f"item {place}: reasoning was provided without its required following item"
        if waiting:
            yield f"no tool output found for {waiting}"
        if items and self.spoken(items[-1]):
            yield "ends with the model's turn"

    def _item(self, item: Obj) -> Iterator[str]:
        kind = item.get("type") or "message"
        if "id" in item and not str(item["id"]).startswith(_PREFIXES.get(kind, "")):
            yield f"the id {item['id']!r} of a {kind}"
        if kind == "message" and not all(text.strip() for text in _texts(item) or [""]):
            yield f"a message without text: {dump(item)}"
        if kind == "function_call_output" and not str(item.get("output") or "").strip():
            yield f"an empty output: {dump(item)}"
        if kind == "function_call":
            try:
                if not isinstance(parse(item.get("arguments") or ""), Obj):
                    yield f"arguments that are no object: {dump(item)}"
            except ValueError:
                yield f"arguments that are not JSON: {dump(item)}"

    # --- what was said

    def wire(self, answer: Answer) -> Any:
        count = [0]
        items = [_written(part, count) for part in answer.parts if part.kind != "server_result"]
        return parse(f"[{','.join(items)}]")

    def body(self, given: Given) -> str:
        tokens_in, cached, out, reasoning = given.answer.usage
        usage = (
            f'{{"input_tokens":{tokens_in},"input_tokens_details":{{"cached_tokens":{cached}}},'
            f'"output_tokens":{out},"output_tokens_details":{{"reasoning_tokens":{reasoning}}},'
            f'"total_tokens":{tokens_in + out}}}'
        )
        cut = given.answer.end == "length"
        status, why = ("incomplete", '{"reason":"max_output_tokens"}') if cut else ("completed", "null")
        output = dump(given.wire).replace("@", given.id)
        return (
            f'{{"id":{quote(given.id)},"object":"response","model":"strict","status":"{status}",'
            f'"incomplete_details":{why},"error":null,"output":{output},"usage":{usage}}}'
        )

    def results(self, rest: list[Any]) -> list[str]:
        return [item["output"] for item in rest if item.get("type") == "function_call_output"]

    def error(self, status: int, code: str, message: str) -> str:
        return f'{{"error":{{"message":{quote(message)},"type":null,"code":{quote(code)},"param":null}}}}'

    # --- what comes back

    def follows(self, given: Given, rest: list[Any]) -> Iterator[str]:
        wanted = parse(dump(given.wire).replace("@", given.id))
        wanted = [
            item for item in wanted if item["type"] != "message" or any(t.strip() for t in _texts(item))
        ]
        sent = list(rest)
        for item in wanted:
            back = sent.pop(0) if sent else Obj([])
            if problem := _alike(item, back):
                yield problem
        needed = not wanted or wanted[-1]["type"] == "reasoning"
        if needed and sent and sent[0].get("role") == "assistant" and "id" not in sent[0]:
            sent.pop(0)  # a word of the client's own, where the turn could not stand without one
        calls = [back for back in rest[: len(wanted)] if back.get("type") == "function_call"]
        yield from ids.names(given.answer.calls, [(c.get("call_id"), c.get("name")) for c in calls])
        for call, back in zip(given.answer.calls, calls, strict=False):
            if problem := ids.arguments_text(call, back.get("arguments")):
                yield problem
        outputs = [item.get("call_id") for item in sent if item.get("type") == "function_call_output"]
        if outputs != [call.get("call_id") for call in calls]:
            yield f"outputs {outputs} for {len(calls)} calls"
        said = sent[len(outputs) :]
        if any(item.get("role") != "user" for item in said) or len(said) > 1:
            yield f"behind the outputs stands {dump(said)}"


def _written(part: Part, count: list[int]) -> str:
    """Item ids have the response's own in place of the "@"."""
    count[0] += 1
    number = f"@_{count[0]}"
    if part.kind == "text":
        note = f'{{"type":"url_citation","url":"http://a.test/{count[0]}","start_index":1}}'
        annotations = f"[{note}]" if part.text.startswith("A") else "[]"
        content = (
            f'{{"type":"output_text","text":{quote(part.text)},"annotations":{annotations},"logprobs":[]}}'
        )
        return (
            f'{{"type":"message","id":"msg_{number}","role":"assistant","status":"completed",'
            f'"content":[{content}]}}'
        )
    if part.kind == "thinking":
        summary = f'[{{"type":"summary_text","text":{quote(part.text)}}}]' if part.text else "[]"
        return (
            f'{{"type":"reasoning","id":"rs_{number}","summary":{summary},'
            f'"encrypted_content":{quote(part.signature)},"status":null}}'
        )
    if part.kind == "server":
        action = f'{{"type":"search","query":{part.text},"query":"again"}}'
        return f'{{"type":"web_search_call","id":"ws_{number}","status":"completed","action":{action}}}'
    return (
        f'{{"type":"function_call","id":"fc_{number}","call_id":{quote(part.id)},"name":{quote(part.name)},'
        f'"arguments":{quote(part.text)},"status":"completed"}}'
    )


def _texts(item: Obj) -> list[str]:
    content = item.get("content")
    return [content] if isinstance(content, str) else [part.get("text") or "" for part in content or []]


def _alike(given: Obj, sent: Obj) -> str:
    kind, problem = given["type"], f"was {dump(given)} and is {dump(sent)}"
    if sent.get("type") != kind or sent.get("id") != given["id"]:
        return problem
    if kind == "message":
        pairs = zip(given["content"], sent["content"], strict=False)
        same = len(given["content"]) == len(sent["content"]) and all(
            dict(a.without("logprobs")) == dict(b.without("logprobs")) for a, b in pairs
        )
    elif kind == "reasoning":
        same = {k: v for k, v in given.items() if v is not None} == dict(sent)
    else:
        same = kind == "function_call" or dump(given) == dump(sent)
    return "" if same else problem
