"""How much of a conversation an agent's model is sent.

Used by `agent`. Invariant: thresholds are parts of the model's context window, so a
conversation is only shortened where that is known.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from agentrun.spec.base import Int, ManifestModel

RESULT_BYTES_MAX = 1024 * 1024
PERCENT_APART_MIN = 10


class CompactionSpec(ManifestModel):
    """Old turns are shortened when a request would come near the model's contextWindow."""

    at_percent: Annotated[Int, Field(ge=20, le=95)] = Field(
        default=80,
        description="A request that would be larger than this part of contextWindow is shortened first. "
        "Default 80.",
    )
    keep_percent: Annotated[Int, Field(ge=5, le=80)] = Field(
        default=30,
        description="The newest turns up to this part of contextWindow stay as they are; at most atPercent "
        "less 10. Default 30.",
    )

    @model_validator(mode="after")
    def _apart(self) -> CompactionSpec:
        if self.keep_percent > self.at_percent - PERCENT_APART_MIN:
            raise ValueError(
                f"keepPercent ({self.keep_percent}) must be at most atPercent less {PERCENT_APART_MIN} "
                f"({self.at_percent - PERCENT_APART_MIN})"
            )
        return self


class ContextSpec(ManifestModel):
    """What of a conversation the model is sent."""

    result_bytes: Annotated[Int, Field(ge=2048, le=RESULT_BYTES_MAX)] = Field(
        default=32768,
        description="Most bytes of one tool result that the model is shown; it reads the rest with the "
        "built-in tool read_result. Default 32768.",
    )
    compaction: CompactionSpec | None = Field(
        default=None,
        description="Shortens old turns before the conversation outgrows the model; needs "
        "model.contextWindow. Default: a run that outgrows its model fails with ContextLengthExceeded.",
    )
