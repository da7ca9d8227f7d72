"""What a graph is made of: node kinds, what they get, what they give.

Who uses it: everything that defines nodes (the agent loop, people's programs). A
node kind is a function from a `NodeContext` to a `NodeResult`; the executor calls
it, records the result, and runs the successors that it names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Protocol
from uuid import UUID

from agentrun.log.asks import Waiting
from agentrun.log.final import bounded
from agentrun.log.store import InboxRow
from agentrun.log.text import safe_text
from agentrun.proto import log_pb2 as pb

PROTOBUF, JSON, TEXT = "application/x-protobuf", "application/json", "text/plain"

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_OF_THE_LOG = re.compile(r"attempt-\d+\.\d+|(end|reopened)\.\d+")
_PATH_MAX = 96
"""A name made of ordinals that is longer goes on from its hash."""


@dataclass(frozen=True, kw_only=True)
class Spawned:
    """A successor. `name` is unique in its graph and the same after every replay;
    without one it is the spawning node's and an ordinal. `parents` are names of
    nodes of the same graph; none: the spawning node."""

    kind: str
    input: bytes = b""
    media_type: str = PROTOBUF
    name: str = ""
    parents: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What a node has used beside time. Tokens as in `agentrun.v1.Cost`."""

    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    tokens_reasoning: int = 0
    estimated: bool = False


@dataclass(frozen=True, kw_only=True)
class NodeResult:
    """What a node produced. `final` ends the run with this record; only for nodes of the
    run's own graph. `attachments` (inline) belong to the output and are kept beside it."""

    output: bytes = b""
    media_type: str = PROTOBUF
    spawned: Sequence[Spawned] = ()
    usage: Usage = field(default_factory=Usage)
    final: pb.Final | None = None
    consumed: Sequence[str] = ()
    attachments: Sequence[pb.Payload] = ()


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a person is asked. `reason` is CamelCase and tells what waits, `what` names its subject,
    `detail` is what anybody may see of it; `key` tells the questions of one node apart."""

    reason: str
    what: str
    detail: str = ""
    key: str = ""


class NodeContext(Protocol):
    """What a node is given."""

    run_id: UUID
    node_id: str
    """The node's id in the log: the ids of the graphs around it, then its name."""
    name: str
    input: bytes
    try_number: int
    """1 for the first try."""
    interrupted: bool
    """An intent of an earlier try stands, and its outcome is not known."""
    memo: bytes
    """What the newest failed try has left for this one (`NodeError.memo`)."""
    failed: str
    """The reason of the newest failed try; "" for none."""

    async def output(self, name: str) -> bytes:
        """The output of a finished node of the same graph."""

    async def attachment(self, name: str, media_type: str) -> bytes | None:
        """The first attachment of that type of a finished node of the same graph; None: it has none."""

    def is_done(self, name: str) -> bool:
        """A node of the same graph is finished."""

    def outputs(self, kind: str) -> Sequence[str]:
        """Names of the finished nodes of a kind in the same graph, in the order of the log."""

    async def reserve(self, tokens: int) -> None:
        """Waits until a call of at most so many tokens fits the budget."""

    async def wait(self, seconds: float) -> None:
        """Waits, as one that is not running and has reserved nothing. NotLaunched as soon as nothing
        more is launched."""

    async def confirm(self) -> None:
        """Returns when this process may call out. Await it as the last step before each call."""

    def partial(self, kind: str, text: str) -> None:
        """Shows whoever watches a piece of the result that is on its way. It is not in the log, may be
        lost, and is taken back where the try fails."""

    async def intend(self) -> None:
        """Makes durable that a call is about to be made. Again in the same try: nothing."""

    async def ask(self, question: Question) -> InboxRow:
        """A person's answer. Without one the try is over, and the node runs again when there is
        one: ask before anything is done. What the try records names the answer as used."""

    async def subgraph(self, root: Spawned) -> bytes:
        """Runs a graph of its own below this node, to its end; its last output. One a node."""


