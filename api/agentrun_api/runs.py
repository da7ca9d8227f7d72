"""Runs over HTTP: to begin them, to list and look at them, and to say what is wanted of them.

Who calls: the app. What holds: a manifest is checked whole before anything is begun, and each
field that is wrong is named; what is steered are levels, so a request that is repeated changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response

from agentrun.local.reading import read_answer, read_log
from agentrun.log.store import LogStore, RunInfo
from agentrun.log.summary import Phase
from agentrun.spec import AgentRun, ManifestError, load_manifest
from agentrun_api.access import ALL_NAMESPACES, Authorized, Caller, Verb
from agentrun_api.executor import Signal, StartRefused
from agentrun_api.pages import Page, read_token
from agentrun_api.problems import FieldProblem, Problem, ProblemDetails
from agentrun_api.services import Services, find_run, services_of
from agentrun_api.shapes import AnswerView, Cancel, Resume, RunList, RunView
from agentrun_api.views import run_entry, run_view

router = APIRouter(tags=["runs"])

LIMIT_MAX = 500
SCANNED_MAX = 2000
"""Runs that one page of a filtered list looks at; fewer may match."""

_CONFLICT: dict[int | str, dict[str, Any]] = {
    409: {"model": ProblemDetails, "description": "It cannot be done as the run stands."}
}
_MANIFEST = {
    "required": True,
    "description": "An AgentRun (docs/manifest.md).",
    "content": {
        "application/json": {"schema": {"type": "object"}},
        "application/yaml": {"schema": {"type": "string"}},
    },
}


@router.post(
    "/v1/runs",
    summary="Begin a run",
    status_code=201,
    response_model=RunView,
    responses={200: {"model": RunView, "description": "The run was there already."}, **_CONFLICT},
    openapi_extra={"requestBody": _MANIFEST},
)
async def create(
    request: Request,
    response: Response,
    caller: Caller,
    idempotency_key: Annotated[
        str | None,
        Header(
            min_length=1, max_length=255, description="The caller's name for this request: it gives one run."
        ),
    ] = None,
) -> RunView:
    """The body is a manifest, in JSON or YAML. A `runID` in it, or an `Idempotency-Key`, makes the
    request safe to repeat."""
    services = services_of(request)
    manifest = _manifest(await request.body())
    await caller.require(Verb.CREATE, services.executor.namespace(manifest))
    key = f"{caller.who.name}\n{idempotency_key}" if idempotency_key else ""
    with _refusals():
        started = await services.executor.start(manifest, key=key)
    response.status_code = 201 if started.created else 200
    response.headers["Location"] = f"/v1/runs/{started.run_id}"
    return await _view(services, await find_run(services, str(started.run_id)))


@router.get("/v1/runs", summary="List runs, the newest first", response_model=RunList)
async def list_(
    request: Request,
    caller: Caller,
    namespace: Annotated[
        str, Query(max_length=63, description="Runs of objects there; without it all runs.")
    ] = ALL_NAMESPACES,
    phase: Annotated[list[Phase] | None, Query(description="Runs that stand so; may be repeated.")] = None,
    name: Annotated[str, Query(max_length=317, description="Runs with this name.")] = "",
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX, description="Runs in one answer.")] = 100,
    continue_: Annotated[
        str | None, Query(alias="continue", max_length=200, description="From the answer before.")
    ] = None,
) -> RunList:
    """A page may be short where there is a filter; it is the last one when it has no `continue`."""
    services = services_of(request)
    await caller.require(Verb.LIST, namespace)
    page = Page(
        limit=limit,
        before=read_token(continue_),
        owner_prefix=services.executor.owner_prefix(namespace),
        wanted=lambda entry: (not phase or entry.phase in phase) and (not name or entry.name == name),
        entry=lambda info: run_entry(info, services.executor.stand(info)),
        scanned_max=SCANNED_MAX,
    )
    return await page.read(services.store)


@router.get("/v1/runs/{run_id}", summary="Look at a run", response_model=RunView)
async def get(request: Request, caller: Caller, run_id: str) -> RunView:
    """In constant size; what the run did is in its events."""
    services, info = await _of(request, caller, run_id, Verb.GET)
    return await _view(services, info)


@router.get(
    "/v1/runs/{run_id}/answer", summary="A run's answer", response_model=AnswerView, responses=_CONFLICT
)
async def answer(request: Request, caller: Caller, run_id: str) -> AnswerView:
    """All of it; a run's own view has the beginning."""
    services, info = await _of(request, caller, run_id, Verb.GET)
    text = await read_answer(services.store, info, (await read_log(services.store, info)).history)
    if text is None:
        stand = services.executor.stand(info)
        raise Problem(409, "NoAnswer", f"run {run_id} has no answer: {stand.phase} {stand.reason}".rstrip())
    return AnswerView(text=text)


@router.post(
    "/v1/runs/{run_id}/suspend",
    summary="Park a run",
    status_code=202,
    response_model=RunView,
    responses=_CONFLICT,
)
async def suspend(request: Request, caller: Caller, run_id: str) -> RunView:
    """What is in flight finishes and is recorded; nothing new is launched."""
    return await _signal(request, caller, run_id, Signal(suspend=True))


@router.post(
    "/v1/runs/{run_id}/resume",
    summary="Let a run go on",
    status_code=202,
    response_model=RunView,
    responses=_CONFLICT,
)
async def resume(request: Request, caller: Caller, run_id: str, body: Resume | None = None) -> RunView:
    """A run that has used up its budget goes on when a limit is raised with it."""
    limits = body.budget.model_dump(by_alias=True, exclude_unset=True) if body and body.budget else {}
    return await _signal(request, caller, run_id, Signal(suspend=False, budget=limits))


@router.post(
    "/v1/runs/{run_id}/cancel",
    summary="End a run",
    status_code=202,
    response_model=RunView,
    responses=_CONFLICT,
)
async def cancel(request: Request, caller: Caller, run_id: str, body: Cancel | None = None) -> RunView:
    """There is no way back."""
    how = "Terminate" if body is not None and body.at_once else "Stop"
    return await _signal(request, caller, run_id, Signal(shutdown=how))


async def _signal(request: Request, caller: Authorized, run_id: str, signal: Signal) -> RunView:
    services, info = await _of(request, caller, run_id, Verb.PATCH)
    if info.run.ended and not signal.shutdown:
        raise Problem(409, "RunEnded", f"run {run_id} has ended: {services.executor.stand(info).phase}")
    if not info.run.ended:
        with _refusals():
            await services.executor.signal(info.run, signal)
    return await _view(services, await find_run(services, run_id))


async def _of(request: Request, caller: Authorized, run_id: str, verb: Verb) -> tuple[Services, RunInfo]:
    services = services_of(request)
    info = await find_run(services, run_id)
    await caller.require_run(verb, info.run)
    return services, info


async def _view(services: Services, info: RunInfo) -> RunView:
    store: LogStore = services.store
    return run_view(info, await services.executor.look(info), await store.attempts(info.run.run_id))


def _manifest(body: bytes) -> AgentRun:
    """Problem 422 for what is none, with each field that is wrong."""
    try:
        return load_manifest(body, source="", base_dir=None)
    except ManifestError as error:
        fields = [FieldProblem(field=each.path, detail=each.message) for each in error.problems]
        raise Problem(422, "Invalid", "the manifest is not valid", errors=fields) from error


@contextmanager
def _refusals() -> Iterator[None]:
    """409 for what the executor refuses."""
    try:
        yield
    except StartRefused as error:
        raise Problem(409, error.reason, str(error)) from error
