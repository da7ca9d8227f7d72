"""What the readers of documents share: bounds, and how they refuse.

Used by `document` and `yamltree` only.
"""

from __future__ import annotations

DEPTH_MAX = 64
_DIGITS_MAX = 40

Place = tuple[int, int]
"""Line and column, counted from 0."""


class Refused(Exception):
    """Why a text is no document; one line, with a place where there is one."""


def refused_at(place: Place, message: str) -> Refused:
    """A refusal that names line and column as an editor counts them."""
    line, column = place
    return Refused(f"line {line + 1}, column {column + 1}: {message}")


def read_integer(digits: str) -> int:
    """The number, cut where it is out of every range anyway: Python refuses to read very long ones."""
    return int(digits[:_DIGITS_MAX])
