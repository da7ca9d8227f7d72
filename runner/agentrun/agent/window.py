"""When a conversation is shortened, and how far: pure.

Who calls: `compaction`, before a turn. Two stages, the cheaper one first. Results of old
turns are put aside (a line each in their place, no request); where that does not free
enough, old turns are replaced by a summary. Both leave the newest turns as they are, and
both free so much at once that the beginning of the requests, which providers cache,
stays the same for many turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

KEEP_REFUSED = 0.5


@dataclass(frozen=True, kw_only=True)
class Window:
    """What the manifest says. `tokens`: the model's context window; the others are parts of it."""

    tokens: int
    at: float
    """A request that would be larger is shortened first."""
    keep: float
    """As much of the newest turns stays as it is."""

    def no_larger_than(self, tokens: int) -> Window:
        """As a provider's refusal has shown it to be; 0: none has."""
        return replace(self, tokens=min(self.tokens, tokens or self.tokens))

    def refused_at(self, tokens: int) -> Window:
        """For the request that was refused: a summary of more than half of it would be refused, too."""
        return replace(self.no_larger_than(tokens), keep=max(self.keep, KEEP_REFUSED))


@dataclass(frozen=True, kw_only=True)
class TurnSize:
    """A turn with its results and what was said behind it: as it is told now, and with results aside."""

    number: int
    tokens: int
    tokens_aside: int


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Shorten the turns up to `to`: put their results aside, or summarise them."""

    to: int
    summary: bool


def plan(window: Window, fixed_tokens: int, output_tokens: int, turns: Sequence[TurnSize]) -> Plan | None:
    """What to do before a request is made; None: it fits, or nothing can be done.

    `fixed_tokens`: instructions, tools and the first message. `output_tokens`: the largest
    answer. `turns`: those that are told, oldest first."""
    size = fixed_tokens + sum(turn.tokens for turn in turns)
    if size <= window.at * window.tokens and size + output_tokens <= window.tokens:
        return None
    old = turns[: len(turns) - _kept(window, turns)]
    if not old:
        return None
    to = old[-1].number
    aside = size - sum(turn.tokens - turn.tokens_aside for turn in old)
    # Half way between the two, so that it does not come again a few turns later.
    enough = (window.at + window.keep) / 2 * window.tokens
    fits = aside <= enough and aside + output_tokens <= window.tokens
    return Plan(to=to, summary=not fits)


def _kept(window: Window, turns: Sequence[TurnSize]) -> int:
    """How many of the newest turns stay: the last one always."""
    room = window.keep * window.tokens
    kept = 0
    for turn in reversed(turns):
        room -= turn.tokens
        if kept and room < 0:
            break
        kept += 1
    return kept
