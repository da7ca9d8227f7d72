"""kill -9 at each moment around an unsafe call, under each policy: never a silent repetition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from agentrun.proto import transcript_pb2 as pb
from tests.integration.chaos.test_effects import told
from tests.support.chaos import call, http_tool, manifest, records, says, sound
from tests.support.chaos_proxy import NthProxy
from tests.support.commands import Commands
from tests.support.stub_tools import Answer, StubTools, wait_until

APPEND = "INSERT INTO run_log"
INTENT, RESULT = 5, 6
"""Which append of the first process they are: behind attempt, message, turn and batch."""

OK, UNKNOWN = pb.TOOL_OUTCOME_OK, pb.TOOL_OUTCOME_UNKNOWN


@dataclass(frozen=True, kw_only=True)
class Moment:
    """When the process dies. `nth`: the append that is held, and whether it is executed behind the
    kill. `made`: how often the tool was called by then; `unknown`: nobody can say what became of it."""

    nth: int = 0
    executed: bool = False
    made: int
    unknown: bool


MOMENTS = {
    "before the intent": Moment(nth=INTENT, made=0, unknown=False),
    "behind the intent": Moment(nth=INTENT, executed=True, made=0, unknown=True),
    "in the call": Moment(made=1, unknown=True),
    "before the result": Moment(nth=RESULT, made=1, unknown=True),
    "behind the result": Moment(nth=RESULT, executed=True, made=1, unknown=False),
}


def killed(agentrun: Commands, run_id: str, tools: StubTools, moment: Moment, policy: str) -> None:
    """The first process has died at the moment."""
    if not moment.nth:
        tools.script("/pay", Answer(then="hang"))
    tools.always("/pay", Answer(body=b'"paid"'))
    kit = [http_tool("pay", tools.url("/pay"), onUnknown=policy)]
    turns = [says("I pay.", call("pay", n=1)), says("done")]
    file = agentrun.write(manifest(turns, tools=kit))
    with NthProxy(agentrun.dsn) as proxy:
        if moment.nth:
            proxy.hold_nth(moment.nth, APPEND)
        running = agentrun.start("run", file, "--run-id", run_id, dsn=proxy.dsn)
        running.until(proxy.fault_was_taken if moment.nth else lambda: tools.count("/pay") == 1)
        running.kill()
        if moment.executed:
            before = len(records(agentrun.dsn, run_id))
            proxy.release()
            assert wait_until(lambda: len(records(agentrun.dsn, run_id)) > before, 10.0)
    assert tools.count("/pay") == moment.made
    stands = records(agentrun.dsn, run_id)
    assert ("call-1-0!intent" in stands) == (moment.nth != INTENT or moment.executed)
    assert ("call-1-0" in stands) == (moment.nth == RESULT and moment.executed)


def answer(agentrun: Commands, run_id: str, what: str, *more: Any) -> None:
    """Says something to the one call that waits."""
    (waits,) = agentrun("approvals", run_id, "-o", "json").json["calls"]
    assert (waits["node"], waits["reason"]) == ("call-1-0", "OutcomeUnknown")
    assert agentrun(what, run_id, waits["id"], *more).code == 0


@pytest.mark.parametrize("name", MOMENTS)
@pytest.mark.parametrize("policy", ["Report", "Retry", "Ask"])
def test_a_kill_around_an_unsafe_call(agentrun: Commands, run_id: str, policy: str, name: str) -> None:
    moment = MOMENTS[name]
    with StubTools() as tools:
        killed(agentrun, run_id, tools, moment, policy)
        ended = agentrun("resume", run_id)
        if moment.unknown and policy == "Ask":
            assert ended.code == 75 and "paused (OutcomeUnknown): 1 call waits" in ended.err, ended
            assert tools.count("/pay") == moment.made, "and nothing was called meanwhile"
            answer(agentrun, run_id, "approve")
            ended = agentrun("resume", run_id)
        assert (ended.code, ended.out) == (0, "done\n"), ended
        reported = moment.unknown and policy == "Report"
        repeated = moment.made == 1 and moment.unknown and not reported
        made = moment.made if reported else 1 + repeated
        assert tools.count("/pay", key=f"{run_id}:call-1-0") == tools.count("/pay") == made
        assert told(agentrun, run_id).outcome == (UNKNOWN if reported else OK)
        history = sound(agentrun.dsn, run_id)
        again = moment.unknown and not reported
        assert history.totals.retries == 1 + again, "one for the crash, and one where it is made again"


@pytest.mark.parametrize("name", [name for name, moment in MOMENTS.items() if moment.unknown])
def test_a_person_may_say_that_it_is_not_made_again(agentrun: Commands, run_id: str, name: str) -> None:
    moment = MOMENTS[name]
    with StubTools() as tools:
        killed(agentrun, run_id, tools, moment, "Ask")
        assert agentrun("resume", run_id).code == 75
        answer(agentrun, run_id, "deny", "--reason", "the bank has it")
        assert agentrun("resume", run_id).code == 0
        assert tools.count("/pay") == moment.made
        result = told(agentrun, run_id)
        assert result.outcome == UNKNOWN and result.content.endswith("The reason given: the bank has it")
        assert sound(agentrun.dsn, run_id).totals.retries == 1, "the crash alone"
