"""The conversation of one agent, rebuilt from the outputs of its steps.

Who calls: the loop's steps. What holds: each tool call of a turn is followed by
exactly one result, in the order of the calls; the same log gives the same
conversation. Nodes are named by their turn: `user-K` is what is said before turn
K, `turn-K` the turn, `tools-K` its batch, `call-K-I` its I-th call.
"""

from __future__ import annotations

from agentrun.graph.types import NodeContext
from agentrun.models.base import Message
from agentrun.proto import transcript_pb2 as pb


def calls_of(turn: pb.AssistantTurn) -> list[pb.ToolCallPart]:
    """The turn's tool calls, in order."""
    return [part.tool_call for part in turn.parts if part.HasField("tool_call")]


def text_of(turn: pb.AssistantTurn) -> str:
    """What the turn says, without its thinking."""
    return "".join(part.text.text for part in turn.parts if part.HasField("text"))


class Conversation:
    """Grows with the log; what it has read once is not read again."""

    def __init__(self, prompt: str) -> None:
        self._prompt = prompt
        self._messages: list[Message] = []
        self._turns: dict[int, pb.AssistantTurn] = {}
        self._whole = 0  # turns whose results, and what was said behind them, are in _messages

    async def before(self, node: NodeContext, number: int) -> list[Message]:
        """All that was said before turn `number` (from 1)."""
        while self._whole < number:
            await self._add(node, self._whole)
            self._whole += 1
        return self._messages

    async def turn(self, node: NodeContext, number: int) -> pb.AssistantTurn:
        """The recorded turn."""
        if number not in self._turns:
            self._turns[number] = pb.AssistantTurn.FromString(await node.output(f"turn-{number}"))
        return self._turns[number]

    async def _add(self, node: NodeContext, number: int) -> None:
        """Turn `number` with its results, and what the user said behind it."""
        if number:
            turn = await self.turn(node, number)
            self._messages.append(turn)
            for index in range(len(calls_of(turn))):
                data = await node.output(f"call-{number}-{index}")
                self._messages.append(pb.ToolResult.FromString(data))
        if node.is_done(f"user-{number + 1}"):
            message = pb.UserMessage.FromString(await node.output(f"user-{number + 1}"))
            self._messages.append(pb.UserMessage(text=self._prompt) if message.prompt else message)
