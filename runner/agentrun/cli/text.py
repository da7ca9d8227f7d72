"""Text for terminals: tables, ages, figures. Pure.

Who calls: the commands of this package.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence

ID_LENGTH_MIN = 8


def table(rows: Sequence[Sequence[str]], *, right: Collection[int] = ()) -> str:
    """Columns, two blanks apart; those in `right` are flush right."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def printable(line: str) -> str:
    """The line as a terminal may show it: what a model or a server said may steer it otherwise."""
    return "".join(c if c.isprintable() else " " for c in line)


def age(seconds: float) -> str:
    """5s, 12m, 3h, 9d."""
    whole = max(0, int(seconds))
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if whole >= 2 * size:
            return f"{whole // size}{unit}"
    return f"{whole}s"


def clock(seconds: float) -> str:
    """0:07, 12:30, 1:02:03."""
    whole = max(0, int(seconds))
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def shortest_unique(ids: Sequence[str]) -> int:
    """How many characters tell the ids apart; at least ID_LENGTH_MIN."""
    length = ID_LENGTH_MIN
    while length < 36 and len({id_[:length] for id_ in ids}) < len(set(ids)):
        length += 1
    return length


def fields(**values: object) -> str:
    """key=value …, with quotes where a value has blanks or is empty; None is left out."""
    parts = []
    for key, value in values.items():
        if value is None:
            continue
        text = str(value).lower() if isinstance(value, bool) else str(value)
        plain = bool(re.fullmatch(r"[^\s\"=]+", text))
        parts.append(f"{key}={text if plain else json.dumps(text, ensure_ascii=False)}")
    return " ".join(parts)


def limit(used: float, most: float | None) -> str:
    """12 of 100, or 12."""
    shown = f"{used:,.1f}" if type(used) is float else f"{used:,}"
    return shown if most is None else f"{shown} of {most:,}"
