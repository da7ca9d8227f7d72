"""Which of its models an agent asks: pure decisions, from what is recorded.

Who calls: `ask`, for each try of a turn. What holds: the same log gives the same
model, in whatever process. A turn begins with the model that answered the one
before; a failed try goes to the model with the fewest failed tries of this turn,
in the order of the manifest; one that failed for good is not asked again.
"""

from __future__ import annotations

from agentrun.models import ModelError
from agentrun.proto import transcript_pb2 as pb

OWN_MODEL_AGAIN_TURNS = 5
"""After so many turns in a row by fallbacks the agent's own model is asked first again."""


def begin(memo: bytes, before: pb.AssistantTurn | None, count: int) -> pb.ModelState:
    """Whom this try asks, of `count` models. `memo`: of the turn's newest failed try, if there was
    one; `before`: the turn before."""
    state = pb.ModelState()
    if memo:
        state.ParseFromString(memo)
    elif before is not None:
        state.CopyFrom(before.state)
        if state.turns_away >= OWN_MODEL_AGAIN_TURNS and 0 not in state.given_up:
            state.place = state.turns_away = 0
    if state.place >= count or exhausted(state, count):
        # All had failed for good, and somebody has the run go on: it may be mended.
        state = pb.ModelState(refused=state.refused)
    return state


def after_failure(
    state: pb.ModelState, error: ModelError, count: int, *, mended: bool = False
) -> pb.ModelState:
    """What is known behind a try that failed with `error`: also whom the next one asks, unless the
    models are `exhausted`. `mended`: what led to it is not sent again."""
    failed = pb.ModelState()
    failed.CopyFrom(state)
    failed.tries.extend([0] * (count - len(failed.tries)))
    failed.tries[state.place] += 1
    if mended:
        return failed
    if error.refused_option and error.refused_option not in refused_by(state):
        failed.refused.add(place=state.place, option=error.refused_option)
        return failed
    if not error.retryable:
        failed.given_up.append(state.place)
    left = [place for place in range(count) if place not in failed.given_up]
    failed.place = min(left, key=lambda place: failed.tries[place], default=state.place)
    return failed


def exhausted(state: pb.ModelState, count: int) -> bool:
    """All of `count` models failed for good."""
    return len(set(state.given_up)) >= count


def answered(state: pb.ModelState) -> pb.ModelState | None:
    """What the turn's record says of it; None where there is nothing to say."""
    turn = pb.ModelState(place=state.place, given_up=state.given_up, refused=state.refused)
    turn.turns_away = state.turns_away + 1 if state.place else 0
    return turn if turn.ByteSize() else None


def refused_by(state: pb.ModelState) -> frozenset[str]:
    """The options that the model which is meant has refused."""
    return frozenset(entry.option for entry in state.refused if entry.place == state.place)


def tries_of(state: pb.ModelState) -> int:
    """Failed tries of the model that is meant, in this turn."""
    return state.tries[state.place] if state.place < len(state.tries) else 0
