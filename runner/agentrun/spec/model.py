"""Which model an agent talks to, and how.

Used by `agent`; the runner turns a `ModelSpec` into a provider. Invariants: a
key is only ever a reference to a Secret, and a scripted model has its script
inline once a manifest is loaded (a stored definition names no file).
"""

from __future__ import annotations

import difflib
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from agentrun.spec.base import (
    Bool,
    Int,
    JsonObject,
    ManifestModel,
    Number,
    SecretSource,
    ShortText,
    Str,
    ToolName,
    Url,
)
from agentrun.spec.errors import Path, RuleError, show
from agentrun.spec.script import BoundedScript

PROVIDERS = ("scripted", "openai", "openai-responses", "anthropic", "google")


def _check_model_name(value: str) -> str:
    provider, colon, model = value.partition(":")
    if not colon or not provider or not model.strip():
        raise ValueError(f"must be provider:model, such as openai:gpt-5, not {show(value)}")
    if provider not in PROVIDERS:
        near = difflib.get_close_matches(provider.lower(), PROVIDERS, n=1)
        hint = f"did you mean '{near[0]}'? Known" if near else "known"
        raise ValueError(f"unknown provider {show(provider)}; {hint} are: {', '.join(PROVIDERS)}")
    return value


class ModelSettings(ManifestModel):
    """What each request asks of the model. What is left out is the provider's choice."""

    temperature: Annotated[Number, Field(ge=0, le=2)] | None = Field(
        default=None, description="Randomness, 0 to 2. Default: the provider's."
    )
    max_tokens: Annotated[Int, Field(ge=1, le=10_000_000)] | None = Field(
        default=None, description="Most tokens that one turn may write. Default: the provider's."
    )
    top_p: Annotated[Number, Field(gt=0, le=1)] | None = Field(
        default=None, description="Nucleus sampling, above 0 and up to 1. Default: the provider's."
    )
    seed: Annotated[Int, Field(ge=-(2**63), le=2**63 - 1)] | None = Field(
        default=None, description="Seed for sampling, where the provider has one."
    )
    stop: Annotated[tuple[Annotated[Str, Field(min_length=1, max_length=256)], ...], Field(max_length=16)] = (
        Field(default=(), description="Texts at which the model stops.")
    )
    timeout_seconds: Annotated[Int, Field(ge=1, le=86400)] = Field(
        default=600, description="Longest time that one request may take, in seconds. Default 600."
    )
    tool_choice: ToolName | None = Field(
        default=None,
        description="auto, required, none, or the name of the one tool to call. Default: auto.",
    )
    parallel_tool_calls: Bool | None = Field(
        default=None, description="Whether one turn may call several tools. Default: the provider's."
    )
    stream: Bool | None = Field(
        default=None, description="Whether answers are asked for as a stream. Default: true."
    )
    extra: JsonObject | None = Field(
        default=None, description="Further fields for the body of each request, as the provider names them."
    )


class FallbackModel(ManifestModel):
    """A model: of an agent (then with fallbacks of its own), or one to fall back to."""

    name: Annotated[Str, Field(min_length=1, max_length=256), AfterValidator(_check_model_name)] = Field(
        description="provider:model. Providers: scripted, openai, openai-responses, anthropic, google."
    )
    base_url: Url | None = Field(
        default=None,
        alias="baseURL",
        description="Where the provider's API is, for compatible servers. Default: the provider's own.",
    )
    api_key_from: SecretSource | None = Field(
        default=None, description="The Secret that holds the API key. Default: no key is sent."
    )
    settings: ModelSettings = Field(
        default=ModelSettings(), description="What each request asks of the model."
    )
    context_window: Annotated[Int, Field(ge=1, le=100_000_000)] | None = Field(
        default=None,
        description="Tokens that the model can read and write in one request. Default: not known.",
    )
    script: BoundedScript | None = Field(default=None, description="What a scripted model says.")
    script_file: ShortText | None = Field(
        default=None,
        description="A file with the script, relative to the manifest. The command reads it and inlines it "
        "as script; an object in a cluster cannot have one.",
    )

    @property
    def provider(self) -> str:
        """The part of the name before the colon."""
        return self.name.partition(":")[0]

    @model_validator(mode="after")
    def _script_fits_provider(self) -> FallbackModel:
        found: list[tuple[Path, str]] = []
        if self.script_file is not None:
            found.append(
                (("scriptFile",), "is read only from a manifest on disk; write the script inline here")
            )
        elif self.provider == "scripted":
            if self.script is None:
                found.append(((), "a scripted model needs script or scriptFile"))
            if self.base_url is not None or self.api_key_from is not None:
                found.append(((), "a scripted model calls nothing: it takes no baseURL and no apiKeyFrom"))
        elif self.script is not None:
            found.append((("script",), f"is for scripted models only, and this one is {show(self.name)}"))
        if found:
            raise RuleError(found)
        return self


class ModelSpec(FallbackModel):
    """The model of an agent."""

    fallbacks: Annotated[tuple[FallbackModel, ...], Field(max_length=8)] = Field(
        default=(), description="Models to try, in order, when this one cannot answer."
    )
