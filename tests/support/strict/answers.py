"""What a model may say, drawn from a seed, in no provider's form.

For the strict stubs: each shape writes an `Answer` in its own way. An `Author` knows how a
conversation went so far (its turn, what is still under way at the provider's own tools) and
answers so that every conversation comes to an end.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

End = Literal["stop", "calls", "length", "pause"]
Kind = Literal["text", "thinking", "redacted", "server", "server_result", "call"]

ITEMS = (
    "1",
    "9007199254740993",
    "1e400",
    "-0.0",
    "19.90",
    "123456789012345678901234567890",
    "null",
    "true",
    "[]",
    "{}",
    '"é\\u2028 \\ud83d\\ude00 \\"quoted\\""',
    '"nul \\u0000 within"',
    '{ "a" : 1 , "a" : 2.50, "z": [ 1, [2, {"b": "}]"}] ] }',
    "[" * 60 + "]" * 60,
)
"""Values of arguments that some parser or other does not survive."""

BROKEN = ("", " ", "null", "[1]", '"text"', '{"item": ', '{"a":1}{"b":2}', "{'item': 1}", '{"item": NaN}')
"""Arguments that are no JSON object, for providers that send them as a string."""

NAMES = ("nope", "bad name!", "", "x" * 80)
"""Tools that no agent has."""

HOWS = ("ok",) * 8 + ("empty", "error", "raise", "busy", "unreachable", "slow", "hang", "long")
"""What becomes of a call: see `tools`."""

IDS = ("", "call_0", "call_0", "abc", "with space/é", "i" * 300, "turn-3", "call_0_0", "call_1_0")
"""Ids of calls that come twice, not at all, or in a form that providers refuse themselves."""

TEXTS = ("", " ", "\n\n", "Well.", 'A text with "quotes", a \\ and é 😀 \u2028.', "  spaces around  ")


@dataclass(frozen=True, kw_only=True)
class Part:
    """A piece of an answer. Of a call: `text` has the arguments. A server's tool: `id` pairs both halves."""

    kind: Kind
    text: str = ""
    name: str = ""
    id: str = ""
    signature: str = ""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One turn. `usage`: tokens in, of them cached, out, of them reasoning."""

    parts: tuple[Part, ...]
    end: End
    usage: tuple[int, int, int, int] = (10, 0, 5, 0)

    @property
    def calls(self) -> list[Part]:
        return [part for part in self.parts if part.kind == "call"]


@dataclass(frozen=True, kw_only=True)
class Style:
    """What a shape allows. `free_ids`: calls may bear any id. `free_arguments`: arguments are a string."""

    thinking: bool = True
    redacted: bool = False
    server: bool = False
    pause: bool = False
    free_ids: bool = True
    free_arguments: bool = False


@dataclass(frozen=True, kw_only=True)
class Talk:
    """Where one conversation stands behind an answer."""

    turns_max: int
    turns: int = 0
    under_way: tuple[Part, ...] = ()
    """Calls of the server's tools whose results the next answer begins with."""


