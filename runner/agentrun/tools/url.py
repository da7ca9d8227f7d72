"""URL templates of HTTP tools: `https://host/users/{id}?lang={lang}`.

Pure; parsed once at set-up, filled for each call. Invariant: what a model wrote
changes neither the scheme, the host, nor how many segments the path has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from agentrun.tools.arguments import Number, write_exact
from agentrun.tools.errors import ArgumentsError, ToolSetupError

_PART = re.compile(r"\{([A-Za-z_][A-Za-z0-9_-]*)\}")
_DOT_SEGMENTS = {".", ".."}


@dataclass(frozen=True, kw_only=True)
class UrlTemplate:
    """A URL whose path and query may hold `{name}` parts; `names` are these names."""

    origin: str
    path: str
    query: str
    names: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> UrlTemplate:
        """Raises ToolSetupError; its text holds no credentials from the URL."""
        try:
            parts = urlsplit(text)
            host, _ = parts.hostname, parts.port
        except ValueError as error:
            raise ToolSetupError(f"the URL is not valid: {error}") from None
        if parts.scheme not in ("http", "https") or not host:
            raise ToolSetupError("the URL must begin with http:// or https:// and name a host")
        if "{" in parts.netloc or "{" in parts.fragment:
            raise ToolSetupError("a {name} part may stand in the URL's path and query only")
        for piece in (parts.path, parts.query):
            if re.search(r"[{}]", _PART.sub("", piece)):
                raise ToolSetupError("the URL has a brace that is no {name} part")
        return cls(
            origin=f"{parts.scheme}://{parts.netloc}",
            path=parts.path or "/",
            query=parts.query,
            names=tuple(dict.fromkeys(_PART.findall(f"{parts.path}?{parts.query}"))),
        )

    @property
    def shown(self) -> str:
        """For messages: without user, password and query, which may be secrets."""
        scheme, _, netloc = self.origin.partition("://")
        return f"{scheme}://{netloc.rpartition('@')[2]}{self.path}"

    def fill(self, arguments: Mapping[str, Any], *, rest_in_query: bool) -> str:
        """The URL of one call. `rest_in_query` adds the arguments that no part names."""
        path = _PART.sub(lambda part: _value(part[1], arguments), self.path)
        if any(segment in _DOT_SEGMENTS for segment in path.split("/")):
            raise ArgumentsError('an argument in the URL\'s path must not be "." or ".."')
        query = _PART.sub(lambda part: _value(part[1], arguments), self.query)
        if rest_in_query:
            rest = {name: value for name, value in arguments.items() if name not in self.names}
            added = urlencode(list(_pairs(rest)), quote_via=quote, safe="")
            query = "&".join(filter(None, (query, added)))
        scheme, _, netloc = self.origin.partition("://")
        return urlunsplit((scheme, netloc, path, query, ""))


def _value(name: str, arguments: Mapping[str, Any]) -> str:
    value = arguments.get(name)
    if value is None:
        raise ArgumentsError(f"{name}: required, and not given")
    if isinstance(value, dict | list):
        raise ArgumentsError(f"{name}: must be a string, a number or a boolean")
    text = _scalar(value)
    if not text:
        raise ArgumentsError(f"{name}: must not be empty")
    return quote(text, safe="")


def _pairs(arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """A list repeats its key, `null` is left out, anything nested goes as JSON."""
    for name, value in arguments.items():
        for item in value if isinstance(value, list) else [value]:
            if item is not None:
                yield name, _scalar(item)


def _scalar(value: Any) -> str:
    if isinstance(value, str | Number):
        return str(value)
    return write_exact(value)
