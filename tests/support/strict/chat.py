"""OpenAI's chat completions, as strict as any of the servers that speak them.

- Each message has its content key; it is null only beside calls, and never blank.
- Behind calls stand their results, one for each, in their order, and nothing else.
- Reasoning comes back in the field that it came in.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.support.strict import ids
from tests.support.strict.answers import Answer, Part, Style
from tests.support.strict.exact import Obj, dump, parse, quote
from tests.support.strict.ledger import Given

_ENDS = {"stop": "stop", "calls": "tool_calls", "length": "length", "pause": "stop"}


class Chat:
    """See the module's docstring."""

    name = "openai"
    style = Style(free_arguments=True)
    field = "messages"

    def tools(self, body: Obj) -> list[str]:
        return [tool["function"]["name"] for tool in body.get("tools") or []]

    def spoken(self, message: Obj) -> bool:
        return bool(message.get("role") == "assistant")

    # --- what is refused whatever was said

    def rules(self, body: Obj) -> Iterator[str]:
        if "tools" in body and not body["tools"]:
            yield "an empty list of tools"
        yield from ids.twice(self.tools(body))
        yield from (f"the tool {name!r}" for name in self.tools(body) if not ids.WELL_FORMED(name))
        waiting: list[str] = []
        used: list[str] = []
        for place, message in enumerate(body["messages"]):
            yield from (f"message {place}: {problem}" for problem in self._content(message))
            if message.get("role") == "tool":
                if not waiting or message.get("tool_call_id") != waiting[0]:
                    yield f"message {place}: the result of {message.get('tool_call_id')!r} for {waiting}"
                waiting = waiting[1:]
                continue
            if waiting:
                yield f"message {place}: calls without a result: {waiting}"
            calls = message.get("tool_calls") or []
            yield from (f"message {place}: {problem}" for call in calls for problem in self._call(call))
            waiting = [call.get("id") for call in calls]
            used += waiting
            if self.spoken(message) and not calls and place == len(body["messages"]) - 1:
                yield "ends with the model's turn"
        if waiting:
            yield f"calls without a result at the end: {waiting}"
        yield from ids.twice(used)

    def _content(self, message: Obj) -> Iterator[str]:
        if "content" not in message:
            yield "no content key"
        elif message["content"] is None and not message.get("tool_calls"):
            yield "content is null and there are no calls"
        elif message["content"] is not None and not str(message["content"]).strip():
            yield "content is empty"
        if "tool_calls" in message and not message["tool_calls"]:
            yield "an empty list of calls"

    def _call(self, call: Obj) -> Iterator[str]:
        if call.get("type") != "function" or not isinstance(call.get("function"), Obj):
            yield f"a call that is no function's: {dump(call)}"
            return
        try:
            if not isinstance(parse(call["function"].get("arguments") or ""), Obj):
                yield f"arguments that are no object: {dump(call)}"
        except ValueError:
            yield f"arguments that are not JSON: {dump(call)}"

    # --- what was said

    def wire(self, answer: Answer) -> Any:
        members = ['"role":"assistant"', f'"content":{_text(answer)}']
        if thoughts := [part for part in answer.parts if part.kind == "thinking"]:
            members.append(f'"reasoning_content":{quote(" ".join(part.text for part in thoughts))}')
            details = ",".join(_detail(part, place) for place, part in enumerate(thoughts))
            members.append(f'"reasoning_details":[{details}]')
        if calls := answer.calls:
            members.append(f'"tool_calls":[{",".join(map(_call_written, calls))}]')
        return parse("{" + ",".join(members) + "}")

    def body(self, given: Given) -> str:
        tokens_in, cached, out, reasoning = given.answer.usage
        usage = (
            f'{{"prompt_tokens":{tokens_in},"completion_tokens":{out},"total_tokens":{tokens_in + out},'
            f'"prompt_tokens_details":{{"cached_tokens":{cached}}},'
            f'"completion_tokens_details":{{"reasoning_tokens":{reasoning}}}}}'
        )
        choice = (
            f'{{"index":0,"finish_reason":"{_ENDS[given.answer.end]}","logprobs":null,'
            f'"message":{dump(given.wire)}}}'
        )
        return (
            f'{{"id":{quote(given.id)},"object":"chat.completion","created":1,"model":"strict",'
            f'"choices":[{choice}],"usage":{usage}}}'
        )

    def results(self, rest: list[Any]) -> list[str]:
        return [message["content"] for message in rest if message.get("role") == "tool"]

    def error(self, status: int, code: str, message: str) -> str:
        return f'{{"error":{{"message":{quote(message)},"type":null,"code":{quote(code)},"param":null}}}}'

    # --- what comes back

    def follows(self, given: Given, rest: list[Any]) -> Iterator[str]:
        sent, was, calls = rest[0], given.wire, given.answer.calls
        if not self.spoken(sent):
            yield f"an answer is missing: {dump(sent)}"
            return
        said = was["content"] if (was["content"] or "").strip() else None
        placeholder = said is None and not calls
        if sent.get("content") != said and not placeholder:
            yield f"the content was {said!r} and is {sent.get('content')!r}"
        for key in ("reasoning_content", "reasoning_details"):
            if dump(was.get(key) or None) != dump(sent.get(key) or None):
                yield f"{key} was {dump(was.get(key))} and is {dump(sent.get(key))}"
        made = sent.get("tool_calls") or []
        if len(made) != len(calls):
            yield f"{len(calls)} calls were made, and {len(made)} came back"
        functions = [call.get("function") or Obj([]) for call in made]
        yield from ids.names(
            calls, [(c.get("id"), f.get("name")) for c, f in zip(made, functions, strict=True)]
        )
        for call, function in zip(calls, functions, strict=False):
            if problem := ids.arguments_text(call, function.get("arguments")):
                yield problem
        behind = [message.get("role") for message in rest[1:]]
        if behind[: len(calls)] != ["tool"] * len(calls) or len(behind) > len(calls) + 1:
            yield f"behind {len(calls)} calls stand {behind}"
        if not calls and not behind:
            yield "nothing was said behind the model's turn"


def _text(answer: Answer) -> str:
    texts = [part.text for part in answer.parts if part.kind == "text"]
    return quote("".join(texts)) if texts else "null"


def _detail(part: Part, place: int) -> str:
    return (
        f'{{"type":"reasoning.text","text":{quote(part.text)},"signature":{quote(part.signature)},'
        f'"index":{place},"weight":1.0}}'
    )


def _call_written(part: Part) -> str:
    function = f'{{"name":{quote(part.name)},"arguments":{quote(part.text)}}}'
    return f'{{"id":{quote(part.id)},"type":"function","function":{function}}}'
