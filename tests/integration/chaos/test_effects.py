"""A process dies between a call's start and its record: what happens to the call is its effect's matter."""

from __future__ import annotations

from typing import Any

import pytest

from agentrun.proto import transcript_pb2 as pb
from tests.support.chaos import call, http_tool, manifest, records, says, shown, sound, sums
from tests.support.commands import Commands, Ended
from tests.support.stub_model import Request, StubModel, completion
from tests.support.stub_tools import Answer, StubTools


def killed_in_the_call(
    agentrun: Commands, run_id: str, tools: StubTools, *, model: str = "", **tool: Any
) -> Ended:
    """The first process dies while the tool has the call; how the second one ended."""
    tools.script("/pay", Answer(then="hang"))
    tools.always("/pay", Answer(body=b'"paid"'))
    turns = [says("I pay.", call("pay", n=1)), says("done")]
    kit = [http_tool("pay", tools.url("/pay"), **tool)]
    file = agentrun.write(manifest(turns, model=model, tools=kit))
    running = agentrun.start("run", file, "--run-id", run_id)
    running.until(lambda: tools.count("/pay") == 1)
    running.kill()
    return agentrun("resume", run_id)


def told(agentrun: Commands, run_id: str, node: str = "call-1-0") -> pb.ToolResult:
    """What the model is told of a call."""
    return pb.ToolResult.FromString(records(agentrun.dsn, run_id)[node].output.inline)


def test_an_unsafe_call_is_not_made_again_and_the_model_is_told(agentrun: Commands, run_id: str) -> None:
    def pays(request: Request) -> dict[str, Any]:
        results = [str(message["content"]) for message in request.messages if message["role"] == "tool"]
        return completion(results[0]) if results else completion("I pay.", calls=[("pay", '{"n": 1}')])

    with StubModel(pays, strict=True) as stub, StubTools() as tools:
        ended = killed_in_the_call(agentrun, run_id, tools, model=stub.url)
        assert ended.code == 0 and "The outcome is unknown" in ended.out, ended
        assert tools.count("/pay") == 1 and stub.count == 2 and not stub.refusals
        assert told(agentrun, run_id).outcome == pb.TOOL_OUTCOME_UNKNOWN
        history = sound(agentrun.dsn, run_id)
        assert history.totals.retries == 1, "the crash, and nothing else"


def test_an_unsafe_call_that_may_be_repeated_draws_a_retry(agentrun: Commands, run_id: str) -> None:
    with StubTools() as tools:
        ended = killed_in_the_call(agentrun, run_id, tools, onUnknown="Retry")
        assert (ended.code, ended.out) == (0, "done\n"), ended
        assert tools.count("/pay", key=f"{run_id}:call-1-0") == 2, "with the same key"
        assert "paid" in told(agentrun, run_id).content
        history = sound(agentrun.dsn, run_id)
        assert history.totals.retries == 2, "one for the crash, one for the call"
        assert history.tries == {"call-1-0": 1}
        assert shown(agentrun.show(run_id)["budget"]) == sums(agentrun.events(run_id))


@pytest.mark.parametrize("effect", ["read_only", "idempotent"])
def test_a_call_that_may_be_repeated_is(agentrun: Commands, run_id: str, effect: str) -> None:
    with StubTools() as tools:
        ended = killed_in_the_call(agentrun, run_id, tools, effect=effect)
        assert (ended.code, ended.out) == (0, "done\n"), ended
        assert tools.count("/pay", key=f"{run_id}:call-1-0") == tools.count("/pay") == 2
        assert "paid" in told(agentrun, run_id).content
        assert not any(id_.endswith("!intent") for id_ in records(agentrun.dsn, run_id))
        assert sound(agentrun.dsn, run_id).totals.retries == 1, "the crash alone"


def test_finished_siblings_are_kept_and_only_the_rest_runs(agentrun: Commands, run_id: str) -> None:
    """Two of three calls are recorded when the process dies, and the third is under way."""
    names = ("mail", "row", "notify")
    with StubTools() as tools:
        tools.script("/notify", Answer(then="hang"))
        for name in names:
            tools.always(f"/{name}", Answer(body=f'"{name} done"'.encode()))
        effects = {"notify": "idempotent"}
        kit = [http_tool(name, tools.url(f"/{name}"), effects.get(name, "unsafe")) for name in names]
        what = manifest([says("All.", *(call(name, n=1) for name in names)), says("done")], tools=kit)
        running = agentrun.start("run", agentrun.write(what), "--run-id", run_id)
        running.until(lambda: {"call-1-0", "call-1-1"} <= set(records(agentrun.dsn, run_id)))
        running.until(lambda: tools.count("/notify") == 1)
        running.kill()
        ended = agentrun("resume", run_id)
        assert (ended.code, ended.out) == (0, "done\n"), ended
        assert [tools.count(f"/{name}") for name in names] == [1, 1, 2]
        for index, name in enumerate(names):
            assert f"{name} done" in told(agentrun, run_id, f"call-1-{index}").content


def test_a_call_that_fails_and_one_that_hangs_lose_no_siblings_result(
    agentrun: Commands, run_id: str
) -> None:
    names = ("mail", "fails", "hangs")
    with StubTools() as tools:
        tools.always("/mail", Answer(body=b'"sent"', delay_seconds=0.3))
        tools.always("/fails", Answer(status=500, body=b'"broken"'))
        tools.always("/hangs", Answer(then="hang"))
        kit = [http_tool(name, tools.url(f"/{name}"), timeoutSeconds=1) for name in names]
        what = manifest([says("All.", *(call(name, n=1) for name in names)), says("done")], tools=kit)
        ended = agentrun("run", agentrun.write(what), "--run-id", run_id)
        assert (ended.code, ended.out) == (0, "done\n"), ended
        assert [tools.count(f"/{name}") for name in names] == [1, 1, 1], "no unsafe call is made twice"
        outcomes = [told(agentrun, run_id, f"call-1-{index}").outcome for index in range(3)]
        assert outcomes[0] == pb.TOOL_OUTCOME_OK
        assert outcomes[1] in (pb.TOOL_OUTCOME_ERROR, pb.TOOL_OUTCOME_UNKNOWN)
        assert outcomes[2] == pb.TOOL_OUTCOME_TIMED_OUT
        assert sound(agentrun.dsn, run_id).totals.retries == 0