Handler = Callable[[NodeContext], Awaitable[NodeResult]]


@dataclass(frozen=True, kw_only=True)
class NodeKind:
    """How to run nodes of a kind. `free`: costs nothing, and runs whatever the budget
    says. `turn`: counts as a model turn. `timeout_seconds`: 0: none."""

    name: str
    run: Handler
    free: bool = False
    turn: bool = False
    timeout_seconds: float = 0.0


class NodeError(Exception):
    """A try that failed. `usage` is what it has cost all the same.

    Retryable: another try is drawn from the run's one budget, after at least
    `retry_after_seconds`; `at_once` where nothing is won by waiting longer than that.
    `memo` is in the try's record, and is what the next try is told. Not retryable:
    the run ends as Failed with `reason`.
    `parks_after`: after each so many tries (0: never), and where no retry is left, the run
    parks with `reason`; when it is resumed, further tries are drawn.
    """

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        retryable: bool,
        retry_after_seconds: float | None = None,
        usage: Usage | None = None,
        parks_after: int = 0,
        memo: bytes = b"",
        at_once: bool = False,
    ) -> None:
        self.reason = bounded(str(reason))
        self.message = safe_text(str(message))
        super().__init__(f"{self.reason}: {self.message}")
        self.retryable = bool(retryable)
        self.retry_after_seconds = _seconds(retry_after_seconds)
        self.usage = usage or Usage()
        self.memo = bytes(memo)
        self.at_once = at_once
        self.parks_after = parks_after

    def parks(self, try_number: int, *, retry_left: bool) -> bool:
        """The run parks now that so many tries have failed."""
        if not self.retryable or self.parks_after <= 0:
            return False
        return try_number % self.parks_after == 0 or not retry_left


def _seconds(value: object) -> float | None:
    """What somebody's server has asked for; None for what is no number."""
    try:
        seconds = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return None if math.isnan(seconds) else seconds


class LimitReached(Exception):
    """A limit of the budget stands in the way of a launch. `limit` names it, `message` has figures."""

    def __init__(self, limit: str, message: str) -> None:
        super().__init__(message)
        self.limit = limit
        self.message = message


class Parked(Exception):
    """The node waits for a person's answer; its try leaves nothing behind but the question."""

    def __init__(self, ask: Waiting) -> None:
        super().__init__(f"{ask.id} waits for an answer")
        self.ask = ask


class NotLaunched(Exception):
    """The executor stops launching; the node was not begun, and runs after a resume."""


def scope_of(node_id: str) -> str:
    """The ids of the graphs around a node, with the last "/": "" for a node of the run itself."""
    return node_id[: node_id.rfind("/") + 1]


def to_spawn(spawned: Spawned, spawner: str, ordinal: int) -> pb.Spawn:
    """The record's form of a successor of node `spawner`; ValueError for a bad name."""
    scope = scope_of(spawner)
    path = spawner[len(scope) :]
    if not spawned.name and len(path) > _PATH_MAX:
        path = sha256(path.encode()).hexdigest()[:32]
    spawn = to_root(spawned, scope, name=f"{path}.{ordinal}")
    spawn.parents.extend([scope + _named(parent) for parent in spawned.parents] or [spawner])
    return spawn


def to_root(root: Spawned, scope: str, *, name: str = "root") -> pb.Spawn:
    """The first node of a graph: it waits for nothing. `name`: where it has none of its own."""
    payload = pb.Payload(inline=root.input, media_type=root.media_type)
    return pb.Spawn(id=scope + _named(root.name or name), kind=root.kind, input=payload)


def _named(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no node name: letters, digits, '_', '.' and '-', at most 128")
    if _OF_THE_LOG.fullmatch(name):
        raise ValueError(f"{name!r} is no node name: the log's own records are named like this")
    return name
