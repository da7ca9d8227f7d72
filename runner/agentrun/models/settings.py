"""The manifest's settings as the library takes them.

Called once a request. Keys are the manifest's (`maxTokens`, `topP`, …); what is
None counts as not given. `extra` is not the library's: it is merged into the
body itself (see `transport`), for every provider alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentrun.models.base import ModelError, ModelRequest

_PLAIN = {"temperature": "temperature", "topP": "top_p", "seed": "seed"}
ANTHROPIC_MAX_TOKENS = 16_384
"""The largest answer asked of Anthropic when nothing else is said: its API has no default."""

_MODES = ("auto", "required", "none")


def unset_max_tokens(name: str) -> int | None:
    """The largest answer asked of a model where the manifest sets no maxTokens; None: not limited."""
    return ANTHROPIC_MAX_TOKENS if name.partition(":")[0] == "anthropic" else None


def merged(own: Mapping[str, Any], request: ModelRequest) -> dict[str, Any]:
    """The model's settings with the request's over them."""
    asked = {key: value for key, value in request.settings.items() if value is not None}
    return {**{key: value for key, value in own.items() if value is not None}, **asked}


def library_settings(settings: Mapping[str, Any], request: ModelRequest) -> dict[str, Any]:
    """`ModelSettings` of pydantic-ai; raises ModelError for a toolChoice that names no tool."""
    result: dict[str, Any] = {
        theirs: settings[ours] for ours, theirs in _PLAIN.items() if settings.get(ours) is not None
    }
    limit = request.max_output_tokens or settings.get("maxTokens")
    if limit:
        result["max_tokens"] = int(limit)
    if settings.get("stop"):
        result["stop_sequences"] = [str(text) for text in settings["stop"]]
    if request.tools:
        choice = settings.get("toolChoice")
        if choice is not None:
            result["tool_choice"] = choice if choice in _MODES else [_known(str(choice), request)]
        if settings.get("parallelToolCalls") is not None:
            result["parallel_tool_calls"] = bool(settings["parallelToolCalls"])
    return result


def _known(name: str, request: ModelRequest) -> str:
    if all(tool.name != name for tool in request.tools):
        raise ModelError("BadRequest", f"toolChoice names {name!r}, which is no tool here", retryable=False)
    return name
