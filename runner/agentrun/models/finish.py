"""Why a turn ended, in our enum.

Called for every provider's raw word and for scripted ones. The reason is a
hint: calls that are present are calls whatever it says, unless the output limit
cut the turn.
"""

from __future__ import annotations

from agentrun.proto import transcript_pb2 as pb

_STOP = pb.FINISH_REASON_STOP
_CALLS = pb.FINISH_REASON_TOOL_CALLS
_LENGTH = pb.FINISH_REASON_LENGTH
_FILTER = pb.FINISH_REASON_CONTENT_FILTER
_REFUSAL = pb.FINISH_REASON_REFUSAL
_PAUSE = pb.FINISH_REASON_PAUSE
_OTHER = pb.FINISH_REASON_OTHER

_BY_WORD: dict[str, pb.FinishReason] = {
    # OpenAI chat and what imitates it
    "stop": _STOP,
    "tool_calls": _CALLS,
    "function_call": _CALLS,
    "length": _LENGTH,
    "content_filter": _FILTER,
    "eos": _STOP,
    # OpenAI responses: the status, or why it is incomplete
    "completed": _STOP,
    "max_output_tokens": _LENGTH,
    # Anthropic
    "end_turn": _STOP,
    "stop_sequence": _STOP,
    "tool_use": _CALLS,
    "max_tokens": _LENGTH,
    "model_context_window_exceeded": _LENGTH,
    "refusal": _REFUSAL,
    "pause_turn": _PAUSE,
    "pause": _PAUSE,
    # Google
    "finish_reason_stop": _STOP,
    "safety": _FILTER,
    "recitation": _FILTER,
    "blocklist": _FILTER,
    "prohibited_content": _FILTER,
    "spii": _FILTER,
    "image_safety": _FILTER,
    "malformed_function_call": _OTHER,
}


def finish_of(raw: str | None, *, has_calls: bool) -> tuple[pb.FinishReason, bool]:
    """(our reason, cut by the output limit) of a provider's word.

    No word at all is a plain end; an unknown word is OTHER, and its raw value is
    kept beside it. Calls with a plain or an unknown end are TOOL_CALLS, and
    TOOL_CALLS without any call is a plain end.
    """
    word = (raw or "stop").strip().lower()
    finish = _BY_WORD.get(word, _OTHER)
    if has_calls and finish in (_STOP, _OTHER):
        finish = _CALLS
    elif not has_calls and finish == _CALLS:
        finish = _STOP
    return finish, finish == _LENGTH
