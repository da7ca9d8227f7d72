"""From a manifest's text, or an object from the API server, to an AgentRun.

The command and the API call `load_manifest`, the operator `parse_object`.
Invariant: what comes back obeys every rule of the schema and between the fields,
names no file any more, and gives a definition of at most 1 MiB.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agentrun.spec.definition import definition_bytes
from agentrun.spec.document import read_document, tree_problems
from agentrun.spec.errors import ManifestError, Problem, show
from agentrun.spec.explain import validate
from agentrun.spec.run import API_VERSION, KIND, AgentRun
from agentrun.spec.script import SCRIPT_BYTES_MAX

DEFINITION_BYTES_MAX = 1024 * 1024


def load_manifest(text: str | bytes, *, source: str, base_dir: Path | None) -> AgentRun:
    """Reads one YAML or JSON document.

    `source` names it in messages; `base_dir` is the folder that a `scriptFile`
    is relative to, None where files may not be read. Raises ManifestError.
    """
    tree = _manifest_of(read_document(text, source=source), source)
    if base_dir is not None:
        problems = [
            problem for path, model in _models(tree) for problem in _inline_script(path, model, base_dir)
        ]
        if problems:
            raise ManifestError(problems, source=source)
    return parse_object(tree, source=source)


def parse_object(tree: Mapping[str, Any], *, source: str = "") -> AgentRun:
    """An object that is parsed already (from the API server, say). Raises ManifestError."""
    manifest = _manifest_of(tree, source)
    manifest.pop("status", None)
    if problems := list(tree_problems(manifest)):
        raise ManifestError(problems, source=source)
    run = validate(AgentRun, manifest, source=source)
    size_bytes = len(definition_bytes(run))
    if size_bytes > DEFINITION_BYTES_MAX:
        message = f"must be at most {DEFINITION_BYTES_MAX} bytes with its scripts, and has {size_bytes}"
        raise ManifestError([Problem("spec", message)], source=source)
    return run


def _manifest_of(tree: object, source: str) -> dict[str, Any]:
    """The tree, if it is a manifest of ours at all: with anything else, further problems would be noise."""
    if not isinstance(tree, Mapping):
        message = f"must be a mapping with apiVersion, kind, metadata and spec, not {show(tree)}"
        raise ManifestError([Problem("", message)], source=source)
    problems = []
    for field, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        if tree.get(field) is None:
            problems.append(Problem(field, f"is required; it must be '{wanted}'"))
        elif tree[field] != wanted:
            problems.append(Problem(field, f"must be '{wanted}', not {show(tree[field])}"))
    if problems:
        raise ManifestError(problems, source=source)
    return dict(tree)


def _models(tree: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The models of a manifest that is not validated yet, so anything may be anything."""
    spec = _dict(tree.get("spec"))
    agents = [("spec.agent", spec.get("agent"))]
    agents += [(f"spec.agents[{index}]", agent) for index, agent in enumerate(_list(spec.get("agents")))]
    for path, agent in agents:
        model = _dict(_dict(agent).get("model"))
        yield f"{path}.model", model
        for index, fallback in enumerate(_list(model.get("fallbacks"))):
            yield f"{path}.model.fallbacks[{index}]", _dict(fallback)


def _inline_script(path: str, model: dict[str, Any], base_dir: Path) -> Iterator[Problem]:
    """Puts the script in place of the name of its file, or says why not."""
    name = model.get("scriptFile")
    if not isinstance(name, str):
        return
    field = f"{path}.scriptFile"
    if model.get("script") is not None:
        yield Problem(path, "must have at most one of script and scriptFile; it has both")
        return
    try:
        model["script"] = read_document(_read_beside(name, base_dir), source="")
    except ManifestError as error:
        yield Problem(field, f"{show(name)}: {error.problems[0]}")
    except OSError as error:
        yield Problem(field, f"{show(name)} cannot be read: {error.strerror or 'not a good name'}")
    except ValueError as error:
        yield Problem(field, str(error))
    else:
        del model["scriptFile"]


def _read_beside(name: str, base_dir: Path) -> bytes:
    # A manifest may come from anybody: it reaches its own folder, and no other file of its reader.
    folder = base_dir.resolve()
    file = (folder / name).resolve()
    if Path(name).is_absolute() or not file.is_relative_to(folder):
        raise ValueError(f"must be a file in the manifest's folder or below, not {show(name)}")
    if file.exists() and not file.is_file():
        raise ValueError(f"must be a file, and {show(name)} is none")
    with file.open("rb") as stream:
        data = stream.read(SCRIPT_BYTES_MAX + 1)
    if len(data) > SCRIPT_BYTES_MAX:
        raise ValueError(f"must name a file of at most {SCRIPT_BYTES_MAX} bytes, and {show(name)} has more")
    return data


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
