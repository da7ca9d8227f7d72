"""Metadata of the object and of its pods, with Kubernetes' own rules for them.

Used by `run`. Invariant: what passes here the API server takes too. Fields that
the server itself writes are dropped, so that an exported manifest runs again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from agentrun.spec.base import (
    NAME_CHARACTERS_MAX,
    NAME_PREFIX,
    SUBDOMAIN,
    JsonObject,
    ManifestModel,
    Str,
    Subdomain,
)
from agentrun.spec.errors import RuleError, show

ANNOTATIONS_BYTES_MAX = 256 * 1024

SERVER_FIELDS = frozenset(
    {
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generation",
        "managedFields",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)
"""Fields of Kubernetes' ObjectMeta that a manifest may carry and that say nothing here."""

_QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


def _key_problem(key: str) -> str | None:
    prefix, slash, name = key.rpartition("/")
    prefix_is_good = not slash or (len(prefix) <= NAME_CHARACTERS_MAX and re.fullmatch(SUBDOMAIN, prefix))
    if prefix_is_good and _QUALIFIED.fullmatch(name):
        return None
    return "the key must be at most 63 letters, digits, '-', '_' and '.', after an optional domain and '/'"


def _check_labels(labels: dict[str, str]) -> dict[str, str]:
    found = []
    for key, value in labels.items():
        if problem := _key_problem(key):
            found.append(((key,), problem))
        elif not _LABEL_VALUE.fullmatch(value):
            found.append(
                (
                    (key,),
                    "must be at most 63 letters, digits, '-', '_' and '.', and begin and end with a letter "
                    f"or digit, not {show(value)}",
                )
            )
    if found:
        raise RuleError(found)
    return labels


def _check_annotations(annotations: dict[str, str]) -> dict[str, str]:
    found = [((key,), problem) for key in annotations if (problem := _key_problem(key))]
    if found:
        raise RuleError(found)
    size_bytes = sum(len(text.encode()) for pair in annotations.items() for text in pair)
    if size_bytes > ANNOTATIONS_BYTES_MAX:
        raise ValueError(f"must be at most {ANNOTATIONS_BYTES_MAX} bytes in all, and has {size_bytes}")
    return annotations


Labels = Annotated[
    dict[str, Annotated[Str, Field(max_length=63)]], Field(max_length=256), AfterValidator(_check_labels)
]
Annotations = Annotated[
    dict[str, Annotated[Str, Field(max_length=ANNOTATIONS_BYTES_MAX)]],
    Field(max_length=256),
    AfterValidator(_check_annotations),
]


class ObjectMeta(ManifestModel):
    """The object's name and labels. Fields that the API server writes are ignored."""

    name: Subdomain | None = Field(default=None, description="Name of the run, unique in its namespace.")
    generate_name: (
        Annotated[Str, Field(min_length=1, max_length=NAME_CHARACTERS_MAX, pattern=NAME_PREFIX)] | None
    ) = Field(
        default=None, description="Beginning of a name that the server completes, where name is left out."
    )
    namespace: Subdomain | None = Field(
        default=None, description="Namespace of the object. Default: the client's."
    )
    labels: Labels = Field(default={}, description="Labels of the object.")
    annotations: Annotations = Field(default={}, description="Annotations of the object.")

    @model_validator(mode="before")
    @classmethod
    def _server_fields_are_ignored(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            return {key: value for key, value in data.items() if key not in SERVER_FIELDS}
        return data

    @model_validator(mode="after")
    def _has_a_name(self) -> ObjectMeta:
        if self.name is None and self.generate_name is None:
            raise RuleError([(("name",), "is required (or generateName)")])
        return self


class PodMetadata(ManifestModel):
    """Labels and annotations to add to the run's pods."""

    labels: Labels = Field(default={}, description="Labels to add.")
    annotations: Annotations = Field(default={}, description="Annotations to add.")


class PodTemplate(ManifestModel):
    """What to add to the pods that the operator makes. Its own settings win."""

    metadata: PodMetadata = Field(default=PodMetadata(), description="Labels and annotations to add.")
    spec: JsonObject | None = Field(
        default=None,
        description="Parts of a Kubernetes PodSpec: nodeSelector, tolerations, affinity, priorityClassName, "
        "runtimeClassName, serviceAccountName, imagePullSecrets, securityContext, volumes, initContainers, "
        "containers. Checked by the operator, not here.",
    )
