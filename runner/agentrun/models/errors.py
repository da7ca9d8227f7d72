"""What a failed request means: its reason, whether to try again, and when.

Used by every provider and by scripted models, so that the loop sees one
vocabulary. Pure; a message is never longer than `MESSAGE_MAX_BYTES` and its
callers give no secrets to it.
"""

from __future__ import annotations

from agentrun.log.text import safe_text
from agentrun.models.base import ModelError, Usage

MESSAGE_MAX_BYTES = 1024

# Statuses with a meaning of their own; the others go by their hundred.
_BY_STATUS = {
    401: ("Unauthorized", False),
    402: ("Forbidden", False),
    403: ("Forbidden", False),
    404: ("NotFound", False),
    408: ("Timeout", True),
    409: ("ServerError", True),
    425: ("Overloaded", True),
    429: ("RateLimited", True),
    501: ("ServerError", False),
    503: ("Overloaded", True),
    504: ("Timeout", True),
    524: ("Timeout", True),
    529: ("Overloaded", True),
}

# What providers write into `code` or `type` of an error, where it says more than the status does.
_BY_CODE = {
    "context_length_exceeded": ("ContextLengthExceeded", False),
    "model_context_window_exceeded": ("ContextLengthExceeded", False),
    "exceed_context_size_error": ("ContextLengthExceeded", False),
    "string_above_max_length": ("ContextLengthExceeded", False),
    "content_filter": ("ContentFilter", False),
    "content_policy_violation": ("ContentFilter", False),
    # Waiting does not bring money: the one 429 that is final.
    "insufficient_quota": ("RateLimited", False),
    "billing_error": ("Forbidden", False),
    "rate_limit_error": ("RateLimited", True),
    "rate_limit_exceeded": ("RateLimited", True),
    "resource_exhausted": ("RateLimited", True),
    "overloaded_error": ("Overloaded", True),
    "overloaded": ("Overloaded", True),
    "unavailable": ("Overloaded", True),
    # The server could not read the call that the model wrote; it may well write a better one.
    "tool_use_failed": ("InvalidResponse", True),
    "timeout_error": ("Timeout", True),
    "deadline_exceeded": ("Timeout", True),
    "api_error": ("ServerError", True),
    "server_error": ("ServerError", True),
    "internal_server_error": ("ServerError", True),
    "internal": ("ServerError", True),
    "authentication_error": ("Unauthorized", False),
    "invalid_api_key": ("Unauthorized", False),
    "unauthenticated": ("Unauthorized", False),
    "permission_error": ("Forbidden", False),
    "permission_denied": ("Forbidden", False),
    "not_found_error": ("NotFound", False),
    "model_not_found": ("NotFound", False),
    "invalid_request_error": ("BadRequest", False),
    "invalid_argument": ("BadRequest", False),
    "request_too_large": ("BadRequest", False),
}

# Codes that say less than the status beside them ("invalid_request_error" comes with 401 and 404 too).
_VAGUE = {"invalid_request_error", "invalid_argument", "api_error", "server_error"}

# Servers without a code for it say it in words.
_CONTEXT_WORDS = (
    "context length",
    "context window",
    "context size",
    "prompt is too long",
    "maximum context",
    "exceeds the maximum number of tokens",
    "input token count",
)


def clip(text: str, max_bytes: int = MESSAGE_MAX_BYTES) -> str:
    """`text` in one line, safe to store, at most `max_bytes` of UTF-8."""
    line = " ".join(safe_text(text[: 4 * max_bytes]).split())
    data = line.encode()
    if len(data) <= max_bytes:
        return line
    return data[: max_bytes - 3].decode("utf-8", "ignore") + "…"


def classify(status: int, code: str = "", text: str = "") -> tuple[str, bool]:
    """(reason, retryable) of an HTTP status and the provider's own `code` and `text`.

    A code that is clearer than the status wins; words are only searched in what
    looks like a refused request, for a busy server may say anything.
    """
    word = code.strip().lower()
    by_code = _BY_CODE.get(word)
    if by_code is not None and word not in _VAGUE:
        return by_code
    if status in (400, 413, 422) and any(words in text.lower() for words in _CONTEXT_WORDS):
        return "ContextLengthExceeded", False
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if 500 <= status <= 599:
        return "ServerError", True
    if 400 <= status <= 499:
        return "BadRequest", False
    if by_code is not None:
        return by_code
    return "ModelError", False


def http_error(
    provider: str,
    status: int,
    text: str,
    *,
    code: str = "",
    retry_after_seconds: float | None = None,
    usage: Usage | None = None,
) -> ModelError:
    """The error of a reply with an HTTP status that is not a success."""
    reason, retryable = classify(status, code, text)
    return ModelError(
        reason,
        clip(f"{provider} answered {status}: {text or 'no text'}"),
        retryable=retryable,
        retry_after_seconds=retry_after_seconds,
        usage=usage,
    )
