"""What the routes share: made once a process, found at `app.state.services`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from fastapi import Request

from agentrun.log.store import LogStore, RunInfo
from agentrun_api.access import Access
from agentrun_api.executor import RunExecutor
from agentrun_api.feed import Feeds
from agentrun_api.limits import RateLimit
from agentrun_api.problems import not_found


@dataclass(kw_only=True)
class Services:
    """`closing` is set when this process is about to stop: streams end then, and their clients
    reconnect to another one."""

    store: LogStore
    feeds: Feeds
    access: Access
    executor: RunExecutor
    rate: RateLimit
    closing: asyncio.Event = field(default_factory=asyncio.Event)


def services_of(request: Request) -> Services:
    """Of the app that serves this request."""
    found: Services = request.app.state.services
    return found


async def find_run(services: Services, run_id: str) -> RunInfo:
    """The run with that id; Problem 404 where there is none, or where the text is no id."""
    from uuid import UUID

    try:
        info = await services.store.get_run(UUID(run_id))
    except ValueError:
        info = None
    if info is None:
        raise not_found(f"run {run_id[:60]}")
    return info
