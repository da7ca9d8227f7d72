"""Runs over HTTP: what is asked, what is answered, what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentrun_api.limits import BODY_BYTES_MAX
from tests.unit.api.server import Server, hello, served


def test_a_run_is_begun_and_seen_to_its_end() -> None:
    async def test(server: Server) -> None:
        made = await server.client.post("/v1/runs", json=hello())
        assert made.status_code == 201
        assert made.headers["location"] == f"/v1/runs/{made.json()['runID']}"
        ended = await server.stands(made.json()["runID"], "Succeeded")
        assert (ended["name"], ended["reason"], ended["turns"]) == ("hello", "Completed", 1)
        assert ended["result"]["preview"] == "Hello."
        assert [each["outcome"] for each in ended["attempts"]] == ["Succeeded"]
        assert ended["endedAt"] is not None

    served(test)


def test_yaml_is_taken_too() -> None:
    async def test(server: Server) -> None:
        text = "# a comment\n" + json.dumps(hello())
        made = await server.client.post("/v1/runs", content=text)
        assert made.status_code == 201

    served(test)


def test_a_request_that_is_repeated_with_its_key_gives_one_run() -> None:
    async def test(server: Server) -> None:
        headers = {"Idempotency-Key": "a request of mine"}
        first = await server.client.post("/v1/runs", json=hello(), headers=headers)
        again = await server.client.post("/v1/runs", json=hello(), headers=headers)
        assert (first.status_code, again.status_code) == (201, 200)
        assert first.json()["runID"] == again.json()["runID"]
        other = await server.client.post("/v1/runs", json=hello({"text": "Bye."}), headers=headers)
        assert (other.status_code, other.json()["reason"]) == (409, "Conflict")
        assert len((await server.client.get("/v1/runs")).json()["runs"]) == 1

    served(test)


BAD = [
    (b"", "", ""),
    (b"[1]", "", "must be a mapping"),
    (b"\xff\xfe", "", ""),
    (json.dumps({**hello(), "kind": "Pod"}).encode(), "kind", "must be 'AgentRun'"),
    (json.dumps(hello(budget={"tokens": 0})).encode(), "spec.budget.tokens", "at least 1"),
    (json.dumps(hello(prompt=7)).encode(), "spec.prompt", "text"),
]


@pytest.mark.parametrize(("body", "field", "detail"), BAD)
def test_a_bad_manifest_is_refused_by_field(body: bytes, field: str, detail: str) -> None:
    async def test(server: Server) -> None:
        answer = await server.client.post("/v1/runs", content=body)
        assert answer.status_code == 422
        assert answer.headers["content-type"] == "application/problem+json"
        problem = answer.json()
        assert (problem["reason"], problem["status"]) == ("Invalid", 422)
        assert problem["errors"][0]["field"] == field
        assert detail in problem["errors"][0]["detail"]
        assert (await server.client.get("/v1/runs")).json() == {"runs": [], "continue": None}

    served(test)


def test_what_cannot_start_here_is_told_to_who_starts_it() -> None:
    async def test(server: Server) -> None:
        manifest = hello()
        manifest["spec"]["agent"]["tools"] = [
            {"name": "none", "python": {"entrypoint": "agentrun.tools.demo:no_such_thing"}}
        ]
        answer = await server.client.post("/v1/runs", json=manifest)
        assert (answer.status_code, answer.json()["reason"]) == (409, "CannotStart")
        assert "spec.agent.tools[0]" in answer.json()["detail"]
        assert (await server.client.get("/v1/runs")).json()["runs"] == []

    served(test)


def test_a_body_has_a_bound() -> None:
    async def test(server: Server) -> None:
        async def pieces() -> Any:
            for _ in range(BODY_BYTES_MAX // 65536 + 2):
                yield b"x" * 65536

        for content in (b"x" * (BODY_BYTES_MAX + 1), pieces()):
            answer = await server.client.post("/v1/runs", content=content)
            assert (answer.status_code, answer.json()["reason"]) == (413, "TooLarge")

    served(test)


def test_a_caller_that_asks_too_often_is_told_when_to_come_again() -> None:
    async def test(server: Server) -> None:
        answers = [await server.client.get("/v1/runs") for _ in range(5)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429]
        assert answers[-1].headers["retry-after"] == "10"
        assert answers[-1].json()["reason"] == "TooManyRequests"

    served(test, per_second=0.1, burst=3)


def test_pages_hold_each_run_once_whatever_is_begun_meanwhile() -> None:
    async def test(server: Server) -> None:
        ids = []
        for number in range(7):
            made = await server.client.post("/v1/runs", json=hello(suspend=True, name=f"run-{number}"))
            ids.append(made.json()["runID"])
        found: list[str] = []
        token = None
        while True:
            page = (await server.client.get("/v1/runs", params={"limit": 3, "continue": token or ""})).json()
            found += [run["runID"] for run in page["runs"]]
            await server.client.post("/v1/runs", json=hello(suspend=True))
            token = page["continue"]
            if token is None:
                break
        assert found == ids[::-1]

    served(test)


def test_a_list_is_filtered_by_phase_and_name() -> None:
    async def test(server: Server) -> None:
        for number in range(4):
            await server.client.post("/v1/runs", json=hello(suspend=number % 2 == 0, name=f"run-{number}"))
        ended = (await server.client.get("/v1/runs", params={"name": "run-1"})).json()["runs"]
        await server.stands(ended[0]["runID"], "Succeeded")
        paused = (await server.client.get("/v1/runs", params={"phase": "Paused"})).json()["runs"]
        assert [run["name"] for run in paused] == ["run-2", "run-0"]
        nothing = (await server.client.get("/v1/runs", params={"phase": "Failed", "limit": 1})).json()
        assert nothing["runs"] == []

    served(test)


@pytest.mark.parametrize(
    "query", [{"limit": "0"}, {"limit": "501"}, {"limit": "x"}, {"continue": "x"}, {"phase": "Asleep"}]
)
def test_a_bad_query_is_refused_by_name(query: dict[str, str]) -> None:
    async def test(server: Server) -> None:
        answer = await server.client.get("/v1/runs", params=query)
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["field"].split(".")[:2] == ["query", *query]

    served(test)


@pytest.mark.parametrize("run_id", ["x", "0", "00000000-0000-4000-8000-000000000000", "%00", "é"])
def test_a_run_that_is_not_there_is_404(run_id: str) -> None:
    async def test(server: Server) -> None:
        for path in (f"/v1/runs/{run_id}", f"/v1/runs/{run_id}/events"):
            answer = await server.client.get(path)
            assert (answer.status_code, answer.json()["reason"]) == (404, "NotFound")

    served(test)


def test_a_run_is_suspended_resumed_and_ended() -> None:
    async def test(server: Server) -> None:
        turns = [{"text": "Later.", "delaySeconds": 30}]
        made = (await server.client.post("/v1/runs", json=hello(*turns, suspend=True))).json()
        path = f"/v1/runs/{made['runID']}"
        await server.stands(made["runID"], "Paused")
        resumed = await server.client.post(f"{path}/resume", json={"budget": {"tokens": 5000}})
        assert resumed.status_code == 202
        assert resumed.json()["budget"]["tokens"]["limit"] == 5000
        await server.stands(made["runID"], "Running")
        assert (await server.client.post(f"{path}/cancel", json={"atOnce": True})).status_code == 202
        ended = await server.stands(made["runID"], "Cancelled")
        assert ended["shutdown"] == "Terminate"
        assert (await server.client.post(f"{path}/cancel")).status_code == 202
        refused = await server.client.post(f"{path}/resume")
        assert (refused.status_code, refused.json()["reason"]) == (409, "RunEnded")

    served(test)


@pytest.mark.parametrize(
    "body", [{"budget": {"tokens": 0}}, {"budget": {"turns": None}}, {"x": 1}, {"budget": {"coins": 1}}]
)
def test_a_bad_budget_is_refused_by_field(body: dict[str, Any]) -> None:
    async def test(server: Server) -> None:
        made = (await server.client.post("/v1/runs", json=hello(suspend=True))).json()
        answer = await server.client.post(f"/v1/runs/{made['runID']}/resume", json=body)
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["field"].startswith("body.")

    served(test)
