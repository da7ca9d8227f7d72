"""From a run's row to what its executor runs: texts read once, secrets from the environment.

Who calls: `main`, before the claim, so that what cannot start says so and leaves the
log as it was. What holds: the texts that the first reader has stored are what runs,
whatever became of the ConfigMaps since; a secret's value goes nowhere but into the
program.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from agentrun.agent import Program, SetupError, prepare
from agentrun.log.appender import retried
from agentrun.log.clock import Clock
from agentrun.log.errors import Fenced
from agentrun.log.store import LogStore, RunInfo
from agentrun.pod.ending import CannotStart
from agentrun.spec.definition import definition_bytes, definition_from_bytes
from agentrun.spec.errors import ManifestError
from agentrun.spec.metadata import ObjectMeta
from agentrun.spec.run import API_VERSION, KIND, AgentRun, AgentRunSpec
from agentrun.spec.secrets import resolve_secrets
from agentrun.spec.texts import resolve_texts


async def load(
    store: LogStore,
    info: RunInfo,
    config_dir: Path | None,
    *,
    hide: Callable[[Iterable[str]], None],
    hidden: Iterable[str] = (),
    environ: Mapping[str, str] = os.environ,
) -> Program:
    """The program of a run. `hide` is told the secrets before anything uses them; `hidden` are those
    that it knows already.

    Raises CannotStart; Fenced where the run is gone; StoreUnavailable.
    """
    try:
        spec = await _spec(store, info, config_dir)
    except ManifestError as error:
        raise CannotStart("InvalidDefinition", str(error)) from error
    try:
        secrets = resolve_secrets(spec, environ, source="this pod")
    except ManifestError as error:
        raise CannotStart("SecretMissing", str(error)) from error
    hide(secrets.values())
    try:
        return prepare(spec, secrets, hidden=hidden, config_dir=config_dir)
    except SetupError as error:
        raise CannotStart("CannotStart", str(error)) from error


async def _spec(store: LogStore, info: RunInfo, config_dir: Path | None) -> AgentRunSpec:
    spec = definition_from_bytes(info.run.definition)
    if not _names_texts(spec):
        return spec
    run_id = info.run.run_id
    standing = await retried(lambda: store.resolve(run_id, None), Clock())
    if standing is None:
        try:
            resolved = _definition_of(resolve_texts(spec, config_dir, source="this pod"))
        except ManifestError as error:
            raise CannotStart("TextMissing", str(error)) from error
        standing = await retried(lambda: store.resolve(run_id, resolved), Clock())
    if standing is None:
        raise Fenced(run_id, "there is no such run any more")
    return definition_from_bytes(standing)


def _names_texts(spec: AgentRunSpec) -> bool:
    return spec.prompt_from is not None or any(
        agent.instructions_from is not None for _, agent in spec.all_agents()
    )


def _definition_of(spec: AgentRunSpec) -> bytes:
    metadata = ObjectMeta(name="any")  # no part of a definition
    return definition_bytes(AgentRun(api_version=API_VERSION, kind=KIND, metadata=metadata, spec=spec))
