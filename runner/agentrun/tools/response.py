"""What an HTTP tool's response means. Pure; called by `http.py` with what it read.

A status that asks for another try is a `ToolError` (whether the call may have taken
effect depends on the status); any other status from 300 up is an output with
`is_error`, for a model can act on a 404 or a 422.
"""

from __future__ import annotations

import codecs
import email.message
import email.utils
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from urllib.parse import urlsplit

from agentrun.tools.base import ToolError, ToolOutput
from agentrun.tools.results import ERROR_BYTES_MAX, cut_text

RETRYABLE = {
    408: "RequestTimeout",
    429: "RateLimited",
    502: "BadGateway",
    503: "Unavailable",
    504: "GatewayTimeout",
}
# With these two a server says that it did not take the request on.
_NOT_STARTED = {429, 503}
_TEXT_TYPES = {
    "application/json",
    "application/ld+json",
    "application/xml",
    "application/javascript",
    "application/x-www-form-urlencoded",
    "application/x-ndjson",
    "application/yaml",
    "application/x-yaml",
    "application/graphql",
    "application/sql",
    "application/toml",
}
_RETRY_MESSAGE_BYTES_MAX = 600
RETRY_AFTER_SECONDS_MAX = 7 * 24 * 3600.0
"""A server that asks for more is taken to ask for this: a float of any size could be infinite."""


def read_response(
    what: str, status: int, headers: Mapping[str, str], body: bytes, *, cut: bool = False
) -> ToolOutput:
    """The output of a response; raises ToolError for a status that asks for another try.

    `what` names the request in messages, `headers` have lower-case names, `cut` says
    that the body went on.
    """
    text, described = _body_text(headers.get("content-type", ""), body, cut)
    if status < 300:
        return ToolOutput(content=cut_text(text, more=cut and not described))
    line = f"{what}: {status} {_phrase(status)}".rstrip()
    if status in RETRYABLE:
        message = f"{line}: {text}" if text else line
        raise ToolError(
            RETRYABLE[status],
            cut_text(message, bytes_max=_RETRY_MESSAGE_BYTES_MAX),
            retryable=True,
            started=status not in _NOT_STARTED,
            retry_after_seconds=retry_after_seconds(headers),
        )
    if status < 400 and "location" in headers:
        line += f" to {_without_query(headers['location'])}, not followed"
    content = f"{line}\n{text}" if text else line
    return ToolOutput(content=cut_text(content, bytes_max=ERROR_BYTES_MAX), is_error=True)


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """`Retry-After` in either form, at least 0 and bounded; None when there is none that can be read.

    A date is taken relative to the response's own `Date`, so that a skewed clock here
    or there does no harm.
    """
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.replace(".", "", 1).isdigit():
        return min(float(value), RETRY_AFTER_SECONDS_MAX)
    until = _date(value)
    if until is None:
        return None
    now = _date(headers.get("date", "")) or datetime.fromtimestamp(time.time(), UTC)
    return min(max(0.0, (until - now).total_seconds()), RETRY_AFTER_SECONDS_MAX)


def _date(value: str) -> datetime | None:
    try:
        found = email.utils.parsedate_to_datetime(value)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _body_text(content_type: str, body: bytes, cut: bool) -> tuple[str, bool]:
    """The body's text, or (with True) a description of a body that is none."""
    if not body:
        return "", False
    message = email.message.Message()
    message["content-type"] = content_type
    media_type = message.get_content_type() if content_type else ""
    charset = message.get_content_charset("utf-8")
    if _is_text(media_type, body):
        try:
            return body.decode(codecs.lookup(charset).name, "replace"), False
        except (LookupError, UnicodeError, AssertionError):
            return body.decode("utf-8", "replace"), False
    more = "more than " if cut else ""
    return f"[{media_type or 'application/octet-stream'}, {more}{len(body)} bytes]", True


def _is_text(media_type: str, body: bytes) -> bool:
    if not media_type:
        return _looks_like_text(body)
    return (
        media_type.startswith("text/")
        or media_type in _TEXT_TYPES
        or media_type.endswith(("+json", "+xml", "+yaml"))
    )


def _looks_like_text(body: bytes) -> bool:
    if b"\0" in body:
        return False
    try:
        # Not final: the body may have been cut within a character.
        codecs.getincrementaldecoder("utf-8")().decode(body)
    except UnicodeDecodeError:
        return False
    return True


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def _without_query(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(an address that is not valid)"
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}" if host else parts.path
