"""How long a refused request is asked to wait."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest

from agentrun.models.waits import DATE_SECONDS_MAX, GUESSED_SECONDS_MAX, limit_reset, retry_after

DATE = "Wed, 21 Oct 2026 07:28:00 GMT"
NOW = datetime(2026, 10, 21, 7, 28, tzinfo=UTC).timestamp()


def http_date(seconds: float) -> str:
    """So long after NOW."""
    return format_datetime(datetime.fromtimestamp(NOW + seconds, UTC), usegmt=True)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "7"}, 7.0),
        ({"retry-after": http_date(30), "date": DATE}, 30.0),
        # The provider's clock is an hour off ours: its own Date is what counts.
        ({"retry-after": http_date(-3570), "date": http_date(-3600)}, 30.0),
        ({"retry-after": http_date(-60), "date": DATE}, 0.0),
        ({"retry-after": http_date(9e6), "date": DATE}, DATE_SECONDS_MAX),
        # Without it only our clock is left, which may be wrong by any amount.
        ({"retry-after": http_date(30)}, 30.0),
        ({"retry-after": http_date(-30)}, 0.0),
        ({"retry-after": http_date(9e6)}, GUESSED_SECONDS_MAX),
        ({"retry-after": http_date(30), "date": "yesterday"}, 30.0),
        ({"retry-after": "later", "date": DATE}, None),
        ({"retry-after": "Wed, 99 Oct 2026 07:28:00 GMT", "date": DATE}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": ""}, None),
        ({}, None),
    ],
)
def test_retry_after_in_each_of_its_forms(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, now=NOW) == seconds


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1m30s"}, 90.0),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "120ms"}, 0.12),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6h0m0s"}, GUESSED_SECONDS_MAX),
        # Of two that are used up, the later one; one that is not says nothing.
        (
            {
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-requests": "2s",
                "x-ratelimit-remaining-tokens": "0",
                "x-ratelimit-reset-tokens": "5.5s",
            },
            5.5,
        ),
        (
            {
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-requests": "2s",
                "x-ratelimit-remaining-tokens": "17",
                "x-ratelimit-reset-tokens": "1m",
            },
            2.0,
        ),
        ({"x-ratelimit-remaining-requests": "9", "x-ratelimit-reset-requests": "1m"}, None),
        ({"x-ratelimit-reset-requests": "1m"}, None),
        (
            {
                "anthropic-ratelimit-requests-remaining": "0",
                "anthropic-ratelimit-requests-reset": "2026-10-21T07:28:12Z",
                "date": DATE,
            },
            12.0,
        ),
        (
            {
                "anthropic-ratelimit-input-tokens-remaining": "0",
                "anthropic-ratelimit-input-tokens-reset": "2026-10-21T07:28:12+00:00",
            },
            12.0,
        ),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "20"}, 20.0),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": f"{NOW + 9:.0f}"}, 9.0),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": f"{(NOW + 9) * 1000:.0f}"}, 9.0),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": f"{NOW + 86400:.0f}"}, GUESSED_SECONDS_MAX),
        ({"ratelimit-remaining": "0", "ratelimit-reset": "4"}, 4.0),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "soon"}, None),
        ({"x-ratelimit-remaining": "none", "x-ratelimit-reset": "4"}, None),
        ({}, None),
    ],
)
def test_a_limit_that_is_used_up_says_when_it_is_whole_again(
    headers: dict[str, str], seconds: float | None
) -> None:
    found = limit_reset(headers, now=NOW)
    assert found == (None if seconds is None else pytest.approx(seconds))
