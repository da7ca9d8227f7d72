"""The definition of a run: the immutable part of a spec as canonical bytes.

Stored once a run, before its first pod, and compared by digest when a re-created
object adopts a log. Invariants: equal specs give equal bytes in every release
(keys sorted, defaults left out, so a new optional field changes nothing and a
default never may), and secrets and ConfigMap texts appear as references only.
"""

from __future__ import annotations

import hashlib
import json

from agentrun.spec.errors import ManifestError, Problem
from agentrun.spec.explain import validate
from agentrun.spec.run import AgentRun, AgentRunSpec

NOT_DEFINITION = frozenset(
    {"run_id", "budget", "suspend", "shutdown", "retry_token", "ttl_seconds_after_finished"}
)
"""Fields left out: what may change, and the run's id, which the log knows by
itself (a re-created object names the id that its first one never wrote down)."""


def definition_bytes(run: AgentRun) -> bytes:
    """Canonical JSON, UTF-8, of the part of the spec that never changes."""
    value = run.spec.model_dump(
        mode="json", by_alias=True, exclude_defaults=True, exclude=set(NOT_DEFINITION)
    )
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def definition_from_bytes(data: bytes) -> AgentRunSpec:
    """The spec that was stored, with defaults for what a definition leaves out.

    Raises ManifestError when the bytes are no definition that this release knows.
    """
    source = "the stored definition"
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ManifestError([Problem("", "is not JSON")], source=source) from error
    return validate(AgentRunSpec, value, source=source, root=("spec",))


def definition_digest(data: bytes) -> str:
    """SHA-256 of a definition's bytes, in lower-case hex."""
    return hashlib.sha256(data).hexdigest()
