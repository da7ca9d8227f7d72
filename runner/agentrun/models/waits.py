"""How long a refused request is asked to wait, from the headers of the refusal.

Used by `answer`, for every provider. Pure. A date is judged against the reply's own
`Date`, for two clocks never agree, and bounded by `DATE_SECONDS_MAX`; where only our
clock is left, and where a header tells of a limit rather than asks for a wait, the
wait is bounded by `GUESSED_SECONDS_MAX`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

DATE_SECONDS_MAX = 3600.0
"""The longest wait that is read out of two dates of the reply."""
GUESSED_SECONDS_MAX = 300.0
"""The longest wait that is read out of a date by our own clock, or out of a limit's reset."""

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
# A number this large is no count of seconds but a moment, in seconds or milliseconds.
_EPOCH_SECONDS, _EPOCH_MS = 1e9, 1e12

# (what is left, when it is whole again) of the limits that providers tell of.
_LIMITS = (
    ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
    ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),
    ("anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset"),
    ("anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-reset"),
    ("anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"),
    ("x-ratelimit-remaining", "x-ratelimit-reset"),
    ("ratelimit-remaining", "ratelimit-reset"),
)


def retry_after(headers: Mapping[str, str], *, now: float | None = None) -> float | None:
    """Seconds that the reply asks to wait, at least 0; None when it says nothing sane.

    `headers` has lower-case names; `now`: seconds since 1970 by our clock, for tests.
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        seconds = _number(headers.get(name))
        if seconds is not None:
            return max(0.0, seconds * unit)
    moment = _moment(headers.get("retry-after"))
    return None if moment is None else _until(moment, headers, now)


def limit_reset(headers: Mapping[str, str], *, now: float | None = None) -> float | None:
    """Seconds until every limit that is used up is whole again; None where none says so."""
    waits = [
        wait
        for left, reset in _LIMITS
        if _used_up(headers.get(left)) and (wait := _reset(headers.get(reset), headers, now)) is not None
    ]
    return max(waits, default=None)


def _used_up(left: str | None) -> bool:
    number = _number(left)
    return number is not None and number <= 0


def _reset(value: str | None, headers: Mapping[str, str], now: float | None) -> float | None:
    """Of a number of seconds, a moment, "6m0s", or a date."""
    if value is None:
        return None
    number = _number(value)
    if number is not None and number >= _EPOCH_SECONDS:
        moment = number / 1000 if number >= _EPOCH_MS else number
        return min(_until(moment, headers, now), GUESSED_SECONDS_MAX)
    if number is None:
        number = _duration(value)
    if number is None:
        date = _moment(value)
        return None if date is None else min(_until(date, headers, now), GUESSED_SECONDS_MAX)
    return min(max(0.0, number), GUESSED_SECONDS_MAX)


def _duration(value: str) -> float | None:
    text = value.strip().lower()
    if not text or _DURATION.sub("", text):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in _DURATION.findall(text))


def _until(moment: float, headers: Mapping[str, str], now: float | None) -> float:
    since = _moment(headers.get("date"))
    if since is not None:
        return min(max(0.0, moment - since), DATE_SECONDS_MAX)
    return min(max(0.0, moment - (time.time() if now is None else now)), GUESSED_SECONDS_MAX)


def _moment(value: str | None) -> float | None:
    """Seconds since 1970 of a date as HTTP or as RFC 3339 writes it."""
    return next(_moments(value), None) if value else None


def _moments(value: str) -> Iterator[float]:
    from datetime import UTC, datetime
    from email.utils import parsedate_to_datetime  # slow to import, and rarely needed

    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            date = read(value.strip())
            yield (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
        except (ValueError, TypeError, OverflowError, IndexError):
            continue


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if number == number and abs(number) != float("inf") else None
