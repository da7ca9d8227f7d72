"""From an AgentRun of the API server to what decisions need of it.

Who calls: `observe`, and handlers for what an event says. What holds: an object that
cannot be understood, or whose pod template is refused, is a fact with a reason and
never an exception; objects that were understood are kept, within a bound.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from agentrun.spec import AgentRun, ManifestError, parse_object
from agentrun_operator.answers import said_in
from agentrun_operator.facts import EPOCH, Key, RunObject
from agentrun_operator.pods import parse_time
from agentrun_operator.podspec import IMAGE_ANNOTATION, PodSettings, build_pod, check_template

KEPT_MAX = 256
INVALID_SPEC, INVALID_TEMPLATE = "InvalidSpec", "InvalidPodTemplate"


class Objects:
    """Understands objects; remembers the newest of what it understood."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, int], tuple[AgentRun | None, str, str]] = OrderedDict()

    def parse(self, body: Mapping[str, Any]) -> RunObject:
        """The object."""
        metadata = body.get("metadata") or {}
        uid, generation = str(metadata.get("uid", "")), int(metadata.get("generation") or 1)
        run, reason, problem = self._understood(body, uid, generation)
        raw, status = body.get("spec"), body.get("status")
        raw = raw if isinstance(raw, Mapping) else {}
        given = raw.get("runID")
        run_id = run_id_of(body)
        return RunObject(
            key=key_of(body),
            uid=uid,
            run_id=run_id or UUID(int=0),
            generation=generation,
            resource_version=str(metadata.get("resourceVersion", "")),
            created_at=parse_time(metadata.get("creationTimestamp")) or EPOCH,
            deleting=bool(metadata.get("deletionTimestamp")),
            run=run,
            problem=problem,
            problem_reason=reason,
            said=said_in(metadata),
            given_id=given is not None and str(given) != uid,
            status=status if isinstance(status, Mapping) else {},
        )

    def _understood(
        self, body: Mapping[str, Any], uid: str, generation: int
    ) -> tuple[AgentRun | None, str, str]:
        place = (uid, generation)
        found = self._kept.get(place)
        if found is None:
            found = _understand(body)
            self._kept[place] = found
            while len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(place)
        return found

    def image_of(self, found: RunObject, settings: PodSettings) -> str:
        """The image that a pod would be made with now."""
        assert found.run is not None
        pod = build_pod(found.run, run_id=found.run_id, attempt=1, uid=found.uid, settings=settings)
        return str(pod["metadata"]["annotations"].get(IMAGE_ANNOTATION, ""))


def _understand(body: Mapping[str, Any]) -> tuple[AgentRun | None, str, str]:
    try:
        run = parse_object(body)
    except ManifestError as error:
        return None, INVALID_SPEC, str(error)
    if problems := check_template(run.spec.pod_template):
        return None, INVALID_TEMPLATE, str(ManifestError(problems))
    return run, "", ""


def key_of(body: Mapping[str, Any]) -> Key:
    """Which object it is."""
    metadata = body.get("metadata") or {}
    return Key(namespace=str(metadata.get("namespace", "")), name=str(metadata.get("name", "")))


def run_id_of(body: Mapping[str, Any]) -> UUID | None:
    """The id of the object's run: what its spec gives, else its uid."""
    spec, metadata = body.get("spec"), body.get("metadata") or {}
    given = spec.get("runID") if isinstance(spec, Mapping) else None
    return _uuid(given) or _uuid(metadata.get("uid"))


def _uuid(text: object) -> UUID | None:
    try:
        return UUID(str(text))
    except ValueError:
        return None
