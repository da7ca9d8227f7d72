"""Model providers behind one seam.

The agent loop calls `build_model` once a process for each model that a manifest
names, and `request` on what it gets. Importing this package loads no provider's
library: those cost most of a second, and a scripted run needs none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentrun.models.base import (
    Message,
    Model,
    ModelError,
    ModelRequest,
    ModelResponse,
    ModelSetupError,
    ToolDefinition,
    Usage,
)
from agentrun.models.estimate import estimate_message, estimate_tokens
from agentrun.models.scripted import ScriptedModel

PROVIDERS = ("openai", "openai-responses", "anthropic", "google")
"""Those that ask a server; `scripted` asks none."""

__all__ = [
    "PROVIDERS",
    "Message",
    "Model",
    "ModelError",
    "ModelRequest",
    "ModelResponse",
    "ModelSetupError",
    "ScriptedModel",
    "ToolDefinition",
    "Usage",
    "build_model",
    "estimate_message",
    "estimate_tokens",
]


def build_model(
    name: str,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    settings: Mapping[str, Any] | None = None,
    script: Sequence[Mapping[str, Any]] | None = None,
) -> Model:
    """The model that a manifest names `provider:model`, ready for requests.

    Providers: `openai` (chat completions; with `base_url` any server that speaks
    them), `openai-responses`, `anthropic`, `google`, and `scripted`, which plays
    `script`. Without `api_key` the provider's usual environment variable counts.
    Raises ModelSetupError, in one line, for whatever is missing.
    """
    provider, _, model = name.partition(":")
    if provider == "scripted":
        if script is None:
            raise ModelSetupError(f"model {name!r} needs script.turns")
        return ScriptedModel(script, name=name)
    if provider not in PROVIDERS or not model:
        raise ModelSetupError(f"model {name!r} is not one of {', '.join(f'{p}:NAME' for p in PROVIDERS)}")
    try:
        from agentrun.models.providers import ProviderModel

        return ProviderModel(name, base_url=base_url, api_key=api_key, settings=settings or {})
    except ImportError as e:
        raise ModelSetupError(
            f"model {name!r} needs a package that is missing ({e}): pip install 'agentrun[models]'"
        ) from e
