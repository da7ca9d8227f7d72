"""Finding runs, making them, and getting an attempt of one.

Who calls: the command. What holds: a run that is there already is gone on with only
where the same definition is meant; an attempt is allocated by a compare-and-set on the
attempt's number, and where that fails all is decided again on what is read then.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from agentrun.local.errors import HeldElsewhere, NoSuchRun, NotOurs
from agentrun.local.holders import Holder, holder
from agentrun.local.levels import first_levels
from agentrun.local.process import Process, this_machine
from agentrun.log.appender import retried
from agentrun.log.clock import Clock
from agentrun.log.store import LogStore, RunInfo, RunRow

if TYPE_CHECKING:  # its models take a third of a second to import, and listing runs needs none
    from agentrun.spec import AgentRun, AgentRunSpec

    Texts = Callable[[AgentRunSpec], AgentRunSpec]

OWNER_PREFIX = "local/"
"""Runs of the command; every other owner steers its runs itself."""

PREFIX_LENGTH_MIN = 4
SEARCHED_RUNS_MAX = 1000
"""A prefix is looked for among so many of the newest runs."""

AWAY_SECONDS_MAX = 10.0
"""How long the store may be away while an attempt is allocated."""

ROUNDS_MAX = 20
"""How often a decision is made again because somebody else was quicker."""


def new_run_id() -> UUID:
    """Ordered by time where the standard library has such ids (Python 3.14)."""
    make = getattr(uuid, "uuid7", uuid.uuid4)
    made: UUID = make()
    return made


async def find_run(store: LogStore, name: str) -> RunInfo:
    """The run with that id, or the only one whose id begins so. Raises NoSuchRun."""
    text = name.lower()
    if re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", text):
        info = await store.get_run(UUID(text))
        if info is None:
            raise no_such_run(name)
        return info
    check_prefix(name)
    runs = await store.list_runs(limit=SEARCHED_RUNS_MAX)
    found = [info for info in runs if str(info.run.run_id).startswith(text)]
    if not found:
        among = f" among the newest {SEARCHED_RUNS_MAX}" if len(runs) == SEARCHED_RUNS_MAX else ""
        raise NoSuchRun(f"no run{among} has an id that begins with {name!r}")
    if len(found) > 1:
        ids = ", ".join(str(info.run.run_id) for info in found[:3]) + (", …" if len(found) > 3 else "")
        raise NoSuchRun(f"{len(found)} runs have an id that begins with {name!r}: {ids}")
    return found[0]


def no_such_run(name: str) -> NoSuchRun:
    """The error for an id that no run has."""
    return NoSuchRun(f"there is no run {name}")


def check_prefix(name: str) -> None:
    """NoSuchRun for what cannot be the beginning of an id."""
    if not re.fullmatch(r"[0-9A-Fa-f-]{1,36}", name):
        raise NoSuchRun(f"{name[:60]!r} is not a run's id, nor its beginning")
    if len(name) < PREFIX_LENGTH_MIN:
        raise NoSuchRun(f"{name!r} is too short: give at least {PREFIX_LENGTH_MIN} characters of the id")


def require_ours(info: RunInfo) -> None:
    """NotOurs for a run that an object in a cluster steers."""
    if not info.run.owner.startswith(OWNER_PREFIX):
        raise NotOurs(f"run {info.run.run_id} belongs to {info.run.owner}: change it there")


async def make_run(store: LogStore, run_id: UUID, manifest: AgentRun) -> RunInfo:
    """The run of this manifest, made if it is not there. Raises NotOurs where it is another one."""
    from agentrun.spec import definition_digest, same_definition

    data = definition_of(manifest.spec)
    row = RunRow(
        run_id=run_id,
        owner=OWNER_PREFIX + (manifest.metadata.name or manifest.metadata.generate_name or "run"),
        name=manifest.metadata.name or manifest.metadata.generate_name or "run",
        definition=data,
        digest=definition_digest(data),
        levels=first_levels(manifest.spec),
    )
    made = await store.create_run(row)
    info = await store.get_run(run_id)
    if info is None:
        raise no_such_run(str(run_id))
    require_ours(info)
    if made or same_definition(info.run.definition, data):
        return info
    raise NotOurs(
        f"run {run_id} has another definition than this manifest: what runs cannot be changed "
        "(its budget, suspend and shutdown can); leave the id away to begin a new run"
    )


def definition_of(spec: AgentRunSpec) -> bytes:
    """The definition's bytes of a spec without its object."""
    from agentrun.spec import API_VERSION, KIND, AgentRun, ObjectMeta, definition_bytes

    metadata = ObjectMeta(name="any")  # no part of a definition
    return definition_bytes(AgentRun(api_version=API_VERSION, kind=KIND, metadata=metadata, spec=spec))


