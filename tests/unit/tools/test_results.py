"""A result becomes text by stated rules, valid JSON where it is JSON, and bounded."""

from __future__ import annotations

import dataclasses
import datetime
import json
import uuid
from collections import OrderedDict, namedtuple
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import PurePosixPath
from typing import Any

import pydantic
import pytest

from agentrun.tools import RESULT_BYTES_MAX, ResultError, cut_text, render_result
from agentrun.tools.results import ERROR_BYTES_MAX, render_error

Pair = namedtuple("Pair", "left right")


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


@dataclasses.dataclass
class Point:
    x: int
    when: datetime.date | None = None


class Order(pydantic.BaseModel):
    amount: Decimal
    tags: set[str] = set()


class Unspeakable:
    def __str__(self) -> str:
        raise RuntimeError("no")


UTC_TIME = datetime.datetime(2026, 3, 1, 12, 30, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("", ""),
        ("plain text", "plain text"),
        ('"quoted"', '"quoted"'),
        (None, ""),
        ([], "[]"),
        ({}, "{}"),
        (True, "true"),
        (3, "3"),
        (9007199254740993, "9007199254740993"),
        (123456789012345678901234567890, "123456789012345678901234567890"),
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (float("nan"), '"NaN"'),
        ([float("inf"), float("-inf"), float("nan")], '["Infinity","-Infinity","NaN"]'),
        (Decimal("19.90"), "19.90"),
        ({"amount": Decimal("19.90")}, '{"amount":"19.90"}'),
        (b"text", "text"),
        ({"b": b"..."}, '{"b":"..."}'),
        ({"b": b"\xff\xfe"}, '{"b":"base64://4="}'),
        (UTC_TIME, "2026-03-01T12:30:00+00:00"),
        ([UTC_TIME, datetime.date(2026, 3, 1)], '["2026-03-01T12:30:00+00:00","2026-03-01"]'),
        (Point(1, datetime.date(2026, 3, 1)), '{"x":1,"when":"2026-03-01"}'),
        (Order(amount=Decimal("1.10"), tags={"b", "a"}), '{"amount":"1.10","tags":["a","b"]}'),
        (Pair(1, None), '{"left":1,"right":null}'),
        ((1, 2), "[1,2]"),
        ({3, 1, 2}, "[1,2,3]"),
        (frozenset({"b", "a"}), '["a","b"]'),
        (range(3), "[0,1,2]"),
        (OrderedDict(b=1, a=2), '{"b":1,"a":2}'),
        ({1: "a", None: "b", 2.5: "c"}, '{"1":"a","null":"b","2.5":"c"}'),
        (Colour.RED, "red"),
        ([Colour.RED, Level.HIGH], '["red",3]'),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ([PurePosixPath("/a/b")], '["/a/b"]'),
        (["é\x00\ud800"], '["é\\u0000\ufffd"]'),
        ("é\x00\ud800", "é\ufffd\ufffd"),
    ],
)
def test_each_type_has_its_text(value: Any, text: str) -> None:
    assert render_result(value) == text


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def circular() -> list[Any]:
    value: list[Any] = [1]
    value.append({"again": value})
    return value


def test_a_hundred_levels_are_shown() -> None:
    assert json.loads(render_result(nested(100))) == nested(100)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (nested(200), "nested deeper than 100"),
        (circular(), "contains itself"),
        ({1: "a", "1": "b"}, 'two of its keys are "1"'),
        pytest.param(10**5000, "too many digits", id="digits"),
        ([Unspeakable()], "RuntimeError"),
    ],
)
def test_what_cannot_be_shown_is_an_error_with_words(value: Any, says: str) -> None:
    with pytest.raises(ResultError, match=says):
        render_result(value)


def test_a_result_is_bounded_and_says_that_it_was_cut() -> None:
    text = render_result("é" * RESULT_BYTES_MAX)
    assert len(text.encode()) <= RESULT_BYTES_MAX
    assert text.endswith(f" of {2 * RESULT_BYTES_MAX} bytes are kept]")
    assert cut_text("é" * (RESULT_BYTES_MAX // 2)) == "é" * (RESULT_BYTES_MAX // 2)


def test_writing_stops_at_the_bound_however_much_there_is() -> None:
    value: list[Any] = ["x"]
    for _ in range(90):
        value = [value, value]  # 2**90 leaves in all
    text = render_result(value)
    assert len(text.encode()) <= RESULT_BYTES_MAX
    assert "[cut: only the first" in text


def test_an_error_names_its_type_and_is_bounded() -> None:
    assert render_error(ValueError("no such order")) == "ValueError: no such order"
    assert render_error(ValueError()) == "ValueError"
    assert len(render_error(ValueError("x" * 100_000)).encode()) <= ERROR_BYTES_MAX
