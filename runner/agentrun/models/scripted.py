"""A model that plays a written script: for tests, demonstrations and dry runs.

Built by `build_model("scripted…")` from the manifest's `script.turns`. It keeps
no state: which turn it plays is the number of assistant turns already in the
request, and which try it is stands in the request's key, so that a resume on
another machine goes on exactly where the script was.

One entry of the script is a mapping:

    text, thinking     what the model says
    toolCalls          [{name, arguments, id}]; arguments are an object, or a string
                       that is passed on as it is
    delaySeconds       waited after `before_send`
    usage              {inputTokens, outputTokens, cachedTokens}; guessed from the text if not given
    finishReason       a provider's word ("length" cuts the turn)
    error              {status, message, retryAfterSeconds, times}

An entry with `error` fails the turn that follows it (or itself, when it says
something too): the first `times` tries (1 unless given; 0: always) raise it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentrun.log.text import safe_text
from agentrun.models.base import ModelError, ModelRequest, ModelResponse, ModelSetupError, Usage
from agentrun.models.errors import http_error
from agentrun.models.estimate import estimate_usage
from agentrun.models.finish import finish_of
from agentrun.proto import transcript_pb2 as pb

_SAYS = ("text", "thinking", "toolCalls")
_KEYS = frozenset((*_SAYS, "delaySeconds", "usage", "finishReason", "error"))


@dataclass(frozen=True, kw_only=True)
class _Turn:
    """One turn of the script: the errors before it, in order, and the entry that is played."""

    errors: tuple[Mapping[str, Any], ...]
    entry: Mapping[str, Any] | None


class ScriptedModel:
    """Plays `turns`; raises ModelSetupError when they are not a script."""

    def __init__(self, turns: Sequence[Mapping[str, Any]], *, name: str = "scripted") -> None:
        self._name = name
        self._turns = tuple(_group(turns))

    @property
    def name(self) -> str:
        return self._name

    async def request(self, request: ModelRequest) -> ModelResponse:
        if request.turn == 0:
            return await self._summary(request)
        said = sum(isinstance(message, pb.AssistantTurn) for message in request.messages)
        place = said if request.turn is None else request.turn - 1
        entry = self._entry(place, _try_of(request.key))
        await request.before_send()
        delay_seconds = float(entry.get("delaySeconds") or 0)
        await asyncio.sleep(min(delay_seconds, request.timeout_seconds))
        if delay_seconds > request.timeout_seconds:
            raise ModelError(
                "Timeout", f"{self._name}: no answer within {request.timeout_seconds:g} s", retryable=True
            )
        if "error" in entry:
            raise _error(self._name, entry["error"])
        turn = _assistant_turn(entry, self._name)
        return ModelResponse(turn=turn, usage=_usage(entry, request, turn))

    async def _summary(self, request: ModelRequest) -> ModelResponse:
        """A script has no summaries; one that says what it stands for can be told from any other."""
        await request.before_send()
        turn = _assistant_turn({"text": f"{len(request.messages) - 1} messages."}, self._name)
        return ModelResponse(turn=turn, usage=estimate_usage(request, turn))

    async def close(self) -> None:
        return None

    def _entry(self, place: int, attempt: int) -> Mapping[str, Any]:
        """The entry for turn `place` (from 0) at its try `attempt` (from 1)."""
        if place < len(self._turns):
            turn = self._turns[place]
            for entry in turn.errors:
                times = int(entry["error"].get("times", 1))
                if times == 0 or attempt <= times:
                    return entry
                attempt -= times
            if turn.entry is not None:
                return turn.entry
        played = sum(turn.entry is not None for turn in self._turns)
        raise ModelError(
            "BadRequest",
            f"{self._name}: the script has {played} turns and this is turn {place + 1}",
            retryable=False,
        )


def _group(turns: Sequence[Mapping[str, Any]]) -> Iterator[_Turn]:
    errors: list[Mapping[str, Any]] = []
    for position, entry in enumerate(turns):
        _check(position, entry)
        if "error" in entry:
            errors.append({key: entry[key] for key in ("error", "delaySeconds") if key in entry})
            if not any(key in entry for key in _SAYS):
                continue
        yield _Turn(errors=tuple(errors), entry={key: entry[key] for key in entry if key != "error"})
        errors = []
    if errors:
        yield _Turn(errors=tuple(errors), entry=None)


def _check(position: int, entry: Mapping[str, Any]) -> None:
    """Tries everything that would be built, so that a bad script fails before the run begins."""
    try:
        unknown = sorted(set(entry) - _KEYS)
        if unknown:
            raise ValueError(f"unknown field {unknown[0]!r}")
        float(entry.get("delaySeconds") or 0)
        if "error" in entry:
            _error("scripted", entry["error"])
        _assistant_turn(entry, "scripted")
        _numbers(entry.get("usage"))
    except (ValueError, TypeError, KeyError, AttributeError) as e:
        raise ModelSetupError(f"script: turn {position + 1}: {e!r}") from e


def _try_of(key: str) -> int:
    number = key.rpartition("#")[2] if "#" in key else ""
    return max(1, int(number)) if number.isdecimal() else 1


def _error(name: str, error: Mapping[str, Any]) -> ModelError:
    after, times = error.get("retryAfterSeconds"), int(error.get("times", 1))
    if times < 0:
        raise ValueError("times is below 0")
    return http_error(
        name,
        int(error.get("status", 500)),
        str(error.get("message") or "a scripted error"),
        code=str(error.get("code") or ""),
        retry_after_seconds=None if after is None else max(0.0, float(after)),
    )


def _assistant_turn(entry: Mapping[str, Any], name: str) -> pb.AssistantTurn:
    turn = pb.AssistantTurn(model=name, provider="scripted")
    if entry.get("thinking"):
        turn.parts.add().thinking.text = safe_text(entry["thinking"])
    if entry.get("text"):
        turn.parts.add().text.text = safe_text(entry["text"])
    calls = entry.get("toolCalls") or ()
    for call in calls:
        part = turn.parts.add().tool_call
        part.name = safe_text(call["name"])
        part.arguments = _arguments(call.get("arguments", {}))
        part.wire_id = safe_text(call.get("id") or "")
    raw = entry.get("finishReason") or ("tool_calls" if calls else "stop")
    turn.finish, turn.truncated = finish_of(raw, has_calls=bool(calls))
    turn.finish_raw = safe_text(raw)
    return turn


def _arguments(arguments: Any) -> str:
    if isinstance(arguments, str):
        return safe_text(arguments)
    return safe_text(json.dumps(arguments, ensure_ascii=False, allow_nan=False))


def _numbers(usage: Mapping[str, Any] | None) -> Usage | None:
    if usage is None:
        return None
    sent, written, cached = (
        max(0, int(usage.get(key) or 0)) for key in ("inputTokens", "outputTokens", "cachedTokens")
    )
    return Usage(tokens_in=max(sent, cached), tokens_out=written, tokens_cached=cached)


def _usage(entry: Mapping[str, Any], request: ModelRequest, turn: pb.AssistantTurn) -> Usage:
    return _numbers(entry.get("usage")) or estimate_usage(request, turn)
