"""The demo tools are deterministic, and their calls can be counted from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentrun.tools import build_tool
from agentrun.tools.demo import COUNTER_VARIABLE
from tests.unit.tools.helpers import run


@pytest.mark.parametrize(
    ("function", "arguments", "content"),
    [
        (
            "lookup",
            '{"topic": " Moon ", "seconds": 0}',
            "The Moon moves away from the Earth by about 3.8 cm a year.",
        ),
        (
            "lookup",
            '{"topic": "xyz", "seconds": 0}',
            'Nothing is known about "xyz", a topic of 3 characters.',
        ),
        ("word_count", '{"text": "one two\\nthree"}', "3"),
        ("refund", '{"order": "A-17", "amount": 40}', "40 refunded for order A-17"),
        ("add", '{"a": 9007199254740993, "b": 1}', "9007199254740994"),
    ],
)
def test_the_same_arguments_give_the_same_result(function: str, arguments: str, content: str) -> None:
    assert (
        run(build_tool(name=function, python=f"agentrun.tools.demo:{function}"), arguments).content == content
    )


def test_a_model_is_told_what_the_arguments_are() -> None:
    lookup = build_tool(name="lookup", python="agentrun.tools.demo:lookup").definition
    assert lookup.description == "Looks up one short fact about a topic."
    assert list(lookup.parameters["properties"]) == ["topic", "seconds"]
    assert lookup.parameters["required"] == ["topic"]


def test_calls_are_counted_at_their_start_and_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counter = tmp_path / "calls"
    monkeypatch.setenv(COUNTER_VARIABLE, str(counter))
    run(build_tool(name="add", python="agentrun.tools.demo:add"), '{"a": 1, "b": 2}')
    run(build_tool(name="lookup", python="agentrun.tools.demo:lookup"), '{"topic": "a\\nb", "seconds": 0}')
    assert counter.read_text().splitlines() == [
        'start add 3 {"a": 1, "b": 2}',
        'end add 3 {"a": 1, "b": 2}',
        'start lookup 3 {"topic": "a\\nb", "seconds": 0.0}',
        'end lookup 3 {"topic": "a\\nb", "seconds": 0.0}',
    ]
