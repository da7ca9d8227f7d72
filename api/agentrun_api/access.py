"""Who asks, and what they may.

Who calls: each route, through `Caller`. What holds: nothing is answered without a token that is
known, but whether this process lives; a run that somebody may not see is told as one that is not
there. `LocalAccess` is for one machine: whoever has its token may do everything.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Protocol

from fastapi import Depends, Request

from agentrun.log.store import RunRow
from agentrun_api.problems import Problem, not_found

ALL_NAMESPACES = ""


class Verb(StrEnum):
    """What is done to AgentRuns, in the words of Kubernetes' RBAC."""

    GET = "get"
    LIST = "list"
    CREATE = "create"
    PATCH = "patch"


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Who asks. `groups` and `extra` are what the cluster knows of them."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class Access(Protocol):
    """Knows tokens, and what their owners may do."""

    async def identify(self, token: str) -> Identity | None:
        """Whose token it is; None: nobody's."""

    async def allows(self, who: Identity, verb: Verb, namespace: str) -> bool:
        """They may do that to AgentRuns there; ALL_NAMESPACES: everywhere."""


class LocalAccess:
    """One token, which opens everything."""

    def __init__(self, token: str, name: str = "local") -> None:
        self._token = token.encode()
        self._identity = Identity(name=name)

    async def identify(self, token: str) -> Identity | None:
        return self._identity if hmac.compare_digest(token.encode(), self._token) else None

    async def allows(self, who: Identity, verb: Verb, namespace: str) -> bool:
        return who == self._identity


@dataclass(frozen=True, kw_only=True)
class Authorized:
    """A caller who is known."""

    who: Identity
    access: Access

    async def require(self, verb: Verb, namespace: str) -> None:
        """Problem 403 unless they may."""
        if not await self.access.allows(self.who, verb, namespace):
            where = f"in namespace {namespace}" if namespace else "in all namespaces"
            raise Problem(403, "Forbidden", f"{self.who.name} may not {verb} agentruns {where}")

    async def require_run(self, verb: Verb, row: RunRow) -> None:
        """As `require`, for one run. Who may not even see it is told that it is not there."""
        namespace = namespace_of(row.owner)
        if await self.access.allows(self.who, verb, namespace):
            return
        if verb is Verb.GET or not await self.access.allows(self.who, Verb.GET, namespace):
            raise not_found(f"run {row.run_id}")
        await self.require(verb, namespace)


def namespace_of(owner: str) -> str:
    """The namespace of a run's object; ALL_NAMESPACES for runs of no object, which only those
    who may see all are shown."""
    parts = owner.split("/")
    return parts[1] if len(parts) == 4 else ALL_NAMESPACES


def bearer(header: str | None) -> str:
    """The token of an Authorization header; Problem 401 where there is none."""
    scheme, _, token = (header or "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise unauthorized("a bearer token is needed: Authorization: Bearer …")
    return token.strip()


def unauthorized(detail: str) -> Problem:
    """401."""
    return Problem(401, "Unauthorized", detail, headers={"WWW-Authenticate": "Bearer"})


async def authorized(request: Request) -> Authorized:
    """The caller of this request; for routes, as `Caller`."""
    access: Access = request.app.state.services.access
    who = await access.identify(bearer(request.headers.get("authorization")))
    if who is None:
        raise unauthorized("the token is not known here")
    request.app.state.services.rate.take(who.name)
    return Authorized(who=who, access=access)


Caller = Annotated[Authorized, Depends(authorized)]
