"""Reads what a docstring says of a function and of its parameters, for a tool's schema.

Called once per Python tool, at set-up. Understands the three common styles (Google's
`Args:`, Sphinx's `:param x:`, numpy's underlined `Parameters`) in their simple forms;
whatever else stands there is left out rather than guessed at.
"""

from __future__ import annotations

import inspect
import re

_SPHINX = re.compile(r"^:(?:param|parameter|arg|argument)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)$")
_SPHINX_OTHER = re.compile(r"^:\w+[^:]*:")
_GOOGLE_HEAD = re.compile(r"^(Args|Arguments|Parameters|Params):$")
_GOOGLE_ENTRY = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_GOOGLE_OTHER = re.compile(
    r"^(Returns?|Yields?|Raises|Examples?|Notes?|Warnings?|See Also|References|Attributes|Todo):$"
)
_NUMPY_ENTRY = re.compile(r"^\*{0,2}(\w+)\s*(?::.*)?$")


def read_docstring(text: str | None) -> tuple[str, dict[str, str]]:
    """The text above the first section, and the description of each parameter."""
    lines = inspect.cleandoc(text or "").splitlines()
    start = next((i for i in range(len(lines)) if _is_head(lines, i)), len(lines))
    summary = "\n".join(lines[:start]).strip()
    parameters: dict[str, str] = {}
    index = start
    while index < len(lines):
        line = lines[index]
        if match := _SPHINX.match(line):
            entry, index = _paragraph(lines, index + 1, indent=0)
            parameters[match[1]] = _join(match[2], entry)
        elif _GOOGLE_HEAD.match(line):
            index = _entries(lines, index + 1, parameters, _GOOGLE_ENTRY)
        elif line == "Parameters" and _underlined(lines, index):
            index = _entries(lines, index + 2, parameters, _NUMPY_ENTRY)
        else:
            index += 1
    return summary, {name: entry for name, entry in parameters.items() if entry}


def _is_head(lines: list[str], index: int) -> bool:
    line = lines[index]
    return bool(
        _GOOGLE_HEAD.match(line)
        or _GOOGLE_OTHER.match(line)
        or _SPHINX_OTHER.match(line)
        or _underlined(lines, index)
    )


def _underlined(lines: list[str], index: int) -> bool:
    return index + 1 < len(lines) and len(lines[index + 1]) >= 3 and set(lines[index + 1]) == {"-"}


def _entries(lines: list[str], index: int, found: dict[str, str], pattern: re.Pattern[str]) -> int:
    """Reads entries that stand at one depth, their texts deeper; gives where they end."""
    first = next((line for line in lines[index:] if line.strip()), "")
    indent = _indent(first)
    while index < len(lines):
        line = lines[index]
        if not line.strip():
            index += 1
            continue
        if _indent(line) != indent or _is_head(lines, index):
            return index
        match = pattern.match(line.strip())
        text, index = _paragraph(lines, index + 1, indent=indent)
        if match:
            found[match[1]] = _join(match[2] if pattern.groups > 1 else "", text)
    return index


def _paragraph(lines: list[str], index: int, *, indent: int) -> tuple[list[str], int]:
    text = []
    while index < len(lines) and lines[index].strip() and _indent(lines[index]) > indent:
        text.append(lines[index].strip())
        index += 1
    return text, index


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _join(first: str, rest: list[str]) -> str:
    return " ".join([first.strip(), *rest]).strip()
