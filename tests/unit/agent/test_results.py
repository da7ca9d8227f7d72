"""A long result is told in part, kept whole, and can be read on, by its own agent, also after a resume."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from agentrun.agent.results import put_aside, shown
from agentrun.proto import transcript_pb2 as pb
from agentrun.spec.agent import READ_RESULT
from tests.support.agents import AgentBench, Crash, agent, call, manifest, tool

OK, ERROR = pb.TOOL_OUTCOME_OK, pb.TOOL_OUTCOME_ERROR
CUT = re.compile(r"\n\[cut: bytes (\d+) to (\d+) of (\d+) are left out; .*\]\n")
LINES = tool("lines")
SMALL = {"resultBytes": 2048}


def result(content: str) -> pb.ToolResult:
    return pb.ToolResult(name="t", content=content, outcome=OK)


def whole(count: int) -> str:
    return "".join(f"line {number:014}\n" for number in range(count))


@pytest.mark.parametrize("content", ["", "x" * 4096, "é" * 2048, "€" * 1365, "😀" * 1024])
def test_a_result_that_fits_is_told_as_it_is(content: str) -> None:
    assert shown(result(content), "call-1-0", 4096) == (result(content), [])


@pytest.mark.parametrize("letter", ["x", "é", "€", "😀", "aé€😀"])
@pytest.mark.parametrize("more", range(1, 5))
def test_of_a_longer_one_the_head_and_the_tail_are_told_and_what_is_missing(letter: str, more: int) -> None:
    content = (letter * 4096)[: 4096 // len(letter.encode()) * len(letter)] + letter * 40 + "x" * more
    told, kept = shown(result(content), "call-7-2", 4096)
    data = content.encode()
    assert [payload.inline for payload in kept] == [data] and told.whole_bytes == len(data)
    assert len(told.content.encode()) <= 4096
    match = CUT.search(told.content)
    assert match is not None
    head, tail = told.content[: match.start()].encode(), told.content[match.end() :].encode()
    start, end, total = map(int, match.groups())
    assert (head, tail, total) == (data[:start], data[end:], len(data))
    assert len(head) + len(tail) > 4096 - 300
    assert f'{READ_RESULT}(result="call-7-2", offset={start})' in told.content


def test_an_old_result_is_one_line_that_names_it() -> None:
    told, _ = shown(result("x" * 50_000), "call-7-2", 4096)
    aside = put_aside(told, "call-7-2")
    line = '[a result of 50000 bytes was here; read_result(result="call-7-2") shows it]'
    assert (aside.content, aside.name, aside.outcome) == (line, "t", OK)
    assert put_aside(aside, "call-7-2") == aside
    assert put_aside(result("short"), "call-7-2") == result("short")


def read(**arguments: Any) -> dict[str, Any]:
    return call(READ_RESULT, **arguments)


def answers(*calls: dict[str, Any], crash: bool = False, count: int = 500) -> list[pb.ToolResult]:
    """What the calls are told behind one of `lines`, whose result is long."""
    turns: list[dict[str, Any]] = [
        {"toolCalls": [call("lines", count=count)]},
        {"toolCalls": list(calls)},
        {"text": "done"},
    ]
    run = manifest(turns, [LINES])
    run["spec"]["agent"]["context"] = SMALL
    bench = AgentBench(run)
    if crash:
        assert bench.run(Crash(append=5, after=True)) is None
    bench.resume()
    assert bench.answer == "done"
    bench.check_transcripts()
    assert bench.record("call-1-0").attachments[0].blob.size_bytes == 20 * count
    return [bench.result(f"call-2-{index}") for index in range(len(calls))]


@pytest.mark.parametrize("crash", [False, True], ids=["at once", "after a resume"])
def test_the_pages_of_a_result_are_the_whole_of_it(crash: bool) -> None:
    pages = answers(
        *(read(result="call-1-0", offset=offset) for offset in range(0, 10_000, 1792)), crash=crash
    )
    heads, texts = zip(*(page.content.split("\n", 1) for page in pages), strict=True)
    assert "".join(texts) == whole(500)
    assert heads[0] == "[call-1-0: bytes 0 to 1792 of 10000; the next page begins at 1792]"
    assert heads[-1] == "[call-1-0: bytes 8960 to 10000 of 10000; this is the end]"
    assert all(len(page.content) <= 2048 and page.outcome == OK for page in pages)


def test_a_page_can_be_shorter_and_a_number_may_be_a_text() -> None:
    (page,) = answers(read(result="call-1-0", offset="20", length=20))
    assert (
        page.content
        == "[call-1-0: bytes 20 to 40 of 10000; the next page begins at 40]\nline 00000000000001\n"
    )


def test_a_text_is_found_with_what_stands_around_it() -> None:
    found, many, none, rest = answers(
        read(result="call-1-0", find="line 00000000000042"),
        read(result="call-1-0", find="line"),
        read(result="call-1-0", find="nowhere"),
        read(result="call-1-0", find="line 00000000000042", offset=900),
    )
    head, line = found.content.splitlines()
    assert head == "[call-1-0: 1 place from byte 0 of 10000 on]"
    assert line.startswith("840: …") and "line 00000000000042 line" in line
    lines = many.content.splitlines()
    assert 2 < len(lines) <= 21 and len(many.content) <= 2048
    assert re.fullmatch(r"\[call-1-0: \d+ places from byte 0 of 10000 on; go on with offset \d+\]", lines[0])
    assert int(lines[0].rpartition(" ")[2][:-1]) == int(lines[-1].partition(":")[0]) + 20
    assert none.content == "[call-1-0: 0 places from byte 0 of 10000 on]"
    assert rest.content.startswith("[call-1-0: 0 places from byte 900")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "there is no result 'None'"),
        ({"result": 5}, "there is no result '5'"),
        ({"result": "call-9-0"}, "there is no result 'call-9-0'"),
        ({"result": "turn-1"}, "there is no result 'turn-1'"),
        ({"result": "call-1-0/call-1-0"}, "there is no result"),
        ({"result": "call-1-0", "offset": -1}, "offset must be a whole number from 0 on"),
        ({"result": "call-1-0", "offset": 1.5}, "offset must be a whole number from 0 on"),
        ({"result": "call-1-0", "length": True}, "length must be a whole number from 0 on"),
        ({"result": "call-1-0", "find": ""}, "find must be a text that is not empty"),
        ({"result": "call-1-0", "page": 2}, "there is no argument 'page'"),
    ],
)
def test_wrong_arguments_are_answered_with_what_is_wrong(arguments: dict[str, Any], said: str) -> None:
    (told,) = answers(read(**arguments))
    assert told.outcome == ERROR and told.content.startswith(f"Invalid arguments: {said}"), told.content


def test_what_lies_behind_the_end_is_an_empty_page() -> None:
    (told,) = answers(read(result="call-1-0", offset=99_999))
    assert told.content == "[call-1-0: bytes 10000 to 10000 of 10000; this is the end]\n"


def test_an_agent_reads_its_own_results_and_nobody_elses() -> None:
    inner = agent(
        [
            {"toolCalls": [call("lines", count=300, first=5000)]},
            {"toolCalls": [read(result="call-1-0"), read(result="call-1-1"), read(result="call-2-0")]},
            {"text": "below"},
        ],
        [LINES],
        context=SMALL,
    )
    turns: list[dict[str, Any]] = [
        {"toolCalls": [call("lines", count=300), call("lines", count=300)]},
        {"toolCalls": [call("helper", task="look")]},
        {"text": "done"},
    ]
    bench = AgentBench(manifest(turns, [LINES, {"agent": "helper"}], agents={"helper": inner}))
    bench.resume()
    own, other, _ = (bench.result(f"call-2-0/call-2-{index}") for index in range(3))
    assert "line 00000000005000" in own.content and own.outcome == OK
    assert other.outcome == ERROR and "there is no result 'call-1-1'" in other.content


def test_reading_costs_no_request_and_no_turn() -> None:
    turns: list[dict[str, Any]] = [
        {"toolCalls": [call("lines", count=500)]},
        {"toolCalls": [read(result="call-1-0")]},
        {"text": "x"},
    ]
    bench = AgentBench(manifest(turns, [LINES]))
    bench.resume()
    assert (len(bench.asked), bench.history.totals.turns) == (3, 3)


def test_the_tool_is_there_from_the_first_turn_on_and_not_without_other_tools() -> None:
    bench = AgentBench(manifest([{"toolCalls": [call("lines", count=1)]}, {"text": "x"}], [LINES]))
    bench.resume()
    assert [asked.body["tools"] for asked in bench.asked] == [["lines", READ_RESULT]] * 2
    bench = AgentBench(manifest([{"text": "x"}], []))
    bench.resume()
    assert bench.asked[0].body["tools"] == []


def test_what_was_recorded_before_results_were_cut_is_told_as_it_was() -> None:
    old = pb.ToolResult.FromString(result("x" * 200_000).SerializeToString())
    assert old.whole_bytes == 0 and len(old.content) == 200_000


def test_the_record_holds_what_is_told_and_points_at_the_rest() -> None:
    turns: list[dict[str, Any]] = [{"toolCalls": [call("lines", count=20_000)]}, {"text": "x"}]
    bench = AgentBench(manifest(turns, [LINES]))
    bench.resume()
    record = bench.record("call-1-0")
    assert len(record.SerializeToString()) < 1024
    blobs = bench.database.runs[bench.run_id].blobs
    assert blobs[record.attachments[0].blob.sha256] == whole(20_000).encode()
    told = json.loads(json.dumps(bench.asked[1].body["messages"][-1]["content"]))
    assert len(told) <= 32 * 1024 and told.startswith(whole(1000)) and told.endswith(whole(20_000)[-1000:])
