"""Where a run's secrets come from: references in, values out of the environment.

The operator gives a pod each Secret key as an environment variable of a fixed
name, and a person sets the same variable on a machine of their own; the runner
and the command read it here. Invariants: a value never enters a model, a
definition or a message, and no two references share a variable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pydantic import BaseModel

from agentrun.spec.base import SecretKeyRef
from agentrun.spec.errors import ManifestError, Path, Problem, format_path

VARIABLE_PREFIX = "AGENTRUN_SECRET_"


def secret_env_name(name: str, key: str) -> str:
    """The environment variable that holds this key of this Secret."""
    return (
        VARIABLE_PREFIX
        + re.sub(r"[^A-Z0-9]", "_", name.upper())
        + "__"
        + re.sub(r"[^A-Z0-9]", "_", key.upper())
    )


def secret_refs(spec: BaseModel) -> list[tuple[str, SecretKeyRef]]:
    """Every reference to a Secret in an AgentRunSpec, with its path in the manifest."""
    return [(format_path(("spec", *path)), ref) for path, ref in _walk(spec, ())]


def resolve_secrets(
    spec: BaseModel, environ: Mapping[str, str], *, source: str = ""
) -> dict[tuple[str, str], str]:
    """The values by (name, key). Raises ManifestError naming each variable that is missing or empty."""
    values: dict[tuple[str, str], str] = {}
    problems = []
    for path, ref in secret_refs(spec):
        variable = secret_env_name(ref.name, ref.key)
        if value := environ.get(variable, ""):
            values[ref.name, ref.key] = value
        else:
            state = "is empty" if variable in environ else "is not set"
            problems.append(
                Problem(
                    path,
                    f"key '{ref.key}' of Secret '{ref.name}' has no value: set {variable}, which {state}",
                )
            )
    if problems:
        raise ManifestError(problems, source=source)
    return values


def shared_variables(spec: BaseModel) -> Iterator[tuple[Path, str]]:
    """References whose variable another one has already, with their path below the spec."""
    owners: dict[str, SecretKeyRef] = {}
    for path, ref in _walk(spec, ()):
        variable = secret_env_name(ref.name, ref.key)
        owner = owners.setdefault(variable, ref)
        if owner != ref:
            yield (
                path,
                f"has the same environment variable, {variable}, as key '{owner.key}' of Secret "
                f"'{owner.name}'; rename one of them",
            )


def _walk(value: object, path: Path) -> Iterator[tuple[Path, SecretKeyRef]]:
    if isinstance(value, SecretKeyRef):
        yield path, value
    elif isinstance(value, BaseModel):
        for field, info in type(value).model_fields.items():
            yield from _walk(getattr(value, field), (*path, info.alias or field))
    elif isinstance(value, tuple):
        for index, child in enumerate(value):
            yield from _walk(child, (*path, index))
