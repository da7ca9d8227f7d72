"""Google's generateContent.

- A content has parts, and a part has something in it.
- Behind a content with calls stands one with as many responses, in the calls' order, by their names.
- Thought signatures come back on the parts that they came with, and the first call of a turn has one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.support.strict import ids
from tests.support.strict.answers import Answer, Part, Style
from tests.support.strict.exact import Obj, dump, parse, quote
from tests.support.strict.ledger import Given, match

_SIGNATURE = "thoughtSignature"


class Google:
    """See the module's docstring."""

    name = "google"
    style = Style(server=True)
    field = "contents"

    def tools(self, body: Obj) -> list[str]:
        declared = [tool.get("functionDeclarations") or [] for tool in body.get("tools") or []]
        return [function["name"] for functions in declared for function in functions]

    def spoken(self, message: Obj) -> bool:
        return bool(message.get("role") == "model")

    # --- what is refused whatever was said

    def rules(self, body: Obj) -> Iterator[str]:
        yield from ids.twice(self.tools(body))
        contents = body["contents"]
        if contents and self.spoken(contents[0]):
            yield "the first content is the model's"
        if contents and self.spoken(contents[-1]):
            yield "the last content is the model's"
        waiting: list[Any] = []
        used: list[Any] = []
        for place, content in enumerate(contents):
            parts = content.get("parts") or []
            if not parts:
                yield f"content {place}: must include at least one parts field"
            yield from (f"content {place}: {problem}" for part in parts for problem in self._part(part))
            responses = [part["functionResponse"] for part in parts if "functionResponse" in part]
            found = [(response.get("id"), response.get("name")) for response in responses]
            if found != waiting:
                yield f"content {place}: the responses {found} for the calls {waiting}"
            if responses and len(responses) != len(parts):
                yield f"content {place}: responses and other parts are mixed"
            calls = [part for part in parts if "functionCall" in part]
            if calls and not calls[0].get(_SIGNATURE):
                yield f"content {place}: function call is missing a thought_signature"
            waiting = [(call["functionCall"].get("id"), call["functionCall"].get("name")) for call in calls]
            used += [wire_id for wire_id, _ in waiting if wire_id]
        if waiting:
            yield f"calls without responses: {waiting}"
        yield from ids.twice(used)

    def _part(self, part: Obj) -> Iterator[str]:
        data = [key for key in part if key not in ("thought", _SIGNATURE)]
        if len(data) != 1:
            yield f"a part needs one kind of data: {dump(part)}"
        if "text" in part and not part["text"] and not part.get(_SIGNATURE):
            yield f"an empty text: {dump(part)}"
        if "functionCall" in part and not isinstance(part["functionCall"].get("args"), Obj):
            yield f"args that are no object: {dump(part)}"
        if "functionResponse" in part and not isinstance(part["functionResponse"].get("response"), Obj):
            yield f"a response that is no object: {dump(part)}"

    # --- what was said

    def wire(self, answer: Answer) -> Any:
        signed = next((place for place, part in enumerate(answer.parts) if part.kind == "call"), -1)
        parts = [_written(part, place, place == signed) for place, part in enumerate(answer.parts)]
        found: list[Obj] = []
        for part in parse(f"[{','.join(parts)}]"):
            if found and _plain(part) and _plain(found[-1]):  # a stream could not tell them apart
                found[-1] = Obj([("text", found[-1]["text"] + part["text"])])
            else:
                found.append(part)
        return found

    def body(self, given: Given) -> str:
        tokens_in, cached, out, reasoning = given.answer.usage
        usage = (
            f'{{"promptTokenCount":{tokens_in},"candidatesTokenCount":{out - reasoning},'
            f'"thoughtsTokenCount":{reasoning},"cachedContentTokenCount":{cached},'
            f'"totalTokenCount":{tokens_in + out}}}'
        )
        end = "MAX_TOKENS" if given.answer.end == "length" else "STOP"
        content = f'{{"role":"model","parts":{dump(given.wire)}}}'
        return (
            f'{{"responseId":{quote(given.id)},"modelVersion":"strict","usageMetadata":{usage},'
            f'"candidates":[{{"index":0,"finishReason":"{end}","content":{content}}}]}}'
        )

    def results(self, rest: list[Any]) -> list[str]:
        parts = [part for content in rest for part in content["parts"] if "functionResponse" in part]
        return ["".join(map(str, part["functionResponse"]["response"].values())) for part in parts]

    def error(self, status: int, code: str, message: str) -> str:
        return f'{{"error":{{"code":{status},"status":{quote(code)},"message":{quote(message)}}}}}'

    # --- what comes back

    def follows(self, given: Given, rest: list[Any]) -> Iterator[str]:
        if not self.spoken(rest[0]):
            yield f"an answer is missing: {dump(rest[0])}"
            return
        parts, calls = rest[0]["parts"], given.answer.calls
        wanted = [part for part in given.wire if _counts(part)]
        visible = any("thought" not in part and (part.get("text", "x").strip()) for part in wanted)
        if not visible and len(parts) == len(wanted) + 1 and "text" in parts[-1]:
            parts = parts[:-1]  # a word of the client's own
        yield from match(wanted, parts, _alike)
        made = [part["functionCall"] for part in parts if "functionCall" in part]
        yield from ids.names(calls, [(call.get("id"), call.get("name")) for call in made])
        for call, back in zip(calls, made, strict=False):
            if problem := ids.arguments(call, back.get("args")):
                yield problem
        behind = rest[1:]
        if any(self.spoken(content) for content in behind) or not 1 <= len(behind) <= 1 + bool(calls):
            yield f"behind the model's turn stands {dump(behind)}"


def _written(part: Part, place: int, signed: bool) -> str:
    signature = quote(f"c2ln{place}+/==")
    if part.kind == "text":
        more = f',"{_SIGNATURE}":{signature}' if len(part.text) < 2 else ""
        return f'{{"text":{quote(part.text)}{more}}}'
    if part.kind == "thinking":
        return f'{{"text":{quote(part.text)},"thought":true,"{_SIGNATURE}":{quote(part.signature)}}}'
    if part.kind == "server":
        return f'{{"executableCode":{{"language":"PYTHON","code":{quote(part.text)},"n":{part.text} }}}}'
    if part.kind == "server_result":
        return f'{{"codeExecutionResult":{{"outcome":"OUTCOME_OK","output":{quote(part.text)},"n":1.0}}}}'
    named = f'"id":{quote(part.id)},' if part.id else ""
    more = f',"{_SIGNATURE}":{signature}' if signed else ""
    return f'{{"functionCall":{{{named}"name":{quote(part.name)},"args":{part.text}}}{more}}}'


def _plain(part: Obj) -> bool:
    return list(part) == ["text"]


def _counts(part: Obj) -> bool:
    """Blank text that no signature stands on may be left out."""
    return "text" not in part or bool(part["text"].strip()) or _SIGNATURE in part


def _alike(given: Obj, sent: Obj) -> str:
    problem = f"was {dump(given)} and is {dump(sent)}"
    if "functionCall" in given:  # the call itself is told apart by `ids`
        return "" if "functionCall" in sent and given.get(_SIGNATURE) == sent.get(_SIGNATURE) else problem
    if "text" in given:
        return "" if dict(given) == dict(sent) else problem
    return "" if dump(given) == dump(sent) else problem
