"""Calls that wait for a person, over HTTP.

Who calls: the app. What holds: the first answer to a call stands, and whoever gives another one is
told so; the answer names who gave it, as the token says.
"""

from __future__ import annotations

import json
from typing import Any

from fastapi import APIRouter, Request

from agentrun.local.answering import Call, NotWaiting, calls_waiting, check_arguments, give
from agentrun.local.errors import LocalError
from agentrun.local.reading import payload, read_log
from agentrun.local.records import moment
from agentrun.log.asks import ARGUMENTS_BYTES_MAX, answer_row, answered
from agentrun.log.errors import LogError
from agentrun.log.store import RunInfo
from agentrun.proto import log_pb2 as pb
from agentrun_api.access import Caller, Verb
from agentrun_api.problems import FieldProblem, Problem, ProblemDetails
from agentrun_api.services import Services, find_run, services_of
from agentrun_api.shapes import Answer, Approval, ApprovalList, Given

router = APIRouter(tags=["approvals"])

_CONFLICT: dict[int | str, dict[str, Any]] = {
    409: {"model": ProblemDetails, "description": "Nothing waits under that id, or another answer stands."}
}


@router.get("/v1/runs/{run_id}/approvals", summary="What waits for a person", response_model=ApprovalList)
async def waiting(request: Request, caller: Caller, run_id: str) -> ApprovalList:
    """Calls of the run that are not made before somebody approves of them."""
    services = services_of(request)
    info = await find_run(services, run_id)
    await caller.require_run(Verb.GET, info.run)
    log = await read_log(services.store, info)
    calls = await calls_waiting(services.store, info, log.history, _reader(services, info))
    return ApprovalList(approvals=[_shown(call) for call in calls])


@router.post(
    "/v1/runs/{run_id}/approvals",
    summary="Approve or deny a call",
    response_model=Given,
    responses=_CONFLICT,
)
async def answer(request: Request, caller: Caller, run_id: str, body: Answer) -> Given:
    """The same answer again changes nothing."""
    services = services_of(request)
    info = await find_run(services, run_id)
    await caller.require_run(Verb.PATCH, info.run)
    arguments = "" if body.arguments is None else json.dumps(body.arguments, ensure_ascii=False)
    row = answer_row(
        body.id, approve=body.approve, by=caller.who.name, reason=body.reason, arguments=arguments, via="API"
    )
    try:
        if arguments:
            check_arguments(arguments, ARGUMENTS_BYTES_MAX)
        given = await give(services.store, info, (await read_log(services.store, info)).history, row)
    except NotWaiting as error:
        raise Problem(409, "NotWaiting", str(error)) from error
    except LocalError as error:
        wrong = FieldProblem(field="body.arguments", detail=str(error).removeprefix("--arguments: "))
        raise Problem(422, "Invalid", "the request is not valid", errors=[wrong]) from error
    _, stands, _ = answered(given.row)
    approved = stands.decision == pb.DECISION_APPROVE
    if not given.ours:
        said = "approved" if approved else "denied"
        raise Problem(409, "Answered", f"{stands.by} has {said} it before: that stands")
    return Given(
        id=body.id,
        tool=given.what,
        approved=approved,
        by=stands.by,
        reason=stands.reason,
        first=given.first,
    )


def _reader(services: Services, info: RunInfo) -> Any:
    async def read(output: pb.Payload) -> bytes | None:
        try:
            return await payload(services.store, info, output)
        except LogError:
            return None

    return read


def _shown(call: Call) -> Approval:
    ask = call.ask
    return Approval(
        id=ask.id,
        node=ask.node_id,
        reason=ask.reason,
        tool=ask.what,
        arguments=call.arguments,
        since=moment(ask.since_us),
        answered=call.answer is not None,
    )
