"""What a person says to a call, and what the model is told of it.

Who calls: the loop's `tool_call` step, before a call is made. What holds: a call that
needs approval is made only with an answer that approves it, as it was approved; what
was said, by whom, and any change of the arguments stand in the call's result.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentrun.graph.types import NodeContext, Question
from agentrun.log.asks import APPROVAL_REQUIRED, OUTCOME_UNKNOWN, answered, shown_arguments
from agentrun.proto import log_pb2
from agentrun.proto import transcript_pb2 as pb
from agentrun.spec.approval import ApprovalRule
from agentrun.tools import cut_text
from agentrun.tools.approval import needs_approval

CHANGED_BYTES_MAX = 8 * 1024
"""Of changed arguments, as the model is told of them."""


@dataclass(frozen=True, kw_only=True)
class Consent:
    """What a call may be made with. `answered`: None where nobody had to be asked."""

    part: pb.ToolCallPart
    answered: pb.Answered | None = None

    @property
    def denied(self) -> bool:
        """A person said no."""
        return self.answered is not None and not _approves(self.answered)

    def tell(self, result: pb.ToolResult) -> pb.ToolResult:
        """The result of the call with what was said before it."""
        if self.answered is not None:
            if not result.HasField("answered"):  # else a later question's, to which this one has led
                result.answered.CopyFrom(self.answered)
            if arguments := self.answered.answer.arguments:
                shown = cut_text(arguments, bytes_max=CHANGED_BYTES_MAX)
                note = f"A person changed the arguments of this call before it was made, to: {shown}"
                result.content = f"{note}\n\n{result.content}"
        return result

    def denial(self) -> pb.ToolResult:
        """The result of a call that is not made."""
        assert self.answered is not None
        content = "Not run: a person has denied this call." + _why(self.answered)
        return pb.ToolResult(
            name=self.part.name,
            content=content,
            outcome=pb.TOOL_OUTCOME_DENIED,
            answered=self.answered,
        )


async def consent(node: NodeContext, part: pb.ToolCallPart, rule: ApprovalRule | None) -> Consent:
    """Asks, where the rule says so; without an answer the node is parked."""
    if not needs_approval(rule, part.arguments):
        return Consent(part=part)
    said = await _ask(node, part, APPROVAL_REQUIRED)
    if _approves(said) and said.answer.arguments:
        changed = pb.ToolCallPart()
        changed.CopyFrom(part)
        changed.arguments = said.answer.arguments
        part = changed
    return Consent(part=part, answered=said)


async def call_again(node: NodeContext, part: pb.ToolCallPart) -> tuple[bool, pb.Answered]:
    """Asks whether a call whose outcome is unknown is to be made again, as it was."""
    said = await _ask(node, part, OUTCOME_UNKNOWN, key=str(node.try_number))
    return _approves(said) and not said.answer.arguments, said


def unknown(text: str, part: pb.ToolCallPart, said: pb.Answered) -> pb.ToolResult:
    """The result where it is not to be made again."""
    content = f"{text} A person was asked, and it is not made again." + _why(said)
    return pb.ToolResult(name=part.name, content=content, outcome=pb.TOOL_OUTCOME_UNKNOWN, answered=said)


async def _ask(node: NodeContext, part: pb.ToolCallPart, reason: str, key: str = "") -> pb.Answered:
    shown = shown_arguments(part.arguments)
    row = await node.ask(Question(reason=reason, what=part.name, detail=shown, key=key))
    id_, answer, at_us = answered(row)
    return pb.Answered(id=id_, answer=answer, at_us=at_us)


def _approves(said: pb.Answered) -> bool:
    return said.answer.decision == log_pb2.DECISION_APPROVE


def _why(said: pb.Answered) -> str:
    reason = said.answer.reason.strip()
    return f" The reason given: {reason}" if reason else ""
