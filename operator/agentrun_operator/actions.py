"""What a plan may ask for. Each action says itself what must hold for it to be done.

Who calls: `plan` makes them, `apply` does them in their order and stops at the first
that finds the world changed.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentrun.log.store import Levels
from agentrun.log.summary import Phase
from agentrun_operator.answers import Said
from agentrun_operator.endings import Ending


@dataclass(frozen=True, kw_only=True)
class CreateRun:
    """Insert the run with the object's definition and levels."""


@dataclass(frozen=True, kw_only=True)
class Adopt:
    """Give the run, whose owner was `owner`, to the object."""

    owner: str


@dataclass(frozen=True, kw_only=True)
class SetLevels:
    """Write the levels, and wake whoever runs the run."""

    levels: Levels


@dataclass(frozen=True, kw_only=True)
class PostAnswer:
    """Put into the inbox what an annotation says, unless somebody has answered before."""

    said: Said


@dataclass(frozen=True, kw_only=True)
class StartAttempt:
    """Allocate the attempt behind `expected`, and make its pod."""

    expected: int


@dataclass(frozen=True, kw_only=True)
class MakePod:
    """Make the pod of an attempt whose pod was refused before."""

    attempt: int


@dataclass(frozen=True, kw_only=True)
class CloseAttempt:
    """Write how an attempt ended, if nothing is written yet."""

    attempt: int
    ending: Ending


@dataclass(frozen=True, kw_only=True)
class DeletePod:
    """Delete that very pod. `grace` in seconds; None: the pod's own."""

    name: str
    uid: str
    grace: int | None = None


@dataclass(frozen=True, kw_only=True)
class EndRun:
    """Claim the run with an attempt behind `expected`, and append the final record."""

    expected: int
    phase: Phase
    reason: str
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class Reopen:
    """Let a failed run go on, unless its log says that this token did so before."""

    token: str


@dataclass(frozen=True, kw_only=True)
class DeleteObject:
    """Delete that very object: its time is over."""

    uid: str


Action = (
    CreateRun
    | Adopt
    | SetLevels
    | PostAnswer
    | StartAttempt
    | MakePod
    | CloseAttempt
    | DeletePod
    | EndRun
    | Reopen
    | DeleteObject
)


@dataclass(frozen=True, kw_only=True)
class Step:
    """What is to be done now, and where the run stands.

    `again`: look again at once after the actions; nothing is told to people before. `requeue`:
    seconds until it is worth looking again without a cause. `silent`: nothing is told at all.
    `asking`: what a live runner is being asked for. `rolling`: its pod goes for a new image.
    """

    phase: Phase = Phase.PENDING
    reason: str = ""
    message: str = ""
    actions: tuple[Action, ...] = ()
    again: bool = False
    requeue: float | None = None
    silent: bool = False
    asking: str = ""
    rolling: bool = False
    stalled: bool = False
    disrupted: str = ""
    over_budget: bool = False
