"""The database goes away in every way that databases do: the run ends well, no call is repeated."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from agentrun.local.embedded import EmbeddedPostgres
from tests.support.chaos import call, lookup, manifest, query, records, says, sound
from tests.support.commands import Commands, Running
from tests.support.proxy import Proxy
from tests.support.stub_model import Reply, Request, StubModel, completion

APPEND = "INSERT INTO run_log"


def turns_of(count: int, *, delay: float, seconds: float) -> Any:
    """A conversation of `count` turns that call `lookup`, and an answer; each turn takes `delay`."""

    def reply(request: Request) -> Reply:
        said = sum(message["role"] == "assistant" for message in request.messages)
        if said >= count:
            return Reply(body=completion("done"), delay_seconds=delay)
        arguments = json.dumps({"topic": f"topic {said}", "seconds": seconds})
        return Reply(body=completion("Next.", calls=[("lookup", arguments)]), delay_seconds=delay)

    return reply


def started(agentrun: Commands, stub: StubModel, run_id: str, **options: Any) -> Running:
    file = agentrun.write(manifest(model=stub.url, tools=[lookup()]))
    return agentrun.start("run", file, "--run-id", run_id, **options)


def ends_well(agentrun: Commands, running: Running, stub: StubModel, run_id: str, turns: int) -> None:
    """Each turn was asked for once, each tool called once, and the log has it all, once."""
    ended = running.wait()
    assert (ended.code, ended.out) == (0, "done\n"), ended
    assert stub.count == turns + 1 and not stub.refusals
    assert dict(agentrun.calls()) == {f"call-{n + 1}-0": 1 for n in range(turns)}
    history = sound(agentrun.dsn, run_id)
    assert history.final is not None and history.totals.retries == 0
    assert history.attempt == 1, "one process did it all"


def test_the_server_crashes_and_comes_back_five_times(
    agentrun: Commands, postgres: EmbeddedPostgres, run_id: str
) -> None:
    with StubModel(turns_of(6, delay=0.2, seconds=0.2), strict=True) as stub:
        running = started(agentrun, stub, run_id)
        for number in range(1, 6):
            # Asking at one time, and calling a tool at another.
            if number % 2:
                running.until(lambda number=number: stub.count > number)  # type: ignore[misc]
            else:
                running.until(lambda number=number: len(agentrun.calls()) >= number)  # type: ignore[misc]
            postgres.restart_immediate()
        ends_well(agentrun, running, stub, run_id, 6)


def test_replies_are_lost_requests_are_lost_connections_are_reset(agentrun: Commands, run_id: str) -> None:
    with (
        StubModel(turns_of(8, delay=0.05, seconds=0.05), strict=True) as stub,
        Proxy(agentrun.dsn) as proxy,
    ):
        running = started(agentrun, stub, run_id, dsn=proxy.dsn)
        running.until("finished node=turn-1")
        for fault in (proxy.lose_reply, proxy.lose_request, proxy.lose_reply):
            fault(APPEND)
            running.until(proxy.fault_was_taken)
        for turn in (5, 6):
            running.until(f"finished node=turn-{turn}")
            proxy.reset()
        running.until("finished node=turn-7")
        proxy.refuse()
        time.sleep(1.0)
        proxy.heal()
        ends_well(agentrun, running, stub, run_id, 8)


def test_the_replies_of_the_claim_and_of_the_end_are_lost(agentrun: Commands, run_id: str) -> None:
    what = manifest(
        [says("Look.", call("lookup", topic="honey", seconds=0.1)), says("done")], tools=[lookup()]
    )
    with Proxy(agentrun.dsn) as proxy:
        for place, text in enumerate(
            (
                "INSERT INTO run (",
                "SET epoch = CASE",
                "max(seq), 0) + 1 FROM",
                "AS (\n    UPDATE run SET ended",
            )
        ):
            one = f"{run_id[:-1]}{place}"
            proxy.lose_reply(text)
            ended = agentrun("run", agentrun.write(what), "--run-id", one, dsn=proxy.dsn)
            assert proxy.fault_was_taken(), text
            assert (ended.code, ended.out) == (0, "done\n"), (text, ended)
            history = sound(agentrun.dsn, one)
            assert history.final is not None and history.attempt == history.epoch == 1, text


@pytest.mark.parametrize("seconds", [3.0, 12.0])
def test_packets_vanish(agentrun: Commands, run_id: str, seconds: float) -> None:
    """For shorter and for longer than a statement may take."""
    with (
        StubModel(turns_of(4, delay=0.05, seconds=0.05), strict=True) as stub,
        Proxy(agentrun.dsn) as proxy,
    ):
        running = started(agentrun, stub, run_id, dsn=proxy.dsn)
        running.until("finished node=turn-2")
        proxy.black_hole()
        asked = stub.count
        time.sleep(seconds)
        assert stub.count <= asked + 1, "it went on without a log"
        proxy.heal()
        ends_well(agentrun, running, stub, run_id, 4)


@contextmanager
def read_only(dsn: str) -> Iterator[None]:
    """The whole server takes no writes, as after it lost its role."""
    try:
        query(dsn, "ALTER SYSTEM SET default_transaction_read_only = on")
        query(dsn, "SELECT pg_reload_conf()")
        yield
    finally:
        query(dsn, "ALTER SYSTEM RESET default_transaction_read_only")
        query(dsn, "SELECT pg_reload_conf()")


def test_the_server_is_read_only_for_a_while(agentrun: Commands, run_id: str) -> None:
    with StubModel(turns_of(4, delay=0.1, seconds=0.1), strict=True) as stub:
        running = started(agentrun, stub, run_id)
        running.until("finished node=turn-2")
        with read_only(agentrun.dsn):
            before = len(records(agentrun.dsn, run_id))
            time.sleep(3.0)
            assert len(records(agentrun.dsn, run_id)) <= before + 1
        ends_well(agentrun, running, stub, run_id, 4)


def terminate(dsn: str, query_like: str = "%") -> int:
    """Ends the command's connections; how many there were."""
    return len(
        query(
            dsn,
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database() "
            "AND application_name = 'agentrun' AND query LIKE $1",
            query_like,
        )
    )


