"""How a manifest is refused: one clear line a problem, in the manifest's own terms.

Everything in this package that refuses something raises `ManifestError`; the
command, the operator and the API print it as it is. Invariant: a message never
repeats a long value, never holds a secret's value, and is a single line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SHOWN_CHARACTERS_MAX = 60
"""How much of a refused value a message repeats."""

PROBLEMS_SHOWN_MAX = 20

Path = tuple[str | int, ...]
"""Where something stands in a manifest: ("spec", "agent", "tools", 0, "name")."""

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong. `path` is "" where the whole document is meant."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class ManifestError(ValueError):
    """What was given is no usable manifest.

    `problems` has at least one entry. `source` (a file's name) begins each line
    of `str()`; it is "" where there is no such thing.
    """

    def __init__(self, problems: Sequence[Problem], *, source: str = "") -> None:
        self.problems = list(problems)
        self.source = source
        lead = f"{source}: " if source else ""
        lines = [f"{lead}{problem}" for problem in self.problems[:PROBLEMS_SHOWN_MAX]]
        if (more := len(self.problems) - PROBLEMS_SHOWN_MAX) > 0:
            lines.append(f"{lead}and {more} more problems")
        super().__init__("\n".join(lines))


class RuleError(ValueError):
    """Raised inside validators for rules between fields.

    Each entry is a path relative to the model that raises it, and a message.
    """

    def __init__(self, found: Iterable[tuple[Path, str]]) -> None:
        self.found = list(found)
        super().__init__("; ".join(message for _, message in self.found))


def format_path(path: Iterable[str | int]) -> str:
    """`spec.agent.tools[0].name`; keys that are no plain names in brackets."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN_KEY.match(step):
            text += f".{step}" if text else step
        else:
            text += f"[{_clip(step)}]"
    return text


def show(value: object) -> str:
    """A value as a message may repeat it: short, on one line, typed by its look."""
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, str):
        return f"'{_clip(value)}'"
    return _clip(json.dumps(value, default=str))


def _clip(text: str) -> str:
    clipped = text if len(text) <= SHOWN_CHARACTERS_MAX else text[:SHOWN_CHARACTERS_MAX] + "…"
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in clipped)
