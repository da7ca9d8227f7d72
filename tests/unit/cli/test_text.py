"""Text for terminals."""

from __future__ import annotations

import pytest

from agentrun.cli.text import age, clock, fields, limit, shortest_unique, table


def test_a_table_has_columns() -> None:
    rows = [["A", "NUMBER"], ["long one", "7"], ["x", ""]]
    assert table(rows, right=(1,)) == "A         NUMBER\nlong one       7\nx"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(-3, "0s"), (5.9, "5s"), (119, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"), (172800, "2d")],
)
def test_an_age_is_short(seconds: float, said: str) -> None:
    assert age(seconds) == said


def test_a_clock_counts_up() -> None:
    assert [clock(s) for s in (0, 7.9, 750, 3723)] == ["0:00", "0:07", "12:30", "1:02:03"]


def test_ids_are_cut_as_short_as_tells_them_apart() -> None:
    assert shortest_unique(["aaaabbbb-1", "ccccdddd-2"]) == 8
    assert shortest_unique(["aaaabbbb-1111", "aaaabbbb-1122"]) == 12
    assert shortest_unique(["same", "same"]) == 8


def test_fields_are_quoted_where_they_must_be() -> None:
    said = fields(a=1, b="two words", c=None, d=True, e="", f='"', g="ü", h="a\nb")
    assert said == r'a=1 b="two words" d=true e="" f="\"" g=ü h="a\nb"'


def test_a_limit_is_shown_where_there_is_one() -> None:
    assert [limit(1200, 5000), limit(7, None), limit(8.0, 600)] == ["1,200 of 5,000", "7", "8.0 of 600"]
