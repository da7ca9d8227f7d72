"""The script of a `scripted` model: turns played back in order, at no cost.

For demos and tests. The manifest holds it inline (`script`) or in a file beside
it (`scriptFile`), which loading inlines. Invariant: a script is at most 2,000
turns and 512 KiB as JSON, so that a definition stays storable.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from agentrun.spec.base import (
    INTEGER_MAX,
    TEXT_BYTES_MAX,
    Int,
    ManifestModel,
    Number,
    ShortText,
    Str,
    check_json,
)

SCRIPT_TURNS_MAX = 2000
SCRIPT_BYTES_MAX = 512 * 1024

_Text = Annotated[Str, Field(max_length=TEXT_BYTES_MAX)]
_Tokens = Annotated[Int, Field(ge=0, le=INTEGER_MAX)]


class FinishReason(StrEnum):
    """Why a turn ended."""

    STOP = "stop"
    TOOL_CALLS = "tool_calls"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"
    REFUSAL = "refusal"
    PAUSE = "pause"
    OTHER = "other"


def _is_object_or_text(value: Any) -> Any:
    if isinstance(value, str):
        if len(value) > TEXT_BYTES_MAX:
            raise ValueError(f"must be at most {TEXT_BYTES_MAX} characters, and has {len(value)}")
        return value
    if not isinstance(value, dict):
        raise ValueError("must be a mapping of arguments, or the raw text that the model wrote")
    return check_json(value)


class ScriptedToolCall(ManifestModel):
    """One call that the scripted model asks for."""

    name: ShortText = Field(
        description="Name of the tool. It may be one that does not exist, to see what happens."
    )
    arguments: Annotated[
        Any,
        BeforeValidator(_is_object_or_text),
        WithJsonSchema({"x-kubernetes-preserve-unknown-fields": True}),
    ] = Field(
        default={},
        description="Arguments as a mapping, or as the raw text that the model wrote (which may be broken "
        "JSON). Default: none.",
    )
    id: ShortText | None = Field(
        default=None, description="The provider's id of the call. Default: one is made up."
    )


class ScriptedUsage(ManifestModel):
    """Tokens that the turn claims to have cost."""

    input_tokens: _Tokens = Field(default=0, description="Tokens read, cached ones included. Default 0.")
    output_tokens: _Tokens = Field(default=0, description="Tokens written. Default 0.")
    cached_tokens: _Tokens = Field(
        default=0, description="The part of inputTokens read from a cache. Default 0."
    )

    @model_validator(mode="after")
    def _cached_is_a_part(self) -> ScriptedUsage:
        if self.cached_tokens > self.input_tokens:
            raise ValueError("cachedTokens must be at most inputTokens, which include them")
        return self


class ScriptedError(ManifestModel):
    """A request that fails instead of giving a turn."""

    status: Annotated[Int, Field(ge=100, le=599)] = Field(
        description="HTTP status of the answer; 200 for an error inside a good answer."
    )
    message: ShortText = Field(default="", description="What the provider says.")
    times: Annotated[Int, Field(ge=0, le=1_000_000)] = Field(
        default=1, description="How many tries fail before the next turn is played; 0: every one. Default 1."
    )
    retry_after_seconds: Annotated[Number, Field(ge=0, le=86400)] | None = Field(
        default=None, description="Value of Retry-After, in seconds. Default: no such header."
    )


class ScriptedTurn(ManifestModel):
    """One turn. With `error` the request fails; otherwise it is what the model says."""

    text: _Text | None = Field(default=None, description="What the model says.")
    thinking: _Text | None = Field(default=None, description="What the model thinks before it.")
    tool_calls: Annotated[tuple[ScriptedToolCall, ...], Field(max_length=256)] = Field(
        default=(), description="Tools that it calls, all at once."
    )
    delay_seconds: Annotated[Number, Field(ge=0, le=86400)] = Field(
        default=0.0, description="How long the turn takes, in seconds. Default 0."
    )
    usage: ScriptedUsage | None = Field(
        default=None, description="Tokens that it costs. Default: estimated from the texts."
    )
    finish_reason: FinishReason | None = Field(
        default=None, description="Why it ended. Default: tool_calls with tool calls, else stop."
    )
    error: ScriptedError | None = Field(default=None, description="Makes the request fail.")

    @model_validator(mode="after")
    def _an_error_says_nothing(self) -> ScriptedTurn:
        if self.error and (self.text is not None or self.thinking is not None or self.tool_calls):
            raise ValueError("a turn with an error has no text, thinking or toolCalls; make them two turns")
        return self


def _check_size(script: Script) -> Script:
    size_bytes = len(json.dumps(script.model_dump(mode="json", by_alias=True, exclude_defaults=True)))
    if size_bytes > SCRIPT_BYTES_MAX:
        raise ValueError(f"must be at most {SCRIPT_BYTES_MAX} bytes as JSON, and has {size_bytes}")
    return script


class Script(ManifestModel):
    """What a scripted model says, turn by turn."""

    turns: Annotated[tuple[ScriptedTurn, ...], Field(min_length=1, max_length=SCRIPT_TURNS_MAX)] = Field(
        description="The turns, in order. A request behind the last one fails."
    )


BoundedScript = Annotated[Script, AfterValidator(_check_size)]
