"""Tokens and rights as a cluster tells them, and what is remembered of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentrun_api.access import Identity, Verb
from agentrun_api.cluster import (
    ALLOWED_SECONDS,
    KNOWN_SECONDS,
    TOKEN_CHARACTERS_MAX,
    UNKNOWN_SECONDS,
    ClusterAccess,
)
from agentrun_api.kube import KubeError, KubeUnavailable
from agentrun_api.problems import Problem

USER = {"username": "ada", "uid": "1", "groups": ["dev", "system:authenticated"], "extra": {"x": ["y"]}}
ADA = Identity(name="ada", uid="1", groups=("dev", "system:authenticated"), extra=(("x", ("y",)),))


class Cluster:
    """Knows one token, which may read in one namespace."""

    def __init__(self) -> None:
        self.now = 0.0
        self.reviews: list[Any] = []
        self.fails: Exception | None = None
        self.revoked = False

    async def review_token(self, token: str) -> dict[str, Any]:
        self.reviews.append(token)
        await asyncio.sleep(0)
        if self.fails is not None:
            raise self.fails
        if token == "ada's" and not self.revoked:
            return {"authenticated": True, "user": USER}
        return {"authenticated": False} if token != "odd" else {"user": USER}

    async def review_access(self, spec: dict[str, Any]) -> bool:
        self.reviews.append(spec)
        await asyncio.sleep(0)
        if self.fails is not None:
            raise self.fails
        attributes = spec["resourceAttributes"]
        return bool(attributes["namespace"] == "ours" and attributes["verb"] in ("get", "list"))

    def access(self) -> ClusterAccess:
        return ClusterAccess(self, lambda: self.now)


def test_a_token_is_known_when_the_cluster_says_so() -> None:
    async def test() -> None:
        access = Cluster().access()
        assert await access.identify("ada's") == ADA
        for token in ("another", "odd", "", "x" * (TOKEN_CHARACTERS_MAX + 1)):
            assert await access.identify(token) is None

    asyncio.run(test())


def test_answers_are_remembered_for_their_time_and_no_longer() -> None:
    async def test() -> None:
        cluster = Cluster()
        access = cluster.access()
        for _ in range(3):
            assert await access.identify("ada's") == ADA
            assert await access.identify("another") is None
        assert cluster.reviews == ["ada's", "another"]
        cluster.revoked = True
        cluster.now += UNKNOWN_SECONDS + 1
        await access.identify("another")
        assert await access.identify("ada's") == ADA
        cluster.now += KNOWN_SECONDS
        assert await access.identify("ada's") is None

    asyncio.run(test())


def test_those_who_ask_the_same_at_once_share_one_question() -> None:
    async def test() -> None:
        cluster = Cluster()
        access = cluster.access()
        assert await asyncio.gather(*(access.identify("ada's") for _ in range(50))) == [ADA] * 50
        assert len(cluster.reviews) == 1

    asyncio.run(test())


@pytest.mark.parametrize(
    ("verb", "namespace", "allowed"),
    [
        (Verb.GET, "ours", True),
        (Verb.LIST, "ours", True),
        (Verb.CREATE, "ours", False),
        (Verb.GET, "theirs", False),
        (Verb.LIST, "", False),
    ],
)
def test_what_somebody_may_is_asked_as_of_them(verb: Verb, namespace: str, allowed: bool) -> None:
    async def test() -> None:
        cluster = Cluster()
        access = cluster.access()
        assert await access.allows(ADA, verb, namespace) is allowed
        assert await access.allows(ADA, verb, namespace) is allowed
        (spec,) = cluster.reviews
        assert (spec["user"], spec["uid"], spec["groups"]) == ("ada", "1", USER["groups"])
        assert spec["extra"] == USER["extra"]
        assert spec["resourceAttributes"]["group"] == "agentrun.dev"
        cluster.now += ALLOWED_SECONDS + 1
        await access.allows(ADA, verb, namespace)
        assert len(cluster.reviews) == 2

    asyncio.run(test())


@pytest.mark.parametrize("error", [KubeUnavailable("away"), KubeError(403, "forbidden")])
def test_a_cluster_that_cannot_say_gives_nobody_anything(error: Exception) -> None:
    async def test() -> None:
        cluster = Cluster()
        cluster.fails = error
        access = cluster.access()
        for _ in range(2):
            with pytest.raises(Problem) as problem:
                await access.identify("ada's")
            assert (problem.value.status, problem.value.reason) == (503, "ClusterUnavailable")
            with pytest.raises(Problem):
                await access.allows(ADA, Verb.GET, "ours")
        cluster.fails = None
        assert await access.identify("ada's") == ADA

    asyncio.run(test())
