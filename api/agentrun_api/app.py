"""The application: its routes, its life, and what it says of its own health.

Who calls: `cli`, and the tests. What holds: the streams end before the server waits for its
connections, so that a stop takes moments; the executor pauses what it runs; the store closes last.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import PlainTextResponse

from agentrun_api import approvals, events, problems, runs
from agentrun_api.limits import BodyLimit
from agentrun_api.problems import ProblemDetails, unavailable
from agentrun_api.services import Services, services_of

health = APIRouter(tags=["health"])

_REFUSED = {
    400: {"model": ProblemDetails, "description": "The request cannot be understood."},
    401: {"model": ProblemDetails, "description": "No token, or one that is not known."},
    403: {"model": ProblemDetails, "description": "The caller may not do this."},
    404: {"model": ProblemDetails, "description": "There is no such run, or the caller may not see it."},
    422: {"model": ProblemDetails, "description": "The request is not valid; `errors` says where."},
    413: {"model": ProblemDetails, "description": "The body is too large."},
    429: {
        "model": ProblemDetails,
        "description": "Too many requests; `Retry-After` says how long to wait.",
    },
    503: {"model": ProblemDetails, "description": "The database cannot be reached; try again."},
}


def create_app(services: Services | None = None) -> FastAPI:
    """The application over these services; without them it can only be described."""

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        assert services is not None
        tasks = [asyncio.create_task(part.run()) for part in (services.feeds, services.executor)]
        try:
            yield
        finally:
            services.closing.set()
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    app = FastAPI(
        title="agentrun",
        version=version("agentrun"),
        summary="Durable runs of AI agents: start, watch and steer them.",
        lifespan=life,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    app.state.services = services
    problems.install(app)
    app.add_middleware(BodyLimit)
    app.include_router(health)
    for router in (runs.router, approvals.router, events.router):
        app.include_router(router, responses=_REFUSED)  # type: ignore[arg-type]
    return app


@health.get("/healthz", summary="This process lives", response_class=PlainTextResponse)
async def healthz() -> str:
    """Needs no token."""
    return "ok"


@health.get(
    "/readyz",
    summary="This process can answer",
    response_class=PlainTextResponse,
    responses={503: {"model": ProblemDetails, "description": "Not now."}},
)
async def readyz(request: Request) -> str:
    """Needs no token."""
    services = services_of(request)
    if services.closing.is_set() or not services.feeds.available:
        raise unavailable()
    return "ok"
