"""Arguments survive to the byte, and what is sent back is always an object."""

from __future__ import annotations

import json

import pytest

from agentrun.models.wire.rawjson import BadAnswer, extras, parse, raw, sendable_arguments

NUMBERS = (
    '{"id": 9007199254740993, "n": 1, "f": 1.0, "e": 1e400, "neg": -0.0, '
    '"big": 123456789012345678901234567890, "amount": 19.90}'
)


@pytest.mark.parametrize(
    "value",
    [NUMBERS, "{}", "[1, 2 ]", '"a \\" } ] b"', "1e400", "-0.0", "null", '{"a":{"a":1},"a":2}', "9" * 5000],
)
def test_a_value_is_cut_out_as_it_stands(value: str) -> None:
    text = f' {{ "x" : [ 1 , {{"skip": "}}]"}}, {{ "y\\"" : {value} , "z": 0 }} ] }} '
    assert raw(text, "x", 2, 'y"') == value
    assert raw(text, "x", 0) == "1"


def test_what_is_not_there_is_none() -> None:
    assert raw('{"a": [1]}', "b") is None
    assert raw('{"a": [1]}', "a", 1) is None
    assert raw('{"a": [1]}', "a", "b") is None
    assert raw('{"a": [1]}', 0) is None
    assert raw("[]", 0) is None


@pytest.mark.parametrize("arguments", [NUMBERS, '{"a":1,"a":2}', '{ "spaced" : [ ] }', '{"s":"\\ud800"}'])
def test_an_object_goes_back_byte_for_byte(arguments: str) -> None:
    assert sendable_arguments(arguments) == arguments


@pytest.mark.parametrize(
    "arguments",
    [
        '{"path":"a.md","content":"# Title\nSec',
        "[1]",
        "1",
        "null",
        "hello",
        '{"a": NaN}',
        '{"a": Infinity}',
        '{"a": 1} {"b": 2}',
        '{"a":' * 300 + "1" + "}" * 300,
        '{"a":' * 100_000,
    ],
)
def test_anything_else_goes_back_inside_an_object(arguments: str) -> None:
    assert json.loads(sendable_arguments(arguments)) == {"invalid_arguments": arguments}


@pytest.mark.parametrize("arguments", ["", " ", "\n"])
def test_no_arguments_are_an_empty_object(arguments: str) -> None:
    assert sendable_arguments(arguments) == "{}"


def test_digits_that_python_does_not_convert_are_fine() -> None:
    arguments = '{"n": ' + "9" * 10_000 + "}"
    assert sendable_arguments(arguments) == arguments
    assert parse(arguments) == {"n": None}


@pytest.mark.parametrize("text", ["", " ", "<html>", "{", "[" * 100_000, '{"a":' * 100_000])
def test_what_is_not_json_is_a_bad_answer(text: str) -> None:
    with pytest.raises(BadAnswer):
        parse(text)


def test_extras_are_what_is_not_known_and_says_something() -> None:
    assert extras({"type": "text", "text": "x", "citations": None, "annotations": []}, "type", "text") == ""
    assert extras({"text": "x", "caller": {"type": "direct"}}, "text") == '{"caller":{"type":"direct"}}'
