"""From the bytes of a provider's answer to a turn, or to the error that they are.

Called by the provider with a whole body. Everything that is not a whole turn
becomes a ModelError: no other exception leaves this module, whatever the bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from agentrun.log.text import safe_bytes
from agentrun.models.base import ModelError, ModelRequest, ModelResponse, Usage
from agentrun.models.errors import clip, http_error
from agentrun.models.estimate import BYTES_PER_TOKEN, estimate_usage
from agentrun.models.finish import finish_of
from agentrun.models.options import refused_option
from agentrun.models.waits import limit_reset, retry_after
from agentrun.models.wire import Dialect
from agentrun.models.wire.rawjson import BadAnswer, parse
from agentrun.models.wire.usage import Counts, settle
from agentrun.models.wire.values import as_dict, as_list, as_text

RATE_LIMITED = 429
_RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo"


@dataclass(frozen=True, kw_only=True)
class _Said:
    """What a body says of an error, in whichever of the usual shapes."""

    text: str
    code: str = ""
    status: int | None = None
    wait_seconds: float | None = None


def read_answer(
    data: bytes, headers: Mapping[str, str], *, provider: str, dialect: Dialect, request: ModelRequest
) -> ModelResponse:
    """The turn in the body of a successful reply; raises ModelError when it holds none."""
    spent = Usage()
    try:
        text = data.decode("utf-8-sig", "replace")
        if text.lstrip()[:1] == "<":  # a login page, say: it will say the same again
            raise BadAnswer(f"a page in place of an answer: {text[:200]}", retryable=False)
        body = parse(text)
        said = _error_in(body)
        if isinstance(body, dict):
            spent = _spent(dialect.counts(body))
        if said is not None:
            raise http_error(
                provider,
                said.status or 200,
                said.text,
                code=said.code,
                retry_after_seconds=_wait(said.status or 200, said, headers),
            )
        if not isinstance(body, dict):
            raise BadAnswer(f"no JSON object: {text[:200]}")
        turn = dialect.read(text, body)
    except BadAnswer as e:
        raise ModelError(
            "InvalidResponse", clip(f"{provider}: {e}"), retryable=e.retryable, usage=spent
        ) from e
    except ModelError as e:
        e.usage = spent
        raise
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as e:
        # The dialects take any shape; one that slips through is the answer's fault, and not the run's end.
        message = clip(f"{provider}: an answer that cannot be read: {type(e).__name__}: {e}")
        raise ModelError("InvalidResponse", message, retryable=True, usage=spent) from e
    calls = any(part.HasField("tool_call") for part in turn.parts)
    turn.finish, turn.truncated = finish_of(turn.finish_raw, has_calls=calls)
    turn.provider = provider
    return ModelResponse(turn=turn, usage=settle(dialect.counts(body), estimate_usage(request, turn)))


def read_failure(
    status: int,
    data: bytes,
    headers: Mapping[str, str],
    *,
    provider: str,
    options: Collection[str] = (),
) -> ModelError:
    """The error of a reply with another status than success. `headers` has lower-case names;
    `options` are those of the request that the reply may be about."""
    try:
        said = _error_in(parse(data.decode("utf-8-sig", "replace")), failed=True)
    except BadAnswer:
        said = None
    if said is None:
        said = _Said(text=safe_bytes(data))
    wait = _wait(status, said, headers)
    error = http_error(provider, status, said.text, code=said.code, retry_after_seconds=wait)
    if not error.retryable:
        error.refused_option = refused_option(status, data, options)
    return error


def stream_error(body: Any, *, provider: str, failed: bool) -> ModelError | None:
    """The error that an event of a stream is, if it is one. `failed`: its name says so.

    The request was accepted, so an error that says nothing of itself may well pass."""
    said = _error_in(body, failed=failed)
    if said is None:
        return None
    wait = said.wait_seconds
    error = http_error(provider, said.status or 200, said.text, code=said.code, retry_after_seconds=wait)
    error.retryable = error.retryable or error.reason == "ModelError"
    return error


def spent(body: str, dialect: Dialect, request: ModelRequest, said_bytes: int) -> Usage:
    """What an answer that broke off has cost: what its provider had told by then, and for what it had
    said without telling, a guess."""
    guess = Usage()
    if said_bytes:
        sent = estimate_usage(request, None).tokens_in
        guess = Usage(tokens_in=sent, tokens_out=-(-said_bytes // BYTES_PER_TOKEN), estimated=True)
    try:
        return settle(dialect.counts(as_dict(parse(body))), guess)
    except BadAnswer:
        return guess


def _spent(counts: Counts) -> Usage:
    """What is known to have been spent, with nothing guessed."""
    return settle(counts, Usage())


def _wait(status: int, said: _Said, headers: Mapping[str, str]) -> float | None:
    """What is asked for; for a rate limit without it, what the limit says of itself."""
    wait = retry_after(headers)
    if wait is None:
        wait = said.wait_seconds
    if wait is None and status == RATE_LIMITED:
        wait = limit_reset(headers)
    return wait


def _error_in(body: Any, *, failed: bool = False) -> _Said | None:
    """The error that a body holds, if any. `failed`: the status said already that it is one."""
    if isinstance(body, list):  # Google's, when asked for a stream
        return _error_in(body[0], failed=failed) if body else None
    if not isinstance(body, dict):
        return None
    error = body.get("error")
    if not error:
        choice = as_list(body.get("choices"))
        error = as_dict(choice[0]).get("error") if choice else None
    if isinstance(error, str):
        return _Said(text=as_text(error))
    if isinstance(error, dict) and error:
        return _said(error)
    flat = body.get("type") == "error" or body.get("object") == "error"
    if flat or (failed and (body.get("message") or body.get("detail"))):
        return _said(body)
    return None


def _said(error: Mapping[str, Any]) -> _Said:
    code, status = error.get("code"), None
    if not str(code).isdecimal():
        code = error.get("status_code")
    words = [as_text(error.get(key)) for key in ("code", "status", "type")]
    if isinstance(code, int | str) and str(code).isdecimal() and 400 <= int(code) <= 599:
        status = int(code)
    # The clearest word first: a code ("context_length_exceeded") says more than a type.
    word = next((w for w in words if w and not w.isdecimal() and w != "error"), "")
    text = as_text(error.get("message")) or as_text(error.get("detail")) or repr(dict(error))
    upstream = as_dict(error.get("metadata")).get("raw")
    if isinstance(upstream, str) and upstream not in text:
        text = f"{text}: {upstream}"
    return _Said(text=text, code=word, status=status, wait_seconds=_retry_delay(error))


def _retry_delay(error: Mapping[str, Any]) -> float | None:
    """Google's way to say Retry-After: a detail with "7s"."""
    for detail in map(as_dict, as_list(error.get("details"))):
        delay = as_text(detail.get("retryDelay"))
        if detail.get("@type") == _RETRY_INFO and delay.endswith("s"):
            return retry_after({"retry-after": delay[:-1]})
    return None
