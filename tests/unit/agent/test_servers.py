"""Tool servers: their tools are listed once, recorded, and told from the record."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentrun.agent.servers import ServerEntry
from agentrun.log.runlog import INLINE_BYTES_MAX
from agentrun.proto import log_pb2
from agentrun.proto import transcript_pb2 as pb
from agentrun.spec.agent import READ_RESULT
from agentrun.tools import Effect, ToolOutput
from agentrun.tools.base import ServerTool
from tests.support.agents import Crash, agent, call, manifest, tool
from tests.support.tool_servers import FakeServer, ServerBench, entry


def one_call(name: str = "read", *tools: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return manifest([{"toolCalls": [call(name, path="a")]}, {"text": "the end"}], tools, **spec)


def fake(found: ServerEntry) -> FakeServer:
    assert isinstance(found.server, FakeServer)
    return found.server


READ = ServerTool(name="read", effect=Effect.READ_ONLY, description="Reads.")
WRITE = ServerTool(name="write", parameters={"type": "object", "required": None})


def test_servers_list_side_by_side_before_the_first_turn() -> None:
    entries = [entry("files", [READ], seconds=5.0), entry("web", [WRITE], seconds=5.0)]
    bench = ServerBench(one_call(), {"": entries})
    assert bench.resume().reason == "Completed"
    assert sorted(bench.ids[1:3]) == ["list-files", "list-web"]
    assert bench.ids[3:] == ["turn-1", "tools-1", "call-1-0", "turn-2", "final"]
    assert list(bench.record("turn-1").parents) == ["list-files", "list-web"]
    ends = [bench.record(id_).finished_us for id_ in ("list-files", "list-web")]
    assert abs(ends[0] - ends[1]) < 1_000_000
    assert bench.asked[0].body["tools"] == ["read", "write", READ_RESULT]
    assert fake(entries[0]).called == [("read", '{"path": "a"}', f"{bench.run_id}:call-1-0")]


def test_without_servers_the_graph_is_as_it_was() -> None:
    bench = ServerBench(one_call("echo", tool("echo")), {})
    bench.resume()
    assert bench.ids == ["user-1", "turn-1", "tools-1", "call-1-0", "turn-2", "final"]
    assert list(bench.record("turn-1").parents) == ["user-1"]


@pytest.mark.parametrize("append", range(2, 9))
def test_a_resume_tells_the_same_tools_whatever_the_server_lists_by_then(append: int) -> None:
    found = entry("files", [READ, WRITE])
    bench = ServerBench(one_call(), {"": [found]})
    assert bench.run(Crash(append=append)) is None
    listed = "list-files" in bench.ids
    fake(found).tools = [ServerTool(name="other"), READ]
    bench.resume()
    told = {tuple(asked.body["tools"]) for asked in bench.asked}
    assert told == ({("read", "write", READ_RESULT)} if listed else {("other", "read", READ_RESULT)})
    assert fake(found).listings == (2 if append == 3 else 1)  # killed before the list was recorded
    bench.check_transcripts()


def test_a_sub_agent_lists_the_tools_of_its_own_servers() -> None:
    inner = agent([{"toolCalls": [call("read")]}, {"text": "inner"}], [])
    outer = manifest(
        [{"toolCalls": [call("helper", task="x")]}, {"text": "outer"}],
        [{"agent": "helper"}],
        agents={"helper": inner},
    )
    bench = ServerBench(outer, {"helper": [entry("files", [READ])]})
    assert bench.resume().reason == "Completed"
    assert "call-1-0/list-files" in bench.ids
    assert "list-files" not in bench.ids
    assert [a.body["tools"] for a in bench.asked] == [
        [*names, READ_RESULT] for names in (["helper"], ["read"], ["read"], ["helper"])
    ]


def test_a_server_that_is_away_at_first_is_tried_again() -> None:
    bench = ServerBench(one_call(), {"": [entry("files", [READ], away=2)]})
    assert bench.resume().reason == "Completed"
    assert [id_ for id_ in bench.ids if id_.startswith("list-")] == [
        "list-files#1",
        "list-files#2",
        "list-files",
    ]
    assert bench.history.totals.retries == 2


def test_a_server_that_stays_away_parks_the_run_which_goes_on_when_it_is_back() -> None:
    bench = ServerBench(one_call(), {"": [entry("files", [READ], away=4)]})
    outcome = bench.resume()
    assert (outcome.paused, outcome.reason) == (True, "ToolServerUnavailable")
    assert outcome.message == "files: connection refused"
    assert not bench.asked
    assert bench.resume().reason == "Completed"
    assert bench.history.totals.retries == 4


@pytest.mark.parametrize("on_exceeded", ["Pause", "Fail"])
def test_without_retries_the_run_parks_at_once_and_does_not_fail(on_exceeded: str) -> None:
    budget = {"retries": 0, "onExceeded": on_exceeded}
    bench = ServerBench(one_call(budget=budget), {"": [entry("files", [READ], away=1)]})
    outcome = bench.resume()
    assert (outcome.paused, outcome.reason) == (True, "ToolServerUnavailable")


def test_a_server_that_refuses_us_ends_the_run() -> None:
    bench = ServerBench(one_call(), {"": [entry("files", [READ], away=9, final=True)]})
    outcome = bench.resume()
    assert (outcome.outcome, outcome.reason) == (log_pb2.OUTCOME_FAILED, "ToolServerUnavailable")
    assert bench.history.totals.retries == 0


@pytest.mark.parametrize("final", [False, True])
def test_without_an_optional_server_the_run_goes_on_and_its_model_is_told(final: bool) -> None:
    entries = [entry("files", [READ]), entry("web", away=1, final=final, optional=True)]
    bench = ServerBench(one_call(), {"": entries})
    assert bench.resume().reason == "Completed"
    told = {asked.body["messages"][0]["content"] for asked in bench.asked}
    note = "The tools of the server 'web' are not available: it could not be reached."
    assert told == {f"Be brief.\n\n{note}"}
    output = pb.ToolList.FromString(bench.record("list-web").output.inline)
    assert output.unavailable == "connection refused"


def test_a_call_of_an_unsafe_tool_that_was_cut_off_is_not_made_again() -> None:
    found = entry("files", [WRITE])
    bench = ServerBench(one_call("write"), {"": [found]})
    assert bench.run(Crash(append=7)) is None  # the call's result
    assert bench.ids[-1] == "call-1-0!intent"
    bench.resume()
    assert len(fake(found).called) == 1
    assert bench.result("call-1-0").outcome == pb.TOOL_OUTCOME_UNKNOWN


def test_names_are_mapped_back_on_the_call() -> None:
    odd, plain = ServerTool(name="a.b/é", effect=Effect.READ_ONLY), READ
    entries = [entry("one", [odd, plain]), entry("two", [plain])]
    bench = ServerBench(one_call("two_read", tool("echo")), {"": entries})
    bench.resume()
    assert bench.asked[0].body["tools"] == ["echo", "a_b__", "one_read", "two_read", READ_RESULT]
    assert [name for name, _, _ in fake(entries[1]).called] == ["read"]
    assert not fake(entries[0]).called


def test_what_is_attached_to_a_result_is_kept_beside_it_and_not_told() -> None:
    data = b"\x89PNG" + bytes(INLINE_BYTES_MAX)
    kept = [log_pb2.Payload(inline=data, media_type="image/png"), log_pb2.Payload(inline=b"small")]
    output = ToolOutput(content="[image/png, 8196 bytes]", attachments=kept)
    bench = ServerBench(one_call(), {"": [entry("files", [READ], output=output)]})
    bench.resume()
    large, small = bench.record("call-1-0").attachments
    assert (large.WhichOneof("where"), large.media_type) == ("blob", "image/png")
    assert bench.database.runs[bench.run_id].blobs[large.blob.sha256] == data
    assert small.inline == b"small"
    assert bench.result("call-1-0").content == "[image/png, 8196 bytes]"


@pytest.mark.parametrize(("choice", "reason"), [("read", "Completed"), ("reed", "ToolNotFound")])
def test_a_choice_of_a_tool_is_checked_when_the_servers_have_listed_theirs(choice: str, reason: str) -> None:
    asked = one_call("read", {"name": "files", "mcp": {"command": ["x"]}})
    asked["spec"]["agent"]["model"]["settings"] = {"toolChoice": choice}
    bench = ServerBench(asked, {"": [entry("files", [READ])]})
    assert bench.resume().reason == reason


def test_a_tool_that_no_provider_takes_is_left_out_and_named() -> None:
    bad = ServerTool(name="bad", parameters={"type": "string"})
    bench = ServerBench(one_call(), {"": [entry("files", [bad, READ])]})
    bench.resume()
    assert bench.asked[0].body["tools"] == ["read", READ_RESULT]
    output = pb.ToolList.FromString(bench.record("list-files").output.inline)
    assert "'bad'" in output.warnings[0]


def test_the_servers_own_data_of_a_tool_comes_back_with_the_call() -> None:
    seen: list[ServerTool] = []

    class Remembering(FakeServer):
        async def call_tool(self, tool: ServerTool, *rest: Any) -> ToolOutput:
            seen.append(tool)
            return await super().call_tool(tool, *rest)

    bound = ServerTool(name="read", binding=b"GET /x", effect=Effect.READ_ONLY)
    found = ServerEntry(name="files", server=Remembering(tools=[bound]))
    bench = ServerBench(one_call(), {"": [found]})
    assert bench.run(Crash(append=5)) is None
    bench.resume()
    assert [t.binding for t in seen] == [b"GET /x"]
    assert json.loads(json.dumps(seen[0].parameters)) == {"type": "object", "properties": {}}