async def spec_of(store: LogStore, info: RunInfo, texts: Texts) -> AgentRunSpec:
    """The spec that runs: the stored definition, with its texts as they were first read.

    `texts` reads them; where another process has read them, what it read stands. Raises
    ManifestError.
    """
    from agentrun.spec import definition_from_bytes

    stored = info.run.definition
    spec = definition_from_bytes(stored)
    if not names_texts(spec):
        return spec
    # The texts are read with the run's making, so that only what died in between has to again.
    first = definition_of(texts(spec)) if info.run.attempt == 0 else stored
    standing = await store.resolve(info.run.run_id, first)
    if standing is None:
        raise no_such_run(str(info.run.run_id))
    return definition_from_bytes(standing)


def names_texts(spec: AgentRunSpec) -> bool:
    """Some of the spec's texts stand elsewhere."""
    if spec.prompt_from is not None:
        return True
    return any(agent.instructions_from is not None for _, agent in spec.all_agents())


def require_free(run_id: UUID, who: Holder) -> None:
    """HeldElsewhere where a live process runs the run."""
    if who.live:
        raise HeldElsewhere(f"run {run_id} is running: {who.describe()}; --take-over takes it from there")


@dataclass(frozen=True, kw_only=True)
class Allocated:
    """An attempt of ours; None: the run has ended."""

    info: RunInfo
    attempt: int | None


async def allocate(store: LogStore, run_id: UUID, process: Process, *, take_over: bool) -> Allocated:
    """An attempt of the run. Raises HeldElsewhere where a live process runs it and is to be left alone."""
    allocation = _Allocation(store, run_id, process, take_over)
    for _ in range(ROUNDS_MAX):
        made = await retried(allocation.round, Clock(), AWAY_SECONDS_MAX)
        if made is not None:
            return made
    raise HeldElsewhere(f"run {run_id}: other processes keep taking it")


class _Allocation:
    def __init__(self, store: LogStore, run_id: UUID, process: Process, take_over: bool) -> None:
        self._store = store
        self._run_id = run_id
        self._text = process.to_json()
        self._take_over = take_over
        self._machine = this_machine()
        self._tried = 0

    async def round(self) -> Allocated | None:
        """One decision on what is read; None: somebody was quicker. Safe to repeat from its start."""
        info = await self._store.get_run(self._run_id)
        if info is None:
            raise no_such_run(str(self._run_id))
        if info.run.ended:
            return Allocated(info=info, attempt=None)
        newest = info.last_attempt
        if newest is not None and newest.attempt == self._tried and newest.process == self._text:
            return Allocated(info=info, attempt=self._tried)  # only the answer was lost
        who = holder(newest, self._machine)
        if not self._take_over:
            require_free(self._run_id, who)
        self._tried = info.run.attempt + 1
        attempt = await self._store.allocate_attempt(
            self._run_id, expected=info.run.attempt, process=self._text, previous=who.ended_as
        )
        return None if attempt is None else Allocated(info=info, attempt=attempt)