class Author:
    """Draws answers. `tools` are what calls may name; an agent's tool gets a task that no other has."""

    def __init__(self, rng: random.Random, style: Style) -> None:
        self.rng = rng
        self.style = style
        self._count = 0

    def talk(self) -> Talk:
        return Talk(turns_max=self.rng.randint(1, 6))

    def answer(self, talk: Talk, tools: Sequence[str], agents: Sequence[str]) -> tuple[Answer, Talk]:
        """The next turn, and where the conversation stands behind it. `agents`: those of `tools`
        that take a task."""
        rng = self.rng
        talk = replace(talk, turns=talk.turns + 1)
        parts = [self._result(call) for call in talk.under_way]
        under_way: list[Part] = []
        usage = (rng.randint(1, 5000), rng.choice([0, 1]), rng.randint(1, 900), rng.choice([0, 1]))
        end = self._end(talk, bool(tools))
        if end == "stop":
            parts += [*self._thoughts(), *self._texts(final=rng.random() < 0.8)]
        else:
            parts += [*self._thoughts(), *self._texts(), *self._server()]
        if end == "calls" or (end == "length" and tools and rng.random() < 0.5):
            parts += self._mixed([self._call(tools, agents) for _ in range(self._batch())])
        if end == "pause" or (end in ("length", "calls") and self.style.pause and rng.random() < 0.3):
            under_way = [self._begun()]
            parts += under_way
        if end == "length":
            under_way = []  # cut off: nobody will ever answer it
            if rng.random() < 0.3:
                parts += self._thoughts(always=True)
        return Answer(parts=tuple(parts), end=end, usage=usage), replace(talk, under_way=tuple(under_way))

    def _end(self, talk: Talk, tools: bool) -> End:
        if talk.turns >= talk.turns_max:
            return "stop"
        ends: list[tuple[End, float]] = [("calls", 6.0 if tools else 0.0), ("length", 1.0), ("stop", 0.4)]
        if self.style.pause:
            ends.append(("pause", 1.5))
        return self.rng.choices([end for end, _ in ends], [weight for _, weight in ends])[0]

    def _batch(self) -> int:
        return self.rng.choice([1, 1, 1, 2, 2, 3, 4, 6, 12])

    def _thoughts(self, *, always: bool = False) -> list[Part]:
        if not self.style.thinking or (not always and self.rng.random() < 0.5):
            return []
        thoughts = []
        for _ in range(self.rng.choice([1, 1, 2])):
            self._count += 1
            if self.style.redacted and self.rng.random() < 0.3:
                thoughts.append(Part(kind="redacted", signature=f"cmVkYWN0ZWQ{self._count}+/=="))
            else:
                text = self.rng.choice(["", " ", 'Hm: é \u2028 "so".\n', "I think."])
                thoughts.append(Part(kind="thinking", text=text, signature=f"U2lnbmF0dXJl{self._count}+/=="))
        return thoughts

    def _texts(self, *, final: bool = False) -> list[Part]:
        if final:
            return [Part(kind="text", text=f"The answer: {self.rng.choice(TEXTS)}")]
        if self.rng.random() < 0.4:
            return []
        return [Part(kind="text", text=self.rng.choice(TEXTS)) for _ in range(self.rng.choice([1, 1, 2]))]

    def _server(self) -> list[Part]:
        if not self.style.server or self.rng.random() < 0.7:
            return []
        begun = self._begun()
        return [begun, self._result(begun)]

    def _begun(self) -> Part:
        self._count += 1
        return Part(kind="server", id=f"srvtoolu_{self._count}", text=self.rng.choice(ITEMS))

    def _result(self, begun: Part) -> Part:
        return Part(kind="server_result", id=begun.id, text=self.rng.choice(ITEMS))

    def _mixed(self, calls: list[Part]) -> list[Part]:
        """Now and then something is said or thought between two calls."""
        mixed: list[Part] = []
        for call in calls:
            if mixed and self.rng.random() < 0.1:
                mixed += self._thoughts()
            mixed.append(call)
        return mixed

    def _call(self, tools: Sequence[str], agents: Sequence[str]) -> Part:
        rng = self.rng
        self._count += 1
        name = rng.choice(NAMES) if rng.random() < 0.05 else rng.choice(tools)
        wire_id = f"toolu_{self._count}"
        if self.style.free_ids and rng.random() < 0.5:
            wire_id = rng.choice(IDS)
        if self.style.free_arguments and rng.random() < 0.1:
            arguments = rng.choice(BROKEN)
        elif name in agents:
            arguments = f'{{"task": "Task {self._count}."}}' if rng.random() < 0.95 else '{"task": 7}'
        else:
            arguments = self._arguments()
        return Part(kind="call", name=name, text=arguments, id=wire_id)

    def _arguments(self) -> str:
        rng = self.rng
        how = rng.choice(HOWS)
        seconds = round(rng.choice([0.0, 0.05, 0.4, 2.0]) * rng.random(), 3)
        item = rng.choice(ITEMS) if rng.random() < 0.4 else f'"{self._count}"'
        written = f'{{"item":{item},"how":"{how}","seconds":{seconds}}}'
        if rng.random() < 0.1:
            written = f'{{ "how" : "{how}",\n "item": {item}, "seconds": {seconds} }}'
        return (
            written if rng.random() < 0.95 else rng.choice(['{"wrong": 1}', "{}", '{"item": 1, "item": 2}'])
        )
