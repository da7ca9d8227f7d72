"""What went wrong, as problem details (RFC 9457): one shape for every error of the API.

Who calls: the routes raise `Problem`; `install` makes the rest of what can go wrong into one.
What holds: each answer that is no success has a body of type application/problem+json whose
`reason` programs can rely on, and no body holds a traceback or a secret.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.routing import Match

from agentrun.log.errors import LogError, StoreUnavailable

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 2
DETAIL_CHARACTERS_MAX = 1024


class FieldProblem(BaseModel):
    """One field that is wrong."""

    field: str = Field(description="Its place in the body, the query or the headers, with dots between.")
    detail: str = Field(description="What is wrong with it, and what would be right.")


class ProblemDetails(BaseModel):
    """The body of an error (RFC 9457)."""

    title: str = Field(description="The HTTP status in words.")
    status: int = Field(description="The HTTP status.")
    reason: str = Field(description="What went wrong, as one word that programs can rely on.")
    detail: str = Field(description="What went wrong, for people.")
    errors: list[FieldProblem] = Field(default=[], description="The fields that are wrong, one each.")


class Problem(Exception):
    """Ends a request. `reason` is CamelCase, of the list in docs/api.md."""

    def __init__(
        self,
        status: int,
        reason: str,
        detail: str,
        *,
        errors: Sequence[FieldProblem] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(f"{reason}: {detail}")
        self.status = status
        self.reason = reason
        self.detail = detail
        self.errors = list(errors)
        self.headers = dict(headers or {})

    def response(self) -> JSONResponse:
        """As it is sent."""
        body = ProblemDetails(
            title=HTTPStatus(self.status).phrase,
            status=self.status,
            reason=self.reason,
            detail=self.detail[:DETAIL_CHARACTERS_MAX],
            errors=self.errors,
        )
        content = body.model_dump(exclude_defaults=True)
        return JSONResponse(content, self.status, self.headers, media_type=MEDIA_TYPE)


def not_found(what: str) -> Problem:
    """404."""
    return Problem(404, "NotFound", f"there is no {what}")


def unavailable() -> Problem:
    """503: the database is away."""
    return Problem(
        503, "StoreUnavailable", "the database cannot be reached", headers={"Retry-After": str(RETRY_SECONDS)}
    )


def install(app: FastAPI) -> None:
    """Every error of this app has a problem's shape from now on."""

    @app.exception_handler(Problem)
    async def told(_: Request, error: Problem) -> JSONResponse:
        return error.response()

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        return Problem(422, "Invalid", "the request is not valid", errors=_fields(error)).response()

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> JSONResponse:
        reason = "".join(HTTPStatus(error.status_code).phrase.title().split())
        headers = dict(error.headers or {})
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = ", ".join(sorted(_allowed(app, request)))
        return Problem(error.status_code, reason, str(error.detail), headers=headers).response()

    @app.exception_handler(LogError)
    async def store(_: Request, error: LogError) -> JSONResponse:
        if isinstance(error, StoreUnavailable):
            return unavailable().response()
        log.error("a request failed: %s", error)
        return Problem(500, "LogError", str(error)).response()

    @app.exception_handler(Exception)
    async def fault(_: Request, error: Exception) -> JSONResponse:
        return Problem(500, "Fault", "a fault of agentrun; its log says more").response()


def _allowed(app: FastAPI, request: Request) -> set[str]:
    """What may be done at the request's path, over all routes that are there."""
    found: set[str] = set()
    for route in app.routes:
        match, _ = route.matches(request.scope)
        if match is not Match.NONE:
            found |= getattr(route, "methods", None) or set()
    return found


def _fields(error: RequestValidationError) -> list[FieldProblem]:
    return [FieldProblem(field=_place(each), detail=str(each.get("msg", ""))) for each in error.errors()]


def _place(error: Mapping[str, Any]) -> str:
    return ".".join(str(part) for part in error.get("loc", ()))
