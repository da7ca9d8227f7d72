"""Takes secrets out of what a server says, before anything is told, logged or recorded. Pure."""

from __future__ import annotations

from collections.abc import Iterable

SECRET_CHARACTERS_MIN = 6
"""Shorter values stand in every other word."""

HIDDEN = "***"


class Hidden:
    """`values` are secrets; of one with blanks (`Bearer …`) its parts are, too."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        whole = {value.strip() for value in values}
        parts = {part for value in whole for part in value.split()}
        found = {value for value in whole | parts if len(value) >= SECRET_CHARACTERS_MIN}
        self._found = sorted(found, key=len, reverse=True)

    def clean(self, text: str) -> str:
        """Without them."""
        for secret in self._found:
            text = text.replace(secret, HIDDEN)
        return text
