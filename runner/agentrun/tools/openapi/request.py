"""One call of an operation: from its plan and a model's arguments to a request. Pure.

Called by `server` for each call. Invariants: what a model wrote changes neither the host,
nor how many segments the path has, nor a header that the manifest sets; numbers go as the
model wrote them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import quote, urlencode

from agentrun.tools.arguments import Number, write_exact
from agentrun.tools.errors import ArgumentsError

_SEPARATORS = {"form": ",", "spaceDelimited": " ", "pipeDelimited": "|"}


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is sent. `path` with its query; `headers` in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes | None


def request(plan: Mapping[str, Any], arguments: Mapping[str, Any]) -> Request:
    """Raises ArgumentsError with what would be right."""
    body = plan["body"]
    known = {place["argument"]: place for place in plan["parameters"]}
    _check(arguments, known, body)
    path: dict[str, str] = {}
    query: list[tuple[str, str]] = []
    headers: dict[str, str] = {}
    cookies: list[str] = []
    for name, place in known.items():
        if (value := arguments.get(name)) is None:
            continue
        if place["in"] == "path":
            path[place["name"]] = _segment(name, value, place)
        elif place["in"] == "query":
            query += _pairs(value, place)
        elif place["in"] == "header":
            headers[place["name"].lower()] = _header(name, _joined(value, place))
        else:
            cookies.append(f"{quote(place['name'], safe='')}={quote(_joined(value, place), safe='')}")
    if cookies:
        headers["cookie"] = "; ".join(cookies)
    data, media_type = _body(body, arguments)
    if data is not None:
        headers["content-type"] = media_type
    target = re.sub(r"\{([^{}]+)\}", lambda match: path[match[1]], plan["path"])
    if query:
        target += "?" + urlencode(query, quote_via=quote, safe="")
    return Request(method=plan["method"], path=target, headers=headers, body=data)


def _check(arguments: Mapping[str, Any], known: Mapping[str, Any], body: Mapping[str, Any] | None) -> None:
    names = [*known, *([body["argument"]] if body else [])]
    needed = [name for name, place in known.items() if place["required"]]
    needed += [body["argument"]] if body and body["required"] else []
    faults = [f"- {name}: there is no such argument" for name in arguments if name not in names]
    faults += [f"- {name}: required, and not given" for name in needed if arguments.get(name) is None]
    if faults:
        takes = ", ".join(names) or "none"
        raise ArgumentsError(
            "\n".join(["these arguments do not fit:", *faults[:10], f"Arguments are: {takes}"])
        )


def _segment(name: str, value: Any, place: Mapping[str, Any]) -> str:
    text = _joined(value, place)
    if text in ("", ".", ".."):
        raise ArgumentsError(f'{name}: must not be empty, "." or ".."')
    return quote(text, safe="")


def _header(name: str, text: str) -> str:
    if not (text.isascii() and text.isprintable()):
        raise ArgumentsError(f"{name}: must be one line of ASCII, for it goes into a header")
    return text


def _pairs(value: Any, place: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Of the query."""
    name, style = place["name"], place["style"]
    if style == "deepObject" and isinstance(value, Mapping):
        yield from ((f"{name}[{key}]", _scalar(item)) for key, item in value.items() if item is not None)
    elif style == "form" and place["explode"] and isinstance(value, Mapping):
        yield from ((key, _scalar(item)) for key, item in value.items() if item is not None)
    elif style == "form" and place["explode"] and isinstance(value, list):
        yield from ((name, _scalar(item)) for item in value if item is not None)
    else:
        yield name, _joined(value, place)


def _joined(value: Any, place: Mapping[str, Any]) -> str:
    """One text: lists and objects as the style has it."""
    if place["style"] == "json":
        return write_exact(value)
    separator = _SEPARATORS.get(place["style"], ",")
    if isinstance(value, list):
        return separator.join(_scalar(item) for item in value if item is not None)
    if isinstance(value, Mapping):
        between = "=" if place["explode"] else separator
        pairs = [f"{key}{between}{_scalar(item)}" for key, item in value.items() if item is not None]
        return separator.join(pairs)
    return _scalar(value)


def _body(body: Mapping[str, Any] | None, arguments: Mapping[str, Any]) -> tuple[bytes | None, str]:
    if body is None or body["argument"] not in arguments:
        return None, ""
    value, media_type = arguments[body["argument"]], body["type"]
    if body["kind"] == "json":
        return write_exact(value).encode(), "application/json" if media_type == "*/*" else media_type
    if body["kind"] == "text":
        return _scalar(value).encode(), media_type
    if not isinstance(value, Mapping):
        raise ArgumentsError(f"{body['argument']}: must be an object, for it is sent as a form")
    fields = [
        (key, _scalar(item))
        for key, inner in value.items()
        for item in (inner if isinstance(inner, list) else [inner])
        if item is not None
    ]
    if body["kind"] == "form":
        return urlencode(fields).encode(), media_type
    return _multipart(fields, body["files"])


def _multipart(fields: list[tuple[str, str]], files: list[str]) -> tuple[bytes, str]:
    """The boundary comes from the content, so that the same call is the same bytes."""
    boundary = sha256(repr(fields).encode()).hexdigest()[:40]
    parts = []
    for key, text in fields:
        quoted = key.replace("\\", "%5C").replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
        of_file = f'; filename="{quoted}"\r\nContent-Type: application/octet-stream' if key in files else ""
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{quoted}"{of_file}\r\n\r\n'
        parts.append(f"{head}{text}\r\n".encode())
    return b"".join([*parts, f"--{boundary}--\r\n".encode()]), f"multipart/form-data; boundary={boundary}"


def _scalar(value: Any) -> str:
    return str(value) if isinstance(value, str | Number) else write_exact(value)
