"""The conversation of one agent, rebuilt from the outputs of its steps.

Who calls: the loop's steps. What holds: each tool call of a turn is followed by
exactly one result, in the order of the calls; the same log gives the same
conversation. Nodes are named by their turn: `user-K` is what is said before turn
K, `turn-K` the turn, `tools-K` its batch, `call-K-I` its I-th call.
"""

from __future__ import annotations

from agentrun.graph.types import NodeContext
from agentrun.models import estimate_tokens
from agentrun.models.base import Message, ModelRequest
from agentrun.proto import transcript_pb2 as pb


def calls_of(turn: pb.AssistantTurn) -> list[pb.ToolCallPart]:
    """The turn's tool calls, in order."""
    return [part.tool_call for part in turn.parts if part.HasField("tool_call")]


def text_of(turn: pb.AssistantTurn) -> str:
    """What the turn says, without its thinking."""
    return "".join(part.text.text for part in turn.parts if part.HasField("text"))


class Conversation:
    """Grows with the log; what it has read once is neither read nor measured again.

    `tokens`: what its messages may cost as input, guessed high."""

    def __init__(self, prompt: str) -> None:
        self.tokens = 0
        self._prompt = prompt
        self._messages: list[Message] = []
        self._turns: dict[int, pb.AssistantTurn] = {}
        self._whole = 0  # turns whose results, and what was said behind them, are in _messages

    async def before(self, node: NodeContext, number: int) -> list[Message]:
        """All that was said before turn `number` (from 1)."""
        while self._whole < number:
            added = await self._said(node, self._whole)
            self.tokens += estimate_tokens(ModelRequest(instructions="", messages=added))
            self._messages += added
            self._whole += 1
        return self._messages

    async def turn(self, node: NodeContext, number: int) -> pb.AssistantTurn:
        """The recorded turn."""
        if number not in self._turns:
            self._turns[number] = pb.AssistantTurn.FromString(await node.output(f"turn-{number}"))
        return self._turns[number]

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
