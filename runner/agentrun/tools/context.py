"""What a Python tool may know about its call."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ToolContext:
    """Given to a function that has a parameter annotated with this type.

    `idempotency_key` is the same for every try of one call, also after a crash and
    on another machine, and no other call has it: hand it on to whatever the tool
    changes.
    """

    run_id: str
    node_id: str
    idempotency_key: str
