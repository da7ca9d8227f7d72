"""What a server's response means: an answer, a refusal, a session that is gone.

Called by `http` with what it read. Invariant: that a request did not run is said only
where the response proves it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import httpx2
from mcp.shared.exceptions import MCPError

from agentrun.log.masks import Masks
from agentrun.log.text import safe_bytes
from agentrun.tools.mcp.exchange import Fault
from agentrun.tools.response import retry_after_seconds
from agentrun.tools.results import cut_text

ERROR_TEXT_BYTES_MAX = 300
_RETRYABLE = {408: "RequestTimeout", 429: "RateLimited", 502: "BadGateway", 503: "Unavailable"}
_NOT_STARTED = frozenset((401, 403, 404, 405, 406, 413, 415, 429, 503))
_NO_SESSION = re.compile(r"session|not initialized", re.IGNORECASE)


def refusal(
    response: httpx2.Response, body: bytes, request_id: int, *, known_session: bool, masks: Masks
) -> dict[str, Any]:
    """A status that is no success: the error of the protocol's own that comes with it, or a Fault.

    A 404 to a request with a session, or a 400 that speaks of the session, says that there is
    no such session (any more): nothing was done."""
    status = response.status_code
    message = parsed(body)
    said = message.get("error") if message is not None else None
    text = str(said.get("message", "")) if isinstance(said, Mapping) else safe_bytes(body)
    gone = (known_session and status == 404) or (status == 400 and _NO_SESSION.search(text) is not None)
    ours = message is not None and message.get("id") in (request_id, str(request_id), None)
    if message is not None and ours and not gone and status not in (401, 403) and isinstance(said, Mapping):
        return message
    line = " ".join(f"{status} {response.reason_phrase}: {text}".split()).removesuffix(":")
    raise Fault(
        "SessionLost" if gone else _RETRYABLE.get(status, "ServerError" if status >= 500 else "Refused"),
        cut_text(masks.text(line), bytes_max=ERROR_TEXT_BYTES_MAX),
        retryable=gone or status in _RETRYABLE or status >= 500,
        started=not gone and status not in _NOT_STARTED and not 300 <= status < 400,
        retry_after_seconds=retry_after_seconds({k.lower(): v for k, v in response.headers.items()}),
        refused=status in (401, 403),
        session=gone,
    )


def result_of(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The result that an answer holds; raises MCPError where it holds an error."""
    error = answer.get("error")
    if error is not None:
        said = error if isinstance(error, Mapping) else {}
        code, text = said.get("code"), said.get("message")
        raise MCPError(
            code=code if isinstance(code, int) else -32603,
            message=text if isinstance(text, str) else "an error that says nothing",
            data=said.get("data"),
        )
    result = answer.get("result")
    if not isinstance(result, dict):
        raise Fault("InvalidResponse", "the answer holds no result", retryable=False, started=True)
    return result


def answers(message: Mapping[str, Any] | None, request_id: int) -> bool:
    """Whether the message answers this request; some servers give its number back as text."""
    return (
        message is not None and "method" not in message and message.get("id") in (request_id, str(request_id))
    )


def parsed(data: bytes) -> dict[str, Any] | None:
    """The message that these bytes are, None where they are none."""
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


async def read_bounded(response: httpx2.Response, bytes_max: int, *, cut: bool = False) -> bytes:
    """The body; beyond the bound it is cut or refused."""
    found = bytearray()
    async for piece in response.aiter_bytes():
        found += piece
        if len(found) > bytes_max:
            if cut:
                break
            raise Fault("InvalidResponse", f"more than {bytes_max} bytes", retryable=False, started=True)
    return bytes(found)


def redirect(request: httpx2.Request, response: httpx2.Response) -> httpx2.URL | None:
    """Where to send the same request to, or None where the response is the answer."""
    if response.status_code not in (307, 308) or not response.has_redirect_location:
        return None
    here = request.url
    there = here.join(response.headers["location"])
    if (here.scheme, here.host, here.port) != (there.scheme, there.host, there.port):
        return None
    return there.copy_with(username=here.username, password=here.password)
