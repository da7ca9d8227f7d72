"""Wire ids are unique, well formed and stable, whatever a provider sent."""

from __future__ import annotations

import re

import pytest

from agentrun.models import Message
from agentrun.models.wire.ids import wire_ids, wire_name
from agentrun.proto import transcript_pb2 as pb


def conversation(*turns: list[str]) -> list[Message]:
    messages: list[Message] = [pb.UserMessage(text="go")]
    for ids in turns:
        parts = [pb.Part(tool_call=pb.ToolCallPart(wire_id=wire_id, name="t")) for wire_id in ids]
        messages.append(pb.AssistantTurn(parts=parts))
        messages += [pb.ToolResult(name="t") for _ in ids]
    return messages


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        ([["toolu_1"], ["toolu_2"]], [["toolu_1"], ["toolu_2"]]),
        ([["call_0"]] * 4, [["call_0"], ["call_1_0"], ["call_2_0"], ["call_3_0"]]),
        ([["abc", "abc"]], [["abc", "call_0_1"]]),
        ([["", ""]], [["call_0_0", "call_0_1"]]),
        ([["x" * 300]], [["call_0_0"]]),
        ([["search web", "a/b", "🙂", "functions.f:0"]], [["call_0_0", "call_0_1", "call_0_2", "call_0_3"]]),
        # A provider may use the very ids that are invented here.
        ([["", "call_0_0"]], [["call_0_0", "call_0_1"]]),
        ([["call_1_0"], [""]], [["call_1_0"], ["call_1_0_"]]),
        ([["turn_3"], []], [["turn_3"], []]),
    ],
)
def test_ids(turns: list[list[str]], expected: list[list[str]]) -> None:
    assert wire_ids(conversation(*turns)) == expected


def test_a_longer_conversation_keeps_the_ids_of_its_beginning() -> None:
    turns = [["", "a"], ["a", "call_0_0"], ["call_1_0", ""], ["a"]]
    whole = wire_ids(conversation(*turns))
    for length in range(len(turns)):
        assert wire_ids(conversation(*turns[:length])) == whole[:length]
    flat = [wire_id for ids in whole for wire_id in ids]
    assert len(set(flat)) == len(flat) and all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", i) for i in flat)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("read_file", "read_file"), ("", "unnamed"), ("a b/c", "a_b_c"), ("x" * 99, "x" * 64)],
)
def test_a_made_up_tool_name_can_be_sent_back(name: str, expected: str) -> None:
    assert wire_name(name) == expected
