"""Usage that is missing, null, inconsistent or hidden comes out sane."""

from __future__ import annotations

from typing import Any

import pytest

from agentrun.models import Usage
from agentrun.models.wire import anthropic, chat, google, responses
from agentrun.models.wire.usage import count, settle

GUESS = Usage(tokens_in=40, tokens_out=8, tokens_reasoning=3, estimated=True)


def numbers(usage: Usage) -> tuple[int, int, int, int, bool]:
    return (
        usage.tokens_in,
        usage.tokens_out,
        usage.tokens_cached,
        usage.tokens_reasoning,
        usage.estimated,
    )


GUESSED = (40, 8, 0, 3, True)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, GUESSED),
        ({"usage": None}, GUESSED),
        ({"usage": []}, GUESSED),
        ({"usage": {}}, GUESSED),
        ({"usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}}, GUESSED),
        (
            {"usage": {"prompt_tokens": 35, "completion_tokens": 12, "total_tokens": 47}},
            (35, 12, 0, 0, False),
        ),
        # Hidden thinking: 109 is what is charged.
        (
            {"usage": {"prompt_tokens": 35, "completion_tokens": 12, "total_tokens": 109}},
            (35, 74, 0, 62, False),
        ),
        ({"usage": {"total_tokens": 109}}, (40, 69, 0, 0, False)),
        ({"usage": {"total_tokens": 30}}, (30, 0, 0, 0, False)),
        ({"usage": {"prompt_tokens": 35, "total_tokens": 50}}, (35, 15, 0, 0, False)),
        ({"usage": {"completion_tokens": 12, "total_tokens": 50}}, (38, 12, 0, 0, False)),
        ({"usage": {"prompt_tokens": 35}}, (35, 8, 0, 0, True)),
        ({"usage": {"completion_tokens": 12}}, (40, 12, 0, 0, True)),
        ({"usage": {"prompt_tokens": "12", "completion_tokens": 3.7}}, (12, 3, 0, 0, False)),
        ({"usage": {"prompt_tokens": -5, "completion_tokens": 3}}, (40, 3, 0, 0, True)),
        ({"usage": {"prompt_tokens": "many", "completion_tokens": True}}, GUESSED),
        ({"usage": {"prompt_tokens": 1e300, "completion_tokens": 3}}, (40, 3, 0, 0, True)),
        (
            {
                "usage": {
                    "prompt_tokens": 100,
                    "completion_tokens": 50,
                    "total_tokens": 150,
                    "prompt_tokens_details": {"cached_tokens": 80},
                    "completion_tokens_details": {"reasoning_tokens": 30},
                }
            },
            (100, 50, 80, 30, False),
        ),
        (
            {
                "usage": {
                    "prompt_tokens": 10,
                    "completion_tokens": 5,
                    "prompt_tokens_details": {"cached_tokens": 80},
                    "completion_tokens_details": None,
                }
            },
            (10, 5, 10, 0, False),
        ),
    ],
)
def test_chat(body: dict[str, Any], expected: tuple[int, int, int, int, bool]) -> None:
    assert numbers(settle(chat.counts(body), GUESS)) == expected


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, GUESSED),
        ({"input_tokens": 5, "output_tokens": 2}, (5, 2, 0, 0, False)),
        (
            {"input_tokens": 229, "cache_creation_input_tokens": 55_096, "output_tokens": 10},
            (55_325, 10, 0, 0, False),
        ),
        (
            {"input_tokens": 5, "cache_read_input_tokens": 900, "output_tokens": 2},
            (905, 2, 900, 0, False),
        ),
        # What a compaction cost stands in the list alone.
        (
            {
                "input_tokens": 10,
                "output_tokens": 5,
                "iterations": [
                    {"type": "compaction", "input_tokens": 1000, "output_tokens": 100},
                    {"type": "message", "input_tokens": 10, "output_tokens": 5},
                ],
            },
            (1010, 105, 0, 0, False),
        ),
        # The same again must not count twice.
        (
            {
                "input_tokens": 10,
                "output_tokens": 5,
                "iterations": [{"type": "message", "input_tokens": 10, "output_tokens": 5}],
            },
            (10, 5, 0, 0, False),
        ),
        ({"input_tokens": None, "output_tokens": None, "iterations": "x"}, GUESSED),
    ],
)
def test_anthropic(usage: Any, expected: tuple[int, int, int, int, bool]) -> None:
    assert numbers(settle(anthropic.counts({"usage": usage}), GUESS)) == expected


def test_google_counts_thoughts_and_tool_prompts_once() -> None:
    usage = {
        "promptTokenCount": 100,
        "cachedContentTokenCount": 60,
        "toolUsePromptTokenCount": 5,
        "candidatesTokenCount": 20,
        "thoughtsTokenCount": 30,
        "totalTokenCount": 155,
    }
    assert numbers(settle(google.counts({"usageMetadata": usage}), GUESS)) == (105, 50, 60, 30, False)
    assert numbers(settle(google.counts({}), GUESS)) == GUESSED


def test_responses() -> None:
    usage = {
        "input_tokens": 100,
        "output_tokens": 50,
        "total_tokens": 150,
        "input_tokens_details": {"cached_tokens": 80},
        "output_tokens_details": {"reasoning_tokens": 30},
    }
    assert numbers(settle(responses.counts({"usage": usage}), GUESS)) == (100, 50, 80, 30, False)


@pytest.mark.parametrize("value", [None, True, -1, "x", "", [], {}, float("nan"), float("inf"), 10**13])
def test_what_is_no_count_is_none(value: Any) -> None:
    assert count(value) is None
