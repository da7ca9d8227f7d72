"""Arguments are what the model wrote, or an error that it can act on."""

from __future__ import annotations

import math
import time

import pytest

from agentrun.tools import ArgumentsError, parse_arguments
from agentrun.tools.arguments import NESTING_MAX, write_exact
from tests.unit.tools.helpers import NUMBERS


@pytest.mark.parametrize("text", ["", " \n", "{}", " { } "])
def test_no_arguments_are_an_empty_object(text: str) -> None:
    assert parse_arguments(text) == {}


def test_integers_are_exact_and_numbers_keep_their_kind() -> None:
    got = parse_arguments(NUMBERS.replace('"e": 1e400, ', ""))
    assert got["id"] == 9007199254740993
    assert got["big"] == 123456789012345678901234567890
    assert [type(got[name]) for name in ("n", "f", "neg", "amount")] == [int, float, float, float]
    assert math.copysign(1, got["neg"]) == -1
    assert got["amount"] == 19.90


def test_a_literal_number_is_written_again_as_it_was() -> None:
    text = '{"e":1e400,"amount":19.90,"neg":-0.0,"list":[1,{"é":1E5}],"s":"1.0","t":true,"no":null}'
    assert write_exact(parse_arguments(text, literal_numbers=True)) == text


def test_a_key_that_stands_twice_among_very_many_is_found_at_once() -> None:
    keys = [*range(200_000), 199_999]
    text = "{" + ",".join(f'"k{key}":1' for key in keys) + "}"
    began = time.monotonic()
    with pytest.raises(ArgumentsError, match='the key "k199999" stands more than once'):
        parse_arguments(text)
    assert time.monotonic() - began < 10.0, "compared each with each it would be minutes"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (NUMBERS, "1e400 is too large"),
        ('{"n": NaN}', "NaN is no JSON number"),
        ('{"n": -Infinity}', "-Infinity is no JSON number"),
        ('{"n": ' + "9" * 5000 + "}", "too many digits"),
        ('{"a": 1, "b": {"x": 1, "x": 2}}', 'the key "x" stands more than once'),
        ("[1]", "one JSON object"),
        ("null", "one JSON object"),
        ('"text"', "one JSON object"),
        ('{"a": 1', "not valid JSON"),
        ('{"a": "open', "not valid JSON"),
        ("{'a': 1}", "not valid JSON"),
        ('{"a": 1} {"b": 2}', "Extra data (line 1, column 10)"),
        ("[" * 100_000, "nested deeper than 100"),
        ('{"a":' * 200 + "1" + "}" * 200, "nested deeper than 100"),
    ],
)
def test_what_cannot_be_used_is_said_in_words(text: str, says: str) -> None:
    with pytest.raises(ArgumentsError) as error:
        parse_arguments(text)
    assert says in str(error.value)
    assert len(str(error.value)) < 300


def test_nesting_counts_no_brackets_within_strings() -> None:
    text = '{"a": "' + "[" * 500 + '\\"[", "b": ' + "[" * (NESTING_MAX - 1) + "]" * (NESTING_MAX - 1) + "}"
    assert parse_arguments(text)["a"] == "[" * 500 + '"['


def test_quotes_without_end_take_no_quadratic_time() -> None:
    started = time.perf_counter()
    with pytest.raises(ArgumentsError):
        parse_arguments('{"a": "' + '\\"' * 200_000)
    assert time.perf_counter() - started < 2


def test_text_that_storage_cannot_hold_is_replaced() -> None:
    got = parse_arguments('{"a": "x\\ud800y\\u0000", "b": ["\\uD83D\\uDE00"], "\\udc00": 1}')
    assert got == {"a": "x\ufffdy\ufffd", "b": ["😀"], "\ufffd": 1}
