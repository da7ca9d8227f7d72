"""Nothing is answered without a token that is known: a table of every operation of the API."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agentrun.spec import AgentRun, parse_object
from agentrun_api.access import ALL_NAMESPACES, Identity, LocalAccess, Verb, namespace_of
from agentrun_api.openapi import document
from tests.unit.api.server import TOKEN, Server, hello, served

OPEN = {"/healthz", "/readyz"}


def operations() -> Iterator[tuple[str, str]]:
    for path, found in document()["paths"].items():
        for method in found:
            yield method.upper(), path


TABLE = [(method, path) for method, path in operations() if path not in OPEN]


def test_the_table_is_of_the_whole_api() -> None:
    assert ("POST", "/v1/runs") in TABLE and ("GET", "/v1/runs/{run_id}/events") in TABLE
    assert all(document()["paths"][path][method.lower()]["security"] for method, path in TABLE)


HEADERS: list[dict[str, str | bytes]] = [
    {"Authorization": ""},
    {"Authorization": "Bearer"},
    {"Authorization": "Bearer  "},
    {"Authorization": f"Basic {TOKEN}"},
    {"Authorization": TOKEN},
    {"Authorization": f"Bearer {TOKEN}x"},
    {"Authorization": f"Bearer {TOKEN[:-1]}"},
    {"Authorization": "Bearer é".encode()},
]


@pytest.mark.parametrize(("method", "path"), TABLE, ids=[" ".join(each) for each in TABLE])
def test_without_a_known_token_all_is_refused(method: str, path: str) -> None:
    async def test(server: Server) -> None:
        made = (await server.client.post("/v1/runs", json=hello(suspend=True))).json()
        url = path.replace("{run_id}", made["runID"])
        for headers in HEADERS:
            answer = await server.client.request(method, url, headers=headers, json=hello())  # type: ignore[arg-type]
            assert (answer.status_code, answer.json()["reason"]) == (401, "Unauthorized"), headers
            assert answer.headers["www-authenticate"] == "Bearer"
            assert TOKEN not in answer.text
        runs = (await server.client.get("/v1/runs")).json()["runs"]
        assert [(run["runID"], run["phase"]) for run in runs] == [(made["runID"], "Paused")]

    served(test)


@pytest.mark.parametrize("path", sorted(OPEN))
def test_health_needs_none(path: str) -> None:
    async def test(server: Server) -> None:
        answer = await server.client.get(path, headers={"Authorization": ""})
        assert (answer.status_code, answer.text) == (200, "ok")

    served(test)


class Namespaced(LocalAccess):
    """Whose token opens namespace `ours` alone, and only to some verbs."""

    def __init__(self, *verbs: Verb) -> None:
        super().__init__(TOKEN, "somebody")
        self._verbs = verbs

    async def allows(self, who: Identity, verb: Verb, namespace: str) -> bool:
        return namespace == "ours" and verb in self._verbs


@pytest.mark.parametrize(("method", "path"), TABLE, ids=[" ".join(each) for each in TABLE])
def test_who_may_nothing_here_is_told_of_no_run(method: str, path: str) -> None:
    async def test(server: Server) -> None:
        started = await server.services.executor.start(_manifest())
        url = path.replace("{run_id}", str(started.run_id))
        body = (
            {"id": "x", "approve": True} if "approvals" in path else hello() if path == "/v1/runs" else None
        )
        answer = await server.client.request(method, url, json=body)
        wanted = (403, "Forbidden") if path == "/v1/runs" else (404, "NotFound")
        assert (answer.status_code, answer.json()["reason"]) == wanted
        info = await server.store.get_run(started.run_id)
        assert info is not None and info.run.levels.generation == 0

    served(test, access=Namespaced(*Verb))


def _manifest() -> AgentRun:
    return parse_object(hello(suspend=True))


@pytest.mark.parametrize(
    ("owner", "namespace"),
    [
        ("agentrun/team-a/nightly/uid", "team-a"),
        ("local/nightly", ALL_NAMESPACES),
        ("server/nightly", ALL_NAMESPACES),
        ("", ALL_NAMESPACES),
    ],
)
def test_the_namespace_of_a_run_is_that_of_its_object(owner: str, namespace: str) -> None:
    assert namespace_of(owner) == namespace
