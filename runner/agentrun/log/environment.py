"""Settings from the environment: read all, name all that is wrong.

Who calls: the settings of the runner pod and of the operator. What holds: whatever is
missing or bad is named by its variable, all of them at once, and no message holds a value
that may be secret.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

T = TypeVar("T")


class SettingsError(Exception):
    """`problems`: one line a variable, each beginning with its name."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class Reader:
    """Reads one variable after another; `problems` has a line for each that is missing or bad."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.problems: list[str] = []

    def one(self, name: str, parse: Callable[[str], T], default: Any) -> Any:
        """The variable's value; without it `default`, where None says that there must be one."""
        text = self._environ.get(name, "").strip()
        if not text:
            if default is None:
                state = "is empty" if name in self._environ else "is not set"
                self.problems.append(f"{name} {state}")
            return default
        try:
            return parse(text)
        except ValueError as error:
            self.problems.append(f"{name} {error}")
            return default


def parse_url(text: str) -> str:
    """The URL of a database; ValueError where it is none."""
    try:
        good = text.startswith(("postgres://", "postgresql://")) and (urlsplit(text).port or True)
    except ValueError:
        good = False
    if not good:
        raise ValueError("must be a URL that begins with postgresql://")
    return text


def switch(text: str) -> bool:
    """true or false."""
    if text.lower() not in ("true", "false"):
        raise ValueError(f"must be true or false, not {text[:60]!r}")
    return text.lower() == "true"


def one_of(*known: str) -> Callable[[str], str]:
    """A parser of one of these words, in any case."""

    def parse(text: str) -> str:
        found = next((name for name in known if name.lower() == text.lower()), None)
        if found is None:
            raise ValueError(f"must be {' or '.join(known)}, not {text[:60]!r}")
        return found

    return parse
