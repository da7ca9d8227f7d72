"""Two processes on one run: the one that was stopped wakes up, and does nothing more."""

from __future__ import annotations

import time
from signal import SIGCONT, SIGSTOP
from typing import Any

from agentrun.log.tail import FRESH_SECONDS_MAX
from tests.support.chaos import call, http_tool, lookup, manifest, records, says, sound
from tests.support.commands import Commands, Running
from tests.support.proxy import Proxy
from tests.support.stub_model import Request, StubModel, completion
from tests.support.stub_tools import Answer, StubTools

HELD, FENCED = 2, 76
PACK = "SELECT * FROM unnest"
"""Only the statement that appends several records holds this."""


def asks_for(count: int, seconds: float) -> dict[str, Any]:
    """A completion that calls `lookup` so often at once."""
    return completion(
        "All at once.",
        calls=[("lookup", f'{{"topic": "{n}", "seconds": {seconds}}}', f"c{n}") for n in range(count)],
    )


def two_turns(count: int, seconds: float) -> Any:
    """One batch, then the answer: decided by what was said, whoever asks."""

    def reply(request: Request) -> Any:
        answered = any(message["role"] == "tool" for message in request.messages)
        return completion("done") if answered else asks_for(count, seconds)

    return reply


def wakes_up(agentrun: Commands, first: Running, run_id: str, stub: StubModel | None = None) -> None:
    """The first process goes on after all is over: not one more call, and not one more record."""
    calls, asked = agentrun.calls(), stub.count if stub else 0
    log = records(agentrun.dsn, run_id)
    first.signal(SIGCONT)
    ended = first.wait()
    assert ended.code == FENCED, ended
    assert "another process has taken the run over" in ended.err
    assert agentrun.calls() == calls, "it called a tool"
    assert not stub or stub.count == asked, "it called the model"
    assert records(agentrun.dsn, run_id) == log
    history = sound(agentrun.dsn, run_id)
    assert history.final is not None and history.epoch == 2
    outcomes = [attempt["outcome"] for attempt in agentrun.show(run_id)["attempts"]]
    assert outcomes == ["Disrupted", "Succeeded"], outcomes


def test_a_stopped_process_with_ready_nodes_wakes_up_and_calls_nothing(
    agentrun: Commands, run_id: str
) -> None:
    with StubModel(two_turns(6, 0.4), strict=True) as stub:
        file = agentrun.write(manifest(model=stub.url, tools=[lookup()], concurrency=2))
        first = agentrun.start("run", file, "--run-id", run_id)
        first.until(lambda: len(agentrun.calls()) == 2)
        first.signal(SIGSTOP)
        assert set(agentrun.calls()) == {"call-1-0", "call-1-1"}, "four are ready, and wait"
        refused = agentrun("run", file, "--run-id", run_id)
        assert refused.code == HELD and "--take-over" in refused.err, refused
        second = agentrun("run", file, "--run-id", run_id, "--take-over")
        assert (second.code, second.out) == (0, "done\n"), second.err
        wakes_up(agentrun, first, run_id, stub)
        assert stub.count == 2 and not stub.refusals, "no model call was repeated"


def six_lookups() -> dict[str, Any]:
    """A batch of which four run at once."""
    calls = [call("lookup", topic=f"{n}", seconds=0.8) for n in range(6)]
    return manifest([says("All at once.", *calls), says("done")], tools=[lookup()], concurrency=4)


def test_a_pack_of_records_meets_the_others_row(agentrun: Commands, run_id: str) -> None:
    """All calls in flight are due when it wakes up: their records go as one statement."""
    with Proxy(agentrun.dsn) as proxy:
        file = agentrun.write(six_lookups())
        first = agentrun.start("run", file, "--run-id", run_id, dsn=proxy.dsn)
        first.until(lambda: len(agentrun.calls()) == 4)
        first.signal(SIGSTOP)
        second = agentrun("run", file, "--run-id", run_id, "--take-over")
        assert (second.code, second.out) == (0, "done\n"), second.err
        wakes_up(agentrun, first, run_id)
        assert any(PACK in statement for statement in proxy.statements), "there was no pack"


def test_a_process_that_is_stopped_before_its_next_try_does_not_make_it(
    agentrun: Commands, run_id: str
) -> None:
    """It wakes up with a call that is due, and slept for longer than a confirmation is good for."""
    with StubTools() as tools:
        tools.script("/find", Answer(status=503))
        kit = [http_tool("find", tools.url("/find"), "read_only")]
        file = agentrun.write(manifest([says("Look.", call("find", n=1)), says("done")], tools=kit))
        first = agentrun.start("run", file, "--run-id", run_id)
        first.until("failed node=call-1-0#1")
        first.signal(SIGSTOP)
        at = time.monotonic()
        second = agentrun("run", file, "--run-id", run_id, "--take-over")
        assert (second.code, second.out) == (0, "done\n"), second.err
        time.sleep(max(0.0, at + FRESH_SECONDS_MAX + 0.5 - time.monotonic()))
        wakes_up(agentrun, first, run_id)
        assert tools.count("/find") == 2


def test_a_pack_that_arrives_late_leaves_no_row(agentrun: Commands, run_id: str) -> None:
    """The pack is on its way while another process takes the run over and ends it."""
    with StubModel(two_turns(4, 0.5)) as stub, Proxy(agentrun.dsn) as proxy:
        file = agentrun.write(manifest(model=stub.url, tools=[lookup()], concurrency=4))
        first = agentrun.start("run", file, "--run-id", run_id, dsn=proxy.dsn)
        first.until(lambda: len(agentrun.calls()) == 4)
        proxy.hold(PACK)
        first.signal(SIGSTOP)
        time.sleep(0.6)  # longer than the calls: they are due together when it goes on
        first.signal(SIGCONT)
        first.until(proxy.fault_was_taken)
        first.signal(SIGSTOP)
        second = agentrun("run", file, "--run-id", run_id, "--take-over")
        assert (second.code, second.out) == (0, "done\n"), second.err
        proxy.release()
        wakes_up(agentrun, first, run_id, stub)


def test_both_started_at_once_on_an_empty_log(agentrun: Commands, run_id: str) -> None:
    file = agentrun.write(
        manifest([says("Look.", call("lookup", topic="honey", seconds=0.3)), says("done")], tools=[lookup()])
    )
    both = [agentrun.start("run", file, "--run-id", run_id) for _ in range(2)]
    ended = sorted((running.wait() for running in both), key=lambda end: end.code)
    # The loser is refused before it has begun, or comes when all is over.
    assert ended[0].code == 0 and ended[1].code in (0, HELD), ended
    assert agentrun.calls() == {"call-1-0": 1}
    assert sound(agentrun.dsn, run_id).final is not None
