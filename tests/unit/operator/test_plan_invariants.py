"""What holds for every observation, tried on many that are put together at random."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from agentrun.log.store import AttemptOutcome, AttemptRow
from agentrun.log.summary import Phase
from agentrun_operator.actions import CloseAttempt, DeletePod, EndRun, MakePod, StartAttempt
from agentrun_operator.facts import Memory, Observation, RunObject
from agentrun_operator.plan import plan
from agentrun_operator.pods import Node, Pod
from agentrun_operator.settings import Times
from agentrun_operator.waits import lost_in
from tests.unit.operator.builders import SETTINGS, ago, attempt, found, observed, pod, refused

ROUNDS = 1500
REASONS = [
    "",
    "Suspended",
    "Terminated",
    "BudgetExceeded: 9 of 9 turns are used",
    "Fenced",
    "OOMKilled",
    "NeverStarted",
    "StoreUnavailable",
    "ToolServerUnavailable",
    "CorruptLog: a hole",
    "ApprovalRequired",
    "CannotStart: no",
]


def random_object(rng: random.Random) -> RunObject:
    spec: dict[str, Any] = {
        "suspend": rng.random() < 0.25,
        "podRetentionPolicy": rng.choice(["OnFailure", "Always", "Never"]),
        "budget": {"retries": rng.choice([0, 1, 10]), "onExceeded": rng.choice(["Pause", "Fail"])},
    }
    if rng.random() < 0.2:
        spec["shutdown"] = rng.choice(["Stop", "Terminate"])
    if rng.random() < 0.2:
        spec["retryToken"] = rng.choice(["a", "b"])
    for field in ("startDeadlineSeconds", "completionDeadlineSeconds"):
        if rng.random() < 0.2:
            spec[field] = rng.choice([1, 10_000])
    if rng.random() < 0.2:
        spec["ttlSecondsAfterFinished"] = rng.choice([0, 10_000])
    status: dict[str, Any] = rng.choice(
        [{}, {"phase": "Running", "disruptions": 1}, {"phase": "Failed", "observedRetryToken": "a"}]
    )
    metadata = {"deletionTimestamp": "2026-11-30T12:00:00Z"} if rng.random() < 0.1 else {}
    return found(status=status, metadata=metadata, **spec)


def random_attempts(rng: random.Random) -> tuple[AttemptRow, ...]:
    rows = [
        attempt(
            number,
            rng.choice(list(AttemptOutcome)),
            rng.choice(REASONS),
            claimed=rng.random() < 0.7,
            started=rng.choice([700, 10]),
            ended=rng.choice([600, 5]),
            ends=rng.random() < 0.1,
        )
        for number in range(1, rng.randint(0, 4) + 1)
    ]
    if rows and rng.random() < 0.6:
        last = rows[-1]
        rows[-1] = replace(
            last,
            outcome=None,
            reason="",
            ended_at=None,
            confirmed_age_seconds=rng.choice([1.0, 40.0, 400.0]),
        )
    return tuple(rows)


def random_pod(rng: random.Random) -> Pod | None:
    shape = rng.randrange(6)
    evicted = rng.choice([None, None, 3.0, 200.0])
    if shape == 0:
        return None
    if shape == 1:
        return pod(
            phase="Pending", waiting=rng.choice([("ImagePullBackOff", "x"), ("ContainerCreating", "")])
        )
    if shape == 2:
        return pod(phase="Failed", reason="Evicted")
    if shape == 3:
        return pod(
            phase=rng.choice(["Running", "Failed", "Succeeded"]),
            exit_code=rng.choice([0, 1, 2, 75, 76, 137]),
            evicted=evicted,
        )
    return pod(evicted=evicted)


def random_observation(rng: random.Random) -> Observation:
    attempts = random_attempts(rng)
    memory = Memory(
        identity="me",
        made_pod_of=rng.choice([0, 9]),
        asked=(rng.choice(["", "Suspend", "Stop", "Deadline", "Delete"]), rng.choice([0.0, 100.0])),
        rollout_room=rng.random() < 0.3,
    )
    if attempts and rng.random() < 0.1:
        memory = refused(attempts[-1].attempt, retry_in=rng.choice([-1.0, 5.0]))
    o = observed(
        random_object(rng),
        attempts=attempts,
        attempt_number=(attempts[-1].attempt if attempts else 0) + (rng.random() < 0.1),
        ended=rng.choice([None, None, None, Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED]),
        ended_ago=rng.choice([1, 60]),
        memory=memory,
        gone=rng.random() < 0.15,
        pod=random_pod(rng),
        node=rng.choice([None, None, Node(name="node-1", ready=False, since=ago(rng.choice([1, 500])))]),
        outdated=rng.random() < 0.2,
        input_waits=rng.random() < 0.2,
        summary=rng.choice([{}, {"phase": "Failed", "attempt": 1, "budget": {"retries": 3}}]),
    )
    if rng.random() < 0.1:
        o = replace(o, store_problem="away", info=None, attempts=(), final=None)
    return o


def is_lost(o: Observation, times: Times) -> bool:
    if o.last is None:
        return False
    left = lost_in(o, o.last, times)
    return left is not None and left <= 0


@pytest.mark.parametrize("seed", range(4))
def test_no_plan_ever_breaks_a_rule(seed: int) -> None:
    rng = random.Random(seed)
    for number in range(ROUNDS):
        o = random_observation(rng)
        said = f"seed {seed}, round {number}: {o}"
        made = plan(o, SETTINGS)
        assert plan(o, SETTINGS) == made, said
        kinds = [type(action) for action in made.actions]
        if o.store_problem:
            assert not kinds, said
        ended = o.info is not None and o.info.run.ended
        if ended or o.object is None or o.object.deleting:
            assert StartAttempt not in kinds and MakePod not in kinds, said
        if ended:
            assert EndRun not in kinds, said
            if made.status is not None and o.final is not None:
                assert made.status.phase is o.final.phase, said
        if StartAttempt in kinds or EndRun in kinds:
            assert StartAttempt not in kinds or EndRun not in kinds, said
            last = o.last
            assert last is None or last.outcome is not None, said  # what became of it is written
            claimed = last is not None and last.claimed
            free = o.pod is None or o.pod.runner_ended or is_lost(o, SETTINGS.times) or not claimed
            assert free, said  # never two that can both append
        for action in made.actions:
            if isinstance(action, CloseAttempt):
                assert o.last is not None and o.last.outcome is None, said
            if isinstance(action, DeletePod):
                assert o.pod is not None and not o.pod.terminating, said
        if made.step.again:
            assert made.actions and made.status is None, said
        if made.status is not None:
            made.status.to_dict()
            assert len(made.events) <= 3, said


def test_what_is_started_again_comes_to_rest() -> None:
    """A plan that asks to look again does so for a reason that its own actions take away."""
    rng = random.Random(99)
    for _ in range(500):
        o = random_observation(rng)
        made = plan(o, SETTINGS)
        if not made.step.again:
            continue
        for action in made.actions:
            if isinstance(action, CloseAttempt):
                rows = tuple(
                    replace(
                        row,
                        outcome=action.ending.outcome,
                        reason=action.ending.note,
                        ended_at=o.now,
                    )
                    if row.attempt == action.attempt
                    else row
                    for row in o.attempts
                )
                after = plan(replace(o, attempts=rows), SETTINGS)
                assert not any(isinstance(other, CloseAttempt) for other in after.actions)
