"""What comes after a turn: pure decisions of the agent loop.

Who calls: the loop, with the turns that are recorded. Nothing here reads a clock,
so a replay decides as the first run did.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentrun.agent.answers import ASKS_MAX, told
from agentrun.agent.conversation import calls_of, text_of
from agentrun.graph.types import TEXT, Spawned
from agentrun.proto import transcript_pb2 as pb

TRUNCATED_TURNS_MAX = 3
"""So many turns in a row that the output limit cut end the run."""

LOOP_WINDOW_TURNS = 5
"""So many turns in a row that ask for the same calls end the run, before they are made."""

OUTPUT_INVALID = "OutputInvalid"
"""The reason of a run whose answer does not fit its schema."""

CUT_OFF = "Your answer was cut off by the output limit. Give it again, shorter."
EMPTY = "Your last message was empty. Answer, or say that you have nothing to say."

_REFUSED = {
    pb.FINISH_REASON_REFUSAL: "Refused",
    pb.FINISH_REASON_CONTENT_FILTER: "ContentFiltered",
}


def after_turn(turns: Sequence[pb.AssistantTurn], number: int) -> Spawned:
    """The successor of turn `number`. `turns`: the newest ones, the last of them is it."""
    turn = turns[-1]
    if turn.finish in _REFUSED:
        return _finalize(_REFUSED[turn.finish])
    if turn.truncated and _truncated_in_a_row(turns) >= TRUNCATED_TURNS_MAX:
        return _finalize("OutputTruncated")
    if calls_of(turn):
        return Spawned(kind="run_tool_batch", name=f"tools-{number}")
    if turn.finish == pb.FINISH_REASON_PAUSE:
        return Spawned(kind="run_assistant_turn", name=f"turn-{number + 1}")
    if turn.truncated:
        return _say(CUT_OFF, number + 1)
    if not text_of(turn).strip() and not (len(turns) > 1 and _is_empty(turns[-2])):
        return _say(EMPTY, number + 1)
    return _finalize("")


def is_answer(following: Spawned) -> bool:
    """The turn before it is the answer, if it fits what an answer must fit."""
    return following.kind == "finalize_run" and not following.input


def is_final(turn: pb.AssistantTurn) -> bool:
    """Nothing but an answer can have been meant: it is whole, and asks for nothing."""
    return not calls_of(turn) and not turn.truncated and turn.finish != pb.FINISH_REASON_PAUSE


def after_misfit(problems: list[str], earlier: int, number: int) -> Spawned:
    """The successor of turn `number`, whose answer does not fit; `earlier` turns' answers did not either."""
    if earlier >= ASKS_MAX:
        return _finalize(OUTPUT_INVALID)
    return _say(told(problems), number + 1)


def _is_empty(turn: pb.AssistantTurn) -> bool:
    return not calls_of(turn) and not text_of(turn).strip()


def _truncated_in_a_row(turns: Sequence[pb.AssistantTurn]) -> int:
    count = 0
    for turn in reversed(turns):
        if not turn.truncated:
            break
        count += 1
    return count


def _say(text: str, number: int) -> Spawned:
    message = pb.UserMessage(text=text)
    return Spawned(kind="append_user_message", name=f"user-{number}", input=message.SerializeToString())


def _finalize(failure: str) -> Spawned:
    return Spawned(kind="finalize_run", name="final", input=failure.encode(), media_type=TEXT)


def is_loop(turns: Sequence[pb.AssistantTurn]) -> bool:
    """The last LOOP_WINDOW_TURNS turns ask for the same calls with the same arguments."""
    if len(turns) < LOOP_WINDOW_TURNS:
        return False
    window = [[(c.name, c.arguments) for c in calls_of(turn)] for turn in turns[-LOOP_WINDOW_TURNS:]]
    return bool(window[0]) and all(batch == window[0] for batch in window)
