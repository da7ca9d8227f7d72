"""Answers in annotations: what they say, what of it is posted, and what people see of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from agentrun.log.asks import answer_row, read_answer
from agentrun.log.store import InboxRow
from agentrun.proto import log_pb2 as pb
from agentrun_operator.actions import PostAnswer, StartAttempt
from agentrun_operator.answers import Said, row_of, said_in
from agentrun_operator.facts import Observation
from agentrun_operator.plan import Plan, plan
from tests.unit.operator.builders import OUTCOME, SETTINGS, attempt, found, observed

ID, OTHER = "call-1-0-4f3a9c21", "call-1-0/call-2-1-07be55d0"


def annotated(**annotations: str) -> dict[str, Any]:
    return {"annotations": {f"agentrun.dev/{name}": text for name, text in annotations.items()}}


@pytest.mark.parametrize(
    ("annotations", "said"),
    [
        ({}, []),
        ({"approve": ID}, [(ID, True, "")]),
        ({"approve": f" {ID}, {OTHER}\n"}, [(ID, True, ""), (OTHER, True, "")]),
        ({"approve": f"{ID};{OTHER}"}, [(ID, True, ""), (OTHER, True, "")]),
        ({"approve": f"{ID}=fine"}, [(ID, True, "")]),
        ({"deny": ID}, [(ID, False, "")]),
        ({"deny": f"{ID}=too much, really; {OTHER}"}, [(ID, False, "too much, really"), (OTHER, False, "")]),
        ({"deny": f"{ID},{OTHER}=no = no"}, [(ID, False, "no = no"), (OTHER, False, "no = no")]),
        ({"approve": ID, "deny": ID}, [(ID, False, "")]),
        ({"approve": "; ,, =;\n"}, []),
        ({"approve": "<b>&é"}, []),
        ({"approve": "x" * 2000}, []),
    ],
)
def test_what_annotations_say(annotations: dict[str, str], said: list[tuple[str, bool, str]]) -> None:
    found_ = said_in(annotated(**annotations))
    assert [(one.id, one.approve, one.reason) for one in found_] == said


@pytest.mark.parametrize("annotations", [None, [], "x", {"agentrun.dev/approve": 7}])
def test_what_is_no_annotation_says_nothing(annotations: Any) -> None:
    assert said_in({"annotations": annotations}) == ()


def test_there_is_a_bound() -> None:
    assert len(said_in(annotated(approve=",".join(f"call-1-{k}-00000000" for k in range(500))))) == 100


def test_who_wrote_it_is_told_as_the_api_server_knows_it() -> None:
    fields: dict[str, Any] = {"f:metadata": {"f:annotations": {".": {}, "f:agentrun.dev/approve": {}}}}
    managers = [{"manager": "argocd", "fieldsV1": {}}, {"manager": "kubectl-annotate", "fieldsV1": fields}]
    (said,) = said_in({**annotated(approve=ID), "managedFields": managers})
    answer = read_answer(row_of(said, "demo/hello"))
    assert answer.by == "annotation agentrun.dev/approve on demo/hello (kubectl-annotate)"
    assert answer.decision == pb.DECISION_APPROVE


# --- plans


def summary(*ids: str) -> dict[str, Any]:
    calls = [{"id": id_, "tool": "pay", "reason": "ApprovalRequired", "arguments": '{"n": 1}'} for id_ in ids]
    return {"phase": "Paused", "message": "1 call waits", "waiting": {"count": len(ids), "calls": calls}}


def parked(
    *ids: str,
    said: Mapping[str, str] | None = None,
    rows: tuple[InboxRow, ...] = (),
    status: Mapping[str, Any] | None = None,
    **more: Any,
) -> Observation:
    return observed(
        found(metadata=annotated(**(said or {})), status=status or {}),
        attempts=(attempt(1, OUTCOME.PAUSED, "ApprovalRequired"),),
        summary=summary(*ids),
        asks=ids,
        answers=rows,
        **more,
    )


def made(o: Observation) -> Plan:
    return plan(o, SETTINGS)


def test_a_run_that_waits_for_a_person_is_paused_and_has_no_pod() -> None:
    found_ = made(parked(ID))
    assert (found_.step.phase, found_.step.reason, found_.actions) == ("Paused", "ApprovalRequired", ())
    assert found_.status is not None and found_.status.waiting is not None
    assert found_.status.message == "1 call waits"
    (call,) = found_.status.waiting.calls
    assert (found_.status.waiting.count, call.id, call.tool) == (1, ID, "pay")


def test_an_annotation_is_posted_where_its_call_waits() -> None:
    step = made(parked(ID, said={"approve": ID})).step
    assert step.actions == (PostAnswer(said=Said(id=ID, approve=True)),) and step.again


def test_an_answer_starts_the_run_again_whoever_gave_it() -> None:
    o = parked(ID, rows=(answer_row(ID, approve=True, by="ann"),), input_waits=True)
    (action,) = made(o).actions
    assert isinstance(action, StartAttempt)


def test_an_annotation_is_not_posted_twice_nor_over_what_somebody_has_said() -> None:
    o = parked(ID, said={"approve": ID}, rows=(answer_row(ID, approve=False, by="ann"),), input_waits=True)
    assert not [action for action in made(o).actions if isinstance(action, PostAnswer)]


def test_an_annotation_that_fits_no_call_is_told_and_does_nothing() -> None:
    found_ = made(parked(ID, said={"approve": "call-1-0"}))
    assert found_.actions == () and found_.status is not None
    message = "no call waits under the id that an annotation names: call-1-0; 1 call waits"
    assert found_.status.message == message


def test_a_live_run_is_answered_too() -> None:
    o = observed(
        found(metadata=annotated(deny=f"{ID}=no")), attempts=(attempt(1),), summary=summary(ID), asks=(ID,)
    )
    assert made(o).actions == (PostAnswer(said=Said(id=ID, approve=False, reason="no")),)


def test_what_waits_is_told_once_and_what_was_said_once() -> None:
    first = made(parked(ID, OTHER))
    assert [(told.type, told.reason) for told in first.events] == [("Warning", "ApprovalRequired")]
    assert first.events[0].message == f'{ID} pay({{"n": 1}}); {OTHER} pay({{"n": 1}})'
    assert first.status is not None
    status = first.status.to_dict()
    assert made(parked(ID, OTHER, status=status)).events == ()
    rows = (answer_row(ID, approve=False, by="ann", reason="too much"),)
    second = made(parked(ID, OTHER, status=status, rows=rows))
    assert [(told.reason, told.message) for told in second.events] == [
        ("Denied", f"{ID} pay by ann: too much")
    ]
    assert second.status is not None and second.status.waiting is not None
    assert [call.id for call in second.status.waiting.calls] == [OTHER]
    assert made(parked(ID, OTHER, status=second.status.to_dict(), rows=rows)).events == ()


def test_the_status_is_bounded() -> None:
    o = parked(*(f"call-1-{k}-00000000" for k in range(10)))
    counted = {**o.summary["waiting"], "count": 5000}
    status = made(observed(o.object, attempts=o.attempts, summary={**o.summary, "waiting": counted})).status
    assert status is not None and status.waiting is not None
    assert (status.waiting.count, len(status.waiting.calls)) == (5000, 10)


@pytest.mark.parametrize("waiting", [None, 7, {"count": 1}, {"count": "x", "calls": [7]}, {"calls": {}}])
def test_a_projection_of_another_form_shows_nothing(waiting: Any) -> None:
    rows = (attempt(1, OUTCOME.PAUSED, "ApprovalRequired"),)
    status = made(observed(attempts=rows, summary={"waiting": waiting})).status
    assert status is not None and status.waiting is None
