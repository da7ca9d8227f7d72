"""Token counts out of whatever a provider says.

Providers leave usage out, send null, floats, strings and negative numbers, or
hide thinking in the total alone. What comes out is sane: nothing is below 0,
parts are not larger than what they are part of, and where something had to be
guessed it is marked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agentrun.models.base import Usage

TOKENS_MAX = 10**12
"""Above this a number is no token count."""


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What a provider said; None where it said nothing sane. `sent` includes cached tokens."""

    sent: int | None = None
    written: int | None = None
    total: int | None = None
    cached: int | None = None
    reasoning: int | None = None


def count(value: Any) -> int | None:
    """`value` as a number of tokens, or None."""
    if value is None or isinstance(value, bool):
        return None
    try:
        number = int(float(value))
    except (TypeError, ValueError, OverflowError):
        return None
    return number if 0 <= number <= TOKENS_MAX else None


def added(*values: Any) -> int | None:
    """The sum of those of `values` that are counts; None when none is."""
    counts = [number for value in values if (number := count(value)) is not None]
    return sum(counts) if counts else None


def settle(said: Counts, guess: Usage) -> Usage:
    """The usage to charge. `guess` is our own estimate of the same request and answer."""
    sent, written, total = said.sent, said.written, said.total or 0
    if not sent and not written and not total:
        return guess
    estimated = False
    if sent is None:
        if total:
            sent = max(0, total - written) if written is not None else min(total, guess.tokens_in)
        else:
            sent, estimated = guess.tokens_in, True
    if written is None:
        if total:
            written = max(0, total - sent)
        else:
            written, estimated = guess.tokens_out, True
    # A total above the sum is thinking that the parts do not show: it is paid for all the same.
    hidden = max(0, total - sent - written)
    written += hidden
    return Usage(
        tokens_in=sent,
        tokens_out=written,
        tokens_cached=min(said.cached or 0, sent),
        tokens_reasoning=min(max(said.reasoning or 0, hidden), written),
        estimated=estimated,
    )
