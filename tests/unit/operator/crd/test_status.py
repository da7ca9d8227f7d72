"""Status is small whatever goes in, and its patch says what changed and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from pydantic import ValidationError

from agentrun.log.summary import Phase
from agentrun_operator.crd_status import (
    AmountStatus,
    BudgetStatus,
    Condition,
    ConditionStatus,
    ConditionType,
    PodStatus,
    RunStatus,
    TokensStatus,
    clip,
    status_patch,
)

NOON = datetime(2027, 1, 31, 12, 0, 0, 999999, tzinfo=UTC)


def condition(**changes: Any) -> Condition:
    fields: dict[str, Any] = {
        "type": ConditionType.RECONCILING,
        "status": ConditionStatus.TRUE,
        "reason": "Running",
        "last_transition_time": NOON,
    }
    return Condition(**fields | changes)


@pytest.mark.parametrize(
    ("text", "clipped"),
    [
        ("", ""),
        ("short", "short"),
        ("a" * 1024, "a" * 1024),
        ("a" * 1025, "a" * 1021 + "…"),
        ("é" * 600, "é" * 510 + "…"),
        ("nul\0 and half \ud800", "nul? and half ?"),
    ],
)
def test_texts_are_cut_to_a_kilobyte_and_always_sendable(text: str, clipped: str) -> None:
    assert clip(text) == clipped
    assert RunStatus(message=text).message == clipped
    assert len(clip(text).encode()) <= 1024


def test_times_are_whole_seconds_in_utc() -> None:
    there = NOON.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert RunStatus(start_time=there).to_dict()["startTime"] == "2027-01-31T12:00:00Z"


def test_absent_fields_are_left_out_and_names_are_kubernetes_own() -> None:
    status = RunStatus(run_id="x", phase=Phase.PENDING, pod=PodStatus(name="p", node_name="n"))
    assert status.to_dict() == {
        "runID": "x",
        "phase": "Pending",
        "pod": {"name": "p", "nodeName": "n"},
        "conditions": [],
    }


def test_a_reason_is_one_word() -> None:
    with pytest.raises(ValidationError):
        RunStatus(reason="two words")
    with pytest.raises(ValidationError):
        condition(reason="")


def test_an_unchanged_status_has_no_patch() -> None:
    status = RunStatus(phase=Phase.RUNNING, attempt=1, conditions=(condition(),))
    assert status_patch(status.to_dict(), status) == {}


def test_a_patch_removes_what_is_gone_and_sets_what_is_new() -> None:
    def budget(used: int, limit: int | None) -> BudgetStatus:
        amount = AmountStatus(used=0)
        return BudgetStatus(
            tokens=TokensStatus(used=used, limit=limit), wall_seconds=amount, turns=amount, retries=amount
        )

    before = RunStatus(
        phase=Phase.RUNNING, pod=PodStatus(name="p"), budget=budget(1, 9), conditions=(condition(),)
    )
    after = RunStatus(phase=Phase.PAUSED, budget=budget(2, None), conditions=(condition(reason="Parked"),))
    assert status_patch(before.to_dict(), after) == {
        "phase": "Paused",
        "pod": None,
        "budget": {"tokens": {"used": 2, "limit": None}},
        "conditions": after.to_dict()["conditions"],
    }
