"""The definition of a run: the immutable part of a spec as canonical bytes.

Stored once a run, before its first pod, and compared with what a re-created object
gives when it adopts a log. Invariants: equal specs give equal bytes in every release
(keys sorted, defaults left out, so a new optional field changes nothing and a
default never may), also where one comes from a file and the other from the API
server, which gives 1.0 back as 1; and secrets and ConfigMap texts appear as
references only.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from agentrun.spec.errors import ManifestError, Problem
from agentrun.spec.explain import validate
from agentrun.spec.run import AgentRun, AgentRunSpec

NOT_DEFINITION = frozenset(
    {"run_id", "budget", "suspend", "shutdown", "retry_token", "ttl_seconds_after_finished"}
)
"""Fields left out: what may change, and the run's id, which the log knows by
itself (a re-created object names the id that its first one never wrote down)."""

EXACT_BELOW = 2.0**53
"""From here on a float may not be the number that was written: left as it is."""


def definition_bytes(run: AgentRun) -> bytes:
    """Canonical JSON, UTF-8, of the part of the spec that never changes."""
    value = run.spec.model_dump(
        mode="json", by_alias=True, exclude_defaults=True, exclude=set(NOT_DEFINITION)
    )
    return _canonical(value)


def same_definition(stored: bytes, wanted: bytes) -> bool:
    """Whether `stored`, of whatever release, is what `definition_bytes` gave as `wanted`."""
    if stored == wanted:
        return True
    try:
        return _canonical(json.loads(stored)) == wanted
    except (ValueError, RecursionError):
        return False


def _canonical(value: Any) -> bytes:
    return json.dumps(
        _as_served(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def _as_served(value: Any) -> Any:
    """Numbers as the API server gives them back: what is whole is an integer."""
    if isinstance(value, dict):
        return {key: _as_served(child) for key, child in value.items()}
    if isinstance(value, list):
        return [_as_served(child) for child in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < EXACT_BELOW:
        return int(value)
    return value


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