def test_idle_connections_are_ended_during_a_long_answer(agentrun: Commands, run_id: str) -> None:
    with StubModel(turns_of(2, delay=1.5, seconds=0.5), strict=True) as stub:
        running = started(agentrun, stub, run_id)
        for number in (1, 2, 3):
            running.until(lambda number=number: stub.count == number)  # type: ignore[misc]
            assert terminate(agentrun.dsn) >= 1
        ends_well(agentrun, running, stub, run_id, 2)


def test_who_follows_a_run_sees_each_record_once_through_all_of_it(agentrun: Commands, run_id: str) -> None:
    turns = [says("Look.", call("lookup", topic=f"t{n}", seconds=0.1), delay=0.15) for n in range(8)]
    what = manifest([*turns, says("done")], tools=[lookup()])
    with Proxy(agentrun.dsn) as proxy:
        running = agentrun.start("run", agentrun.write(what), "--run-id", run_id)
        running.until("claimed ")
        follower = agentrun.start("events", run_id, "--follow", "-o", "json", dsn=proxy.dsn)
        follower.until(lambda: follower.out)
        running.until("finished node=turn-2")
        proxy.reset()
        running.until("finished node=turn-4")
        proxy.refuse()
        running.until("finished node=turn-6")
        proxy.heal()
        assert running.wait().code == 0
        ended = follower.wait()
    assert ended.code == 0, ended.err
    seen = [json.loads(line)["seq"] for line in ended.out.splitlines()]
    assert seen == list(range(1, sound(agentrun.dsn, run_id).head + 1))
