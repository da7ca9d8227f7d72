"""The conversation of one agent, rebuilt from the outputs of its steps.

Who calls: the loop's steps. What holds: each tool call of a turn is followed by
exactly one result, in the order of the calls; the same log gives the same
conversation, also where it was shortened (the records below a turn say so, see
`compaction`); what is not told any more is not held. Nodes are named by their turn:
`user-K` is what is said before turn K, `turn-K` the turn, `tools-K` its batch,
`call-K-I` its I-th call.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentrun.agent.results import put_aside
from agentrun.agent.window import TurnSize
from agentrun.graph.types import NodeContext
from agentrun.models import estimate_message
from agentrun.models.base import Message
from agentrun.proto import transcript_pb2 as pb

TURNS_HELD = 8
"""So many of the newest turns are at hand for those who look at one; more than any of them looks at."""

SHORTENINGS = ("summary-refused", "results-refused", "summary", "results")
"""Names of the steps below a turn that shorten what is told before it, the newest first."""

_SUMMARY = (
    "{prompt}\n\n[What was said and done after this message, up to here, is left out. A summary of it:]\n\n"
    "{summary}\n\n[End of the summary. The conversation goes on from there.]"
)


def calls_of(turn: pb.AssistantTurn) -> list[pb.ToolCallPart]:
    """The turn's tool calls, in order."""
    return [part.tool_call for part in turn.parts if part.HasField("tool_call")]


def text_of(turn: pb.AssistantTurn) -> str:
    """What the turn says, without its thinking."""
    return "".join(part.text.text for part in turn.parts if part.HasField("text"))


@dataclass
class _Told:
    """A turn, its results, and what the user said behind it."""

    messages: list[Message]
    tokens: int
    tokens_aside: int


class Conversation:
    """Grows with the log; what it has read once is neither read nor measured again.

    `tokens`: what its messages may cost as input, guessed high. `shortening`: how it is told
    now."""

    def __init__(self, prompt: str) -> None:
        self.tokens = 0
        self.shortening = pb.Shortening()
        self._prompt = prompt
        self._first: list[Message] = []
        self._told: dict[int, _Told] = {}
        self._messages: list[Message] = []  # of _first and _told, in order
        self._turns: dict[int, pb.AssistantTurn] = {}
        self._read_to = -1  # turns whose results, and what was said behind them, have been read

    async def before(self, node: NodeContext, number: int) -> list[Message]:
        """All that is told before turn `number` (from 1)."""
        if self._read_to < 0:
            await self._adopt(node, range(number, 0, -1))
            self._first = await self._said(node, 0)
            self._read_to = self.shortening.summary_to
            self._rebuild()
        else:
            await self._adopt(node, (number,))
        while self._read_to < number - 1:
            self._read_to += 1
            told = self._measured(await self._said(node, self._read_to), self._read_to)
            self._told[self._read_to] = told
            self._messages += told.messages
            self.tokens += told.tokens
        return self._messages

    def up_to(self, number: int) -> list[Message]:
        """All that is told up to turn `number` with its results."""
        told = [message for k, turn in self._told.items() if k <= number for message in turn.messages]
        return [*self._opening(), *told]

    def sizes(self) -> list[TurnSize]:
        """Of the turns that are told, oldest first."""
        return [
            TurnSize(number=number, tokens=told.tokens, tokens_aside=told.tokens_aside)
            for number, told in self._told.items()
        ]

    def shorten(self, shortening: pb.Shortening) -> None:
        """From now on it is told like this."""
        self.shortening = shortening
        for number in [number for number in self._told if number <= shortening.summary_to]:
            del self._told[number]
        for number, told in self._told.items():
            if number <= shortening.results_to:
                self._told[number] = self._measured(told.messages, number)
        self._rebuild()

    async def turn(self, node: NodeContext, number: int) -> pb.AssistantTurn:
        """The recorded turn."""
        turn = self._turns.get(number)
        if turn is None:
            turn = pb.AssistantTurn.FromString(await node.output(f"turn-{number}"))
            self._turns[number] = turn
            if len(self._turns) > TURNS_HELD:
                del self._turns[min(self._turns)]
        return turn

    async def _adopt(self, node: NodeContext, turns: range | tuple[int]) -> None:
        """Takes over the newest shortening that the log holds."""
        for number in turns:
            for name in SHORTENINGS:
                if node.is_done(f"turn-{number}/{name}"):
                    found = pb.Shortening.FromString(await node.output(f"turn-{number}/{name}"))
                    if found != self.shortening:
                        self.shorten(found)
                    return

    def _measured(self, messages: list[Message], number: int) -> _Told:
        """With its results put aside, where the conversation is told so."""
        aside = _aside(messages, number)
        tokens_aside = sum(map(estimate_message, aside))
        if number <= self.shortening.results_to:
            return _Told(messages=aside, tokens=tokens_aside, tokens_aside=tokens_aside)
        return _Told(
            messages=messages, tokens=sum(map(estimate_message, messages)), tokens_aside=tokens_aside
        )

    def _opening(self) -> list[Message]:
        """What stands before the turns that are told."""
        summary = self.shortening.summary
        if not self.shortening.summary_to or not self._first:
            return self._first
        first = self._first[0]
        assert isinstance(first, pb.UserMessage)
        return [pb.UserMessage(text=_SUMMARY.format(prompt=first.text, summary=summary))]

    def _rebuild(self) -> None:
        opening = self._opening()
        self._messages = [*opening, *(m for told in self._told.values() for m in told.messages)]
        self.tokens = sum(map(estimate_message, opening)) + sum(told.tokens for told in self._told.values())

    async def _said(self, node: NodeContext, number: int) -> list[Message]:
        """Turn `number` with its results, and what the user said behind it."""
        said: list[Message] = []
        if number:
            turn = await self.turn(node, number)
            said.append(turn)
            for index in range(len(calls_of(turn))):
                data = await node.output(f"call-{number}-{index}")
                said.append(pb.ToolResult.FromString(data))
        if node.is_done(f"user-{number + 1}"):
            message = pb.UserMessage.FromString(await node.output(f"user-{number + 1}"))
            said.append(pb.UserMessage(text=self._prompt) if message.prompt else message)
        return said


def _aside(messages: list[Message], number: int) -> list[Message]:
    results = 0
    aside: list[Message] = []
    for message in messages:
        if isinstance(message, pb.ToolResult):
            message, results = put_aside(message, f"call-{number}-{results}"), results + 1
        aside.append(message)
    return aside
