"""Who made an attempt, as `run_attempt.process` names it (JSON). Pure.

Who calls: `apply` writes it, `plan` and `observe` read it. What holds: what cannot be
read is a pod's attempt of an unknown pod, so that nothing is forgotten.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from agentrun.log.store import AttemptRow


@dataclass(frozen=True, kw_only=True)
class Process:
    """`pod` is empty for an attempt that the operator makes for itself, to end a run.

    `generation`: of the levels that held when the attempt was allocated.
    """

    operator: str = ""
    pod: str = ""
    generation: int = 0
    ends: bool = False
    """The operator's own attempt: it ends the run."""

    def to_json(self) -> str:
        """One line."""
        fields = {"operator": self.operator, "pod": self.pod, "generation": self.generation}
        return json.dumps(fields | ({"ends": True} if self.ends else {}), separators=(",", ":"))


def parse_process(text: str) -> Process:
    """The reverse of `to_json`."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        return Process()
    generation = value.get("generation")
    return Process(
        operator=str(value.get("operator") or ""),
        pod=str(value.get("pod") or ""),
        generation=generation if isinstance(generation, int) else 0,
        ends=value.get("ends") is True,
    )


def is_pods(row: AttemptRow) -> bool:
    """The attempt is a pod's, and not the operator's own."""
    return not parse_process(row.process).ends
