"""What breaks around the operator: watches, the store, the API server, another operator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import aiohttp
import pytest
from aiohttp import web

from agentrun.proto import log_pb2 as pb
from tests.integration.operator.bench import Bench, bench, labelled, manifest, wants
from tests.integration.operator.conftest import Play
from tests.integration.operator.fake_api import Body, refuse
from tests.integration.operator.kubelet import end_pod
from tests.support.proxy import Proxy


def is_watch(request: web.Request, resource: str) -> bool:
    return request.method == "GET" and "watch" in request.query and request.path.endswith("/" + resource)


# --- events


def test_of_many_edits_at_once_the_last_one_counts_and_one_pod_is_made(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest())
        for change in ({"suspend": True}, {"suspend": False}, {"shutdown": "Terminate"}):
            b.api.edit("agentruns", "hello", wants(**change))
        await b.phase("Cancelled")
        created = [w for w in b.api.writes if (w.verb, w.resource) == ("create", "pods")]
        assert len(created) <= 1

    play(scenario)


def test_of_many_edits_through_a_slow_server_the_last_one_counts(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        async def slow(request: web.Request, body: Body) -> None:
            if "watch" not in request.query:
                await asyncio.sleep(0.15)

        b.api.faults.append(slow)
        b.api.put("agentruns", manifest())
        for change in ({"suspend": True}, {"suspend": False}, {"shutdown": "Stop"}):
            await asyncio.sleep(0.1)
            b.api.edit("agentruns", "hello", wants(**change))
        await b.until(lambda: b.status().get("phase") in ("Cancelled", "Pausing"))
        for pod in b.api.pods_of("hello"):
            end_pod(b.api, pod["metadata"]["name"], 75)
        await b.phase("Cancelled")
        created = [w for w in b.api.writes if (w.verb, w.resource) == ("create", "pods")]
        assert len(created) <= 1

    play(scenario)


def test_a_storm_of_events_costs_a_bounded_number_of_writes(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest())
        runner = await b.runner()
        await b.phase("Running")
        before = len(b.api.writes)
        for number in range(100):
            b.api.edit("agentruns", "hello", labelled(number))
            b.api.edit("pods", runner.pod, labelled(number))
            await runner.step(f"step-{number}")
        await b.until(lambda: b.status()["progress"]["done"] == 100)
        # Progress alone was written, at most every 0.3 s here.
        assert len(b.api.writes) - before < 30

    play(scenario)


def test_many_runs_at_once_all_end_well(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        names = [f"run-{number}" for number in range(40)]
        for name in names:
            b.api.put("agentruns", manifest(name))

        async def live(name: str) -> None:
            runner = await b.runner(1, name)
            await runner.step("one")
            await runner.end(pb.OUTCOME_SUCCEEDED, answer=name)
            end_pod(b.api, runner.pod, 0)

        await asyncio.gather(*(live(name) for name in names))
        await b.until(lambda: all(b.status(name).get("phase") == "Succeeded" for name in names), 30)
        await b.until(lambda: not b.api.all("pods"))
        for name in names:
            assert len(b.api.writes_about(name)) <= 10, name

    play(scenario)


# --- two operators


def test_two_operators_at_once_make_one_pod_and_lose_nothing(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        await b.start()

        def told(name: str) -> int:
            return [e["reason"] for e in b.api.events_about(name)].count("Succeeded")

        names = [f"run-{number}" for number in range(10)]
        for name in names:
            b.api.put("agentruns", manifest(name))
        for name in names:
            runner = await b.runner(1, name)
            if name.endswith("3"):
                end_pod(b.api, runner.pod, 137, disruption="EvictionByEvictionAPI")
                runner = await b.runner(2, name)
            await b.phase("Running", name=name)
            await runner.end(pb.OUTCOME_SUCCEEDED)
            end_pod(b.api, runner.pod, 0)
        for name in names:
            await b.phase("Succeeded", name=name)
            created = [w for w in b.api.writes_about(name) if (w.verb, w.resource) == ("create", "pods")]
            assert len(created) == (2 if name.endswith("3") else 1)
            await b.until(partial(told, name))
            assert b.status(name)["attempt"] == (2 if name.endswith("3") else 1)
        await asyncio.sleep(1.2)
        assert all(told(name) == 1 for name in names)

    play(scenario)


def test_an_operator_that_dies_between_attempt_and_pod_costs_a_number(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        app = b.apps[0][0]

        async def die(request: web.Request, body: Body) -> web.StreamResponse | None:
            if request.method == "POST" and request.path.endswith("/pods"):
                app.queue.close()
                await asyncio.sleep(0.1)
                return refuse(500, "InternalError", "etcd is away")
            return None

        b.api.faults.append(die)
        b.api.put("agentruns", manifest())
        await b.until(lambda: app.queue.take() is None and len(app.queue) > 0 and app.queue.busy == 0)
        await b.stop()
        b.api.faults.clear()
        await b.start()
        await b.runner(2)
        status = await b.phase("Running", attempt=2)
        assert (status["disruptions"], status["failures"]) == (0, 0)

    play(scenario)


def test_an_answer_that_is_lost_makes_no_second_pod(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        lost: list[str] = []

        async def lose(request: web.Request, body: Body) -> web.StreamResponse | None:
            if request.method == "POST" and request.path.endswith("/pods") and not lost:
                lost.append(body["metadata"]["name"])
                body["metadata"]["namespace"] = "demo"
                b.api.put("pods", body)
                return refuse(504, "Timeout", "the answer was lost")
            return None

        b.api.faults.append(lose)
        b.api.put("agentruns", manifest())
        runner = await b.runner()
        await b.phase("Running")
        assert [p["metadata"]["name"] for p in b.api.pods_of("hello")] == lost == [runner.pod]

    play(scenario)


# --- watches


def test_watches_that_end_with_410_are_taken_up_again(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        b.api.forgotten = 10**9
        await asyncio.sleep(1.0)
        b.api.put("agentruns", manifest())
        await b.pod()
        b.api.forgotten = 0
        await b.runner()
        await b.phase("Running")

    play(scenario)


def test_watches_that_are_cut_are_taken_up_again(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        async def cut(request: web.Request, body: Body) -> web.StreamResponse | None:
            if "watch" in request.query:
                assert request.transport is not None
                request.transport.abort()
                return web.Response()
            return None

        b.api.faults.append(cut)
        await asyncio.sleep(5.5)  # the watches that were open have ended
        b.api.put("agentruns", manifest())
        await b.pod()
        b.api.faults.clear()
        await b.runner()
        await b.phase("Running")

    play(scenario)


def test_pods_that_may_not_be_watched_for_a_while(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        async def forbid(request: web.Request, body: Body) -> web.StreamResponse | None:
            if request.path == "/api/v1/pods":
                return refuse(403, "Forbidden", "pods is forbidden")
            return None

        b.api.faults.append(forbid)
        await asyncio.sleep(5.5)
        b.api.put("agentruns", manifest())
        runner = await b.runner()
        await b.phase("Running")  # the store tells of it
        end_pod(b.api, runner.pod, 137, disruption="EvictionByEvictionAPI")
        b.api.faults.clear()
        await b.pod(2)

    play(scenario)


def test_a_watch_that_goes_silent_misses_no_run_and_shows_in_health(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        async def silent(request: web.Request, body: Body) -> web.StreamResponse | None:
            if is_watch(request, "agentruns"):
                response = web.StreamResponse()
                await response.prepare(request)
                await asyncio.sleep(30)
            return None

        app = b.apps[0][0]
        b.api.faults.append(silent)
        await asyncio.sleep(5.5)
        b.api.put("agentruns", manifest())
        await b.pod()  # by the sweep
        await b.until(lambda: "agentruns" in app.probe.silent_seconds(), 5)

    play(scenario, watch_timeout=5.0, watch_inactivity=30.0)


# --- the store


def test_while_the_store_is_away_nothing_is_made_or_deleted_and_no_phase_changes(
    play: Play, make_database: Callable[[], str]
) -> None:
    with Proxy(make_database()) as proxy:

        async def scenario(b: Bench) -> None:
            b.api.put("agentruns", manifest())
            runner = await b.runner()
            await b.phase("Running")
            proxy.refuse()
            b.api.put("agentruns", manifest("new"))
            end_pod(b.api, runner.pod, 137, disruption="EvictionByEvictionAPI")

            def unavailable(name: str) -> bool:
                conditions = b.status(name).get("conditions") or []
                return any(c["reason"] == "StoreUnavailable" for c in conditions)

            await b.until(lambda: unavailable("hello") and unavailable("new"))
            async with aiohttp.ClientSession() as session:
                port = b.apps[0][0].port
                url = f"http://127.0.0.1:{port}/readyz"
                async with session.get(url) as answer:
                    await b.until(lambda: b.apps[0][0].health.unready())
                async with session.get(f"http://127.0.0.1:{port}/healthz") as answer:
                    assert answer.status == 200
            await asyncio.sleep(1.0)
            assert b.status("hello")["phase"] == "Running"
            assert len(b.api.all("pods")) == 1
            proxy.heal()
            await b.pod(2, "hello")
            await b.pod(1, "new")
            status = await b.phase("Pending", name="hello")
            assert (status["disruptions"], status["failures"]) == (1, 0)

        play(scenario, dsn=proxy.dsn)


# --- the API server


def test_a_status_that_changed_meanwhile_is_looked_at_again(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        hits = 0

        async def meddle(request: web.Request, body: Body) -> None:
            nonlocal hits
            if request.method == "PATCH" and hits < 3:
                hits += 1
                b.api.edit("agentruns", "hello", lambda o: o["metadata"].update(annotations={"n": str(hits)}))

        b.api.faults.append(meddle)
        b.api.put("agentruns", manifest())
        await b.phase("Pending", "Starting")
        assert hits == 3 and len(b.api.pods_of("hello")) == 1

    play(scenario)


def test_a_crd_that_lacks_a_field_is_told_loudly_and_not_written_to_for_ever(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(b: Bench) -> None:
        b.api.status_fields = {
            "phase",
            "reason",
            "runID",
            "conditions",
            "observedGeneration",
            "attempt",
            "pod",
        }
        b.api.put("agentruns", manifest())
        await b.runner()
        await b.phase("Running")
        await asyncio.sleep(1.5)
        patches = [w for w in b.api.writes_about("hello") if w.verb == "patch"]
        assert len(patches) <= 4
        assert "OldCRD" in [e["reason"] for e in b.api.events_about("hello")]

    play(scenario)
    assert "status.disruptions" in caplog.text


def test_a_crd_that_is_brought_up_to_date_gets_the_fields_that_it_lacked(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentrun_operator.tell.PRUNED_SECONDS", 1.0)

    async def scenario(b: Bench) -> None:
        b.api.status_fields = {
            "phase",
            "reason",
            "runID",
            "conditions",
            "observedGeneration",
            "attempt",
            "pod",
        }
        b.api.put("agentruns", manifest())
        runner = await b.runner()
        await b.phase("Running")
        pruned = b.apps[0][0].metrics.pruned
        assert "disruptions" not in b.status() and pruned._value.get() > 0
        b.api.status_fields = None
        await asyncio.sleep(1.0)
        await runner.end(pb.OUTCOME_SUCCEEDED)
        end_pod(b.api, runner.pod, 0)
        assert (await b.phase("Succeeded"))["disruptions"] == 0
        assert pruned._value.get() == 0

    play(scenario)


def test_the_operator_waits_for_its_crd(
    make_database: Callable[[], str], tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        monkeypatch.setattr("agentrun_operator.app.RETRY_SECONDS", 0.2)
        async with bench(make_database(), tmp_path, monkeypatch, started=False) as b:  # type: ignore[arg-type]
            b.api.served = False
            starting = asyncio.create_task(b.start())
            await asyncio.sleep(1.0)
            assert b.apps[0][0].health.unready()
            b.api.served = True
            await starting
            b.api.put("agentruns", manifest())
            await b.pod()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_an_operator_with_nothing_to_do_says_that_its_store_is_there(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        app = b.apps[0][0]
        await b.until(lambda: app.health.swept_at)
        url = f"http://127.0.0.1:{app.port}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            assert "agentrun_operator_store_up 1.0" in await answer.text()

    play(scenario)


def test_metrics_and_health_are_served(play: Play) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest())
        await b.runner()
        await b.phase("Running")
        await asyncio.sleep(1.2)
        async with aiohttp.ClientSession() as session:
            base = f"http://127.0.0.1:{b.apps[0][0].port}"
            for path in ("/healthz", "/readyz"):
                async with session.get(base + path) as answer:
                    assert (answer.status, await answer.text()) == (200, "ok\n")
            async with session.get(base + "/metrics") as answer:
                text = await answer.text()
        assert 'agentrun_runs{phase="Running"} 1.0' in text
        assert 'agentrun_operator_api_requests_total{code="201",resource="pods",verb="post"} 1.0' in text
        assert "hello" not in text and "demo" not in text

    play(scenario)
