"""A provider that knows every conversation it has led, and refuses one that went another way.

Each request must be the newest one of its conversation again (another try), or go on from one
answer to it: nothing before may differ, neither messages nor tools nor instructions, and the
answer must come back as it was given. A shape (one module a provider) knows how its messages
look and what else its servers refuse. `refusals` says what was wrong, for the test to print.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.support.strict.answers import Answer, Author, Part, Style, Talk
from tests.support.strict.exact import Obj, dump, parse


@dataclass(frozen=True, kw_only=True)
class Given:
    """An answer as it was sent. `wire`: what of it is to come back, in the shape's form."""

    id: str
    answer: Answer
    talk: Talk
    wire: Any


@dataclass
class Led:
    """One conversation, as its newest request had it, and the answers to just that request."""

    head: dict[str, str]
    messages: list[str]
    talk: Talk
    given: list[Given] = field(default_factory=list)


class Shape(Protocol):
    """What is one provider's own."""

    name: str
    """In manifests, before the colon."""
    style: Style
    field: str
    """Where the messages stand in a body."""

    def rules(self, body: Obj) -> Iterator[str]:
        """What this provider refuses whatever was said before."""

    def spoken(self, message: Obj) -> bool:
        """The message is the model's."""

    def tools(self, body: Obj) -> list[str]:
        """Names of the tools that the model is told of."""

    def wire(self, answer: Answer) -> Any:
        """The answer in the provider's form: of its body what is to come back."""

    def body(self, given: Given) -> str:
        """The reply that carries it, as JSON."""

    def follows(self, given: Given, rest: list[Any]) -> Iterator[str]:
        """What is wrong with `rest`: the answer, its results, and what the user said behind them."""

    def results(self, rest: list[Any]) -> list[str]:
        """What the calls' results say, in the order in which they stand."""

    def error(self, status: int, code: str, message: str) -> str:
        """The body of a refusal."""


class Refused(Exception):
    """Answered with 400."""


class Ledger:
    """See the module's docstring. `agents`: tools that are agents, whose task is a text of its own."""

    def __init__(self, shape: Shape, seed: int, agents: Sequence[str] = ()) -> None:
        self.shape = shape
        self.rng = random.Random(seed)
        self.author = Author(self.rng, shape.style)
        self.refusals: list[str] = []
        self.given: dict[str, Given] = {}
        """By id: every answer that was ever sent."""
        self._agents = agents
        self._led: dict[str, Led] = {}

    def take(self, data: bytes) -> Led:
        """The conversation that a request goes on with. Raises Refused."""
        try:
            body = parse(data)
        except ValueError as error:
            raise self._refuse([f"no JSON: {error}"]) from error
        if not isinstance(body, Obj) or not isinstance(body.get(self.shape.field), list):
            raise self._refuse([f"no {self.shape.field}"])
        if found := list(self.shape.rules(body)):
            raise self._refuse(found)
        messages = body[self.shape.field]
        head = {key: dump(value) for key, value in body.pairs if key != self.shape.field}
        written = [dump(message) for message in messages]
        if not written:
            raise self._refuse(["no message"])
        led = self._led.get(self._opening(messages, written))
        if led is None:
            return self._begin(head, messages, written)
        if found := list(self._onward(led, head, messages, written)):
            raise self._refuse(found)
        return led

    def answer(self, led: Led, body: bytes) -> Given:
        """The next turn of the conversation, or another one for the same request."""
        answer, talk = self.author.answer(led.talk, self.shape.tools(parse(body)), self._agents)
        response_id = f"resp_{len(self.given)}"
        given = Given(id=response_id, answer=answer, talk=talk, wire=self.shape.wire(answer))
        self.given[response_id] = given
        led.given.append(given)
        return given

    def _opening(self, messages: list[Any], written: list[str]) -> str:
        """What tells conversations apart: all that was said before the model spoke."""
        spoken = [place for place, message in enumerate(messages) if self.shape.spoken(message)]
        return "\n".join(written[: spoken[0]] if spoken else written)

    def _begin(self, head: dict[str, str], messages: list[Any], written: list[str]) -> Led:
        if any(self.shape.spoken(message) for message in messages):
            raise self._refuse(["a conversation with answers that were never given"])
        led = Led(head=head, messages=written, talk=self.author.talk())
        self._led[self._opening(messages, written)] = led
        return led

    def _onward(
        self, led: Led, head: dict[str, str], messages: list[Any], written: list[str]
    ) -> Iterator[str]:
        if list(head) != list(led.head) or head != led.head:
            changed = [key for key in {**head, **led.head} if head.get(key) != led.head.get(key)]
            values = [(led.head.get(key), head.get(key)) for key in changed]
            yield f"{changed or 'the order of keys'} changed: {values}"
        length = len(led.messages)
        if written[:length] != led.messages:
            if len(written) < length and led.messages[: len(written)] == written:
                yield f"a turn is asked for again: {len(written)} messages, {length} were sent before"
                return
            place = next(i for i, old in enumerate(led.messages) if written[i : i + 1] != [old])
            yield f"message {place} changed from {led.messages[place]} to {written[place : place + 1]}"
            return
        rest = messages[length:]
        if not rest:
            return
        complaints: list[list[str]] = []
        for given in led.given:
            found = list(self.shape.follows(given, rest))
            found = found or list(_told(given.answer.calls, self.shape.results(rest)))
            if not found:
                led.messages, led.given, led.talk = written, [], given.talk
                return
            complaints.append(found)
        yield f"goes on from no answer that was given: {dump(rest)}"
        yield from min(complaints, key=len, default=[])

    def _refuse(self, found: list[str]) -> Refused:
        self.refusals += [f"{self.shape.name}: {problem}" for problem in found]
        return Refused("; ".join(found))


def match(given: Sequence[Any], sent: Sequence[Any], alike: Callable[[Any, Any], str]) -> Iterator[str]:
    """Both lists, element for element. `alike` gives "" or what is wrong."""
    for place, (one, other) in enumerate(zip(given, sent, strict=False)):
        if problem := alike(one, other):
            yield f"block {place}: {problem}"
    if len(given) > len(sent):
        yield f"{len(given) - len(sent)} blocks are missing: {dump(list(given[len(sent) :]))}"
    if len(sent) > len(given):
        yield f"{len(sent) - len(given)} blocks too many: {dump(list(sent[len(given) :]))}"


def _told(calls: Sequence[Part], texts: Sequence[str]) -> Iterator[str]:
    """Results that say what was asked stand behind the calls that asked it."""
    for place, (call, text) in enumerate(zip(calls, texts, strict=True)):
        try:
            asked, told = parse(call.text), parse(text)
        except ValueError:
            continue
        if isinstance(asked, Obj) and isinstance(told, Obj) and "item" in told:
            item = asked.get("item")
            if isinstance(item, str) and item.isdecimal() and told["item"] != item:
                yield f"call {place} asked for {item}, and its result is {text}"
