"""A run's events over HTTP: all of them, in order, from where a client was."""

from __future__ import annotations

import json

import pytest

from tests.unit.api.server import Server, hello, parse_events, served


async def ended(server: Server) -> str:
    """A run that is over."""
    made = (await server.client.post("/v1/runs", json=hello())).json()
    await server.stands(made["runID"], "Succeeded")
    return str(made["runID"])


def test_a_finished_run_is_told_whole_and_its_stream_ends() -> None:
    async def test(server: Server) -> None:
        run_id = await ended(server)
        answer = await server.client.get(f"/v1/runs/{run_id}/events")
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert "no-cache" in answer.headers["cache-control"]
        assert answer.headers["x-accel-buffering"] == "no"
        assert answer.text.startswith("retry: ")
        events = parse_events(answer.text)
        assert [event.kind for event in events] == ["record"] * 4 + ["end"]
        assert [event.id for event in events] == ["1", "2", "3", "4", None]
        records = [json.loads(event.data) for event in events[:-1]]
        assert [record["node"] for record in records] == ["attempt-1.1", "user-1", "turn-1", "final"]
        assert json.loads(events[-1].data) == {"phase": "Succeeded", "reason": "Completed", "message": ""}

    served(test)


@pytest.mark.parametrize("after", [0, 1, 3, 4])
def test_a_client_goes_on_behind_what_it_has_seen(after: int) -> None:
    async def test(server: Server) -> None:
        run_id = await ended(server)
        by_header = await server.client.get(
            f"/v1/runs/{run_id}/events", headers={"Last-Event-ID": str(after)}, params={"after": "99"}
        )
        by_query = await server.client.get(f"/v1/runs/{run_id}/events", params={"after": str(after)})
        for answer in (by_header, by_query):
            ids = [event.id for event in parse_events(answer.text)]
            assert ids == [*(str(seq) for seq in range(after + 1, 5)), None]

    served(test)


@pytest.mark.parametrize(
    ("text", "reason"),
    [("5", "EventIDBeyondEnd"), ("999999999999", "EventIDBeyondEnd")]
    + [(text, "BadEventID") for text in ("abc", "-1", "1.5", " 1x", "1" * 30, "٣", "0x1")],
)
def test_an_id_that_is_none_of_this_run_is_refused(text: str, reason: str) -> None:
    async def test(server: Server) -> None:
        run_id = await ended(server)
        answer = await server.client.get(f"/v1/runs/{run_id}/events", params={"after": text})
        assert (answer.status_code, answer.json()["reason"]) == (400, reason)

    served(test)
