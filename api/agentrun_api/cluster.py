"""Who asks, and what they may, as the cluster says.

Who calls: the routes, through `Caller`. What holds: a token is known when the cluster's TokenReview
says so, and its owner may do to AgentRuns here what they may do to them with kubectl. Answers are
remembered for moments; a no that the cluster could not give is no yes.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from hashlib import sha256
from typing import Any, Generic, Protocol, TypeVar

from agentrun_api.access import Identity, Verb
from agentrun_api.kube import KubeError, KubeUnavailable
from agentrun_api.problems import Problem

KNOWN_SECONDS = 60.0
"""How long a token counts as known without asking again."""

UNKNOWN_SECONDS = 5.0
ALLOWED_SECONDS = 10.0
REMEMBERED_MAX = 10_000
TOKEN_CHARACTERS_MAX = 16 * 1024

T = TypeVar("T")


class Reviews(Protocol):
    """What of the cluster is asked; `kube.Kube` is it."""

    async def review_token(self, token: str) -> dict[str, Any]: ...

    async def review_access(self, spec: dict[str, Any]) -> bool: ...


class ClusterAccess:
    """See the module's docstring. `now`: seconds, monotonic."""

    def __init__(self, kube: Reviews, now: Callable[[], float] = time.monotonic) -> None:
        self._kube = kube
        self._identities: _Memory[Identity | None] = _Memory(now)
        self._allowed: _Memory[bool] = _Memory(now)

    async def identify(self, token: str) -> Identity | None:
        """Problem 503 where the cluster cannot be asked."""
        if len(token) > TOKEN_CHARACTERS_MAX:
            return None
        key = sha256(token.encode()).digest()  # the token itself is remembered nowhere
        return await self._identities.get(
            key,
            lambda: _asked(self._review(token)),
            lambda found: KNOWN_SECONDS if found else UNKNOWN_SECONDS,
        )

    async def _review(self, token: str) -> Identity | None:
        status = await self._kube.review_token(token)
        if status.get("authenticated") is not True:
            return None
        user = status.get("user") or {}
        extra = tuple((name, tuple(values)) for name, values in sorted((user.get("extra") or {}).items()))
        return Identity(
            name=str(user.get("username") or ""),
            uid=str(user.get("uid") or ""),
            groups=tuple(user.get("groups") or ()),
            extra=extra,
        )

    async def allows(self, who: Identity, verb: Verb, namespace: str) -> bool:
        """Problem 503 where the cluster cannot be asked."""
        spec = {
            "user": who.name,
            "uid": who.uid,
            "groups": list(who.groups),
            "extra": {name: list(values) for name, values in who.extra},
            "resourceAttributes": {
                "group": "agentrun.dev",
                "resource": "agentruns",
                "verb": str(verb),
                "namespace": namespace,
            },
        }
        return await self._allowed.get(
            (who, verb, namespace), lambda: _asked(self._kube.review_access(spec)), lambda _: ALLOWED_SECONDS
        )


async def _asked(question: Awaitable[T]) -> T:
    try:
        return await question
    except (KubeUnavailable, KubeError) as error:
        raise Problem(
            503,
            "ClusterUnavailable",
            "the cluster cannot say who may do this",
            headers={"Retry-After": "2"},
        ) from error


class _Memory(Generic[T]):
    """Answers, each for its time; those who ask the same at once share one question."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._known: OrderedDict[Hashable, tuple[float, T]] = OrderedDict()
        self._asking: dict[Hashable, asyncio.Future[T]] = {}

    async def get(self, key: Hashable, ask: Callable[[], Awaitable[T]], seconds: Callable[[T], float]) -> T:
        known = self._known.get(key)
        if known is not None and self._now() < known[0]:
            return known[1]
        asking = self._asking.get(key)
        if asking is None:
            asking = self._asking[key] = asyncio.ensure_future(ask())
            asking.add_done_callback(lambda _: self._asking.pop(key, None))
        found = await asyncio.shield(asking)
        self._known[key] = (self._now() + seconds(found), found)
        self._known.move_to_end(key)
        while len(self._known) > REMEMBERED_MAX:
            self._known.popitem(last=False)
        return found
