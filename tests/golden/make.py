"""Writes the golden logs of the current format that are not there yet: `python -m tests.golden.make`.

To be run when a format is new, or has a new kind or field, before that is released. It
never touches a log that is there: those stand for what is stored out there.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping
from typing import Any

from agentrun.log.replay import FORMAT
from agentrun.log.runlog import INLINE_BYTES_MAX
from agentrun.proto import log_pb2 as pb
from agentrun.tools import Effect, ToolOutput
from agentrun.tools.base import ServerTool
from tests.golden.logs import FOLDER, Rows, write
from tests.support.agents import AgentBench, Crash, agent, call, manifest, tool
from tests.support.tool_servers import ServerBench, entry

PROCESS = b"0123456789abcdef"


def main() -> int:
    """0 where something was written."""
    folder = FOLDER / f"format-{FORMAT}"
    written = False
    for name, of_name in LOGS.items():
        if (folder / name).exists():
            print(f"{name} is there already: what a release wrote is never written anew", file=sys.stderr)
            continue
        of_name(folder / name)
        written = True
        print(f"wrote {folder / name}")
    return 0 if written else 1


def bench_of(name: str, run: Mapping[str, Any]) -> AgentBench:
    """What goes on with a golden run."""
    return servers_bench(run) if name == "servers" else AgentBench(run, seed=1)


def _write_run(folder: Any) -> None:
    random.seed(1)
    bench = bench_of("run", run_manifest())
    play(bench)
    write(folder, bench.rows, bench.database.runs[bench.run_id].blobs, run_manifest())


def _write_fields(folder: Any) -> None:
    write(folder, fields(), {})


def _write_servers(folder: Any) -> None:
    random.seed(1)
    bench = bench_of("servers", servers_manifest())
    assert bench.run(Crash(append=6)) is None
    assert bench.resume().reason == "Completed"
    write(folder, bench.rows, bench.database.runs[bench.run_id].blobs, servers_manifest())


def _write_shortened(folder: Any) -> None:
    random.seed(1)
    bench = bench_of("shortened", shortened_manifest())
    assert bench.run(Crash(append=20)) is None
    assert bench.resume().reason == "Completed"
    kinds = {record.kind for record in bench.records}
    assert kinds >= {"shorten_results", "summarise"}
    write(folder, bench.rows, bench.database.runs[bench.run_id].blobs, shortened_manifest())


def shortened_manifest() -> dict[str, Any]:
    """An agent whose results are told in part, whose window is small, and who reads on."""
    turns: list[dict[str, Any]] = [
        {"toolCalls": [call("lines", count=400, first=1000 * k), call("look", text="short")]}
        for k in range(8)
    ]
    turns[4]["toolCalls"].append(call("read_result", result="call-1-0", offset=5000, length=100))
    turns += [{"text": f"{k} " + "y" * 900, "toolCalls": [call("look", text=str(k))]} for k in range(8)]
    tools = [tool("look", "read_only", function="echo"), tool("lines")]
    run = manifest([*turns, {"text": "the answer"}], tools, budget={"turns": 100})
    run["spec"]["agent"]["model"]["contextWindow"] = 4000
    run["spec"]["agent"]["context"] = {"resultBytes": 2048, "compaction": {}}
    return run


def _write_asks(folder: Any) -> None:
    write(folder, asks(), {})


LOGS: dict[str, Callable[[Any], None]] = {
    "run": _write_run,
    "fields": _write_fields,
    "servers": _write_servers,
    "asks": _write_asks,
    "shortened": _write_shortened,
}


def servers_manifest() -> dict[str, Any]:
    """An agent with tool servers, whose names are mapped and whose results have files."""
    turns: list[dict[str, Any]] = [
        {"toolCalls": [call("one_read", path="a"), call("a_b", path="b")]},
        {"toolCalls": [call("two_read", path="c")]},
        {"text": "the answer"},
    ]
    return manifest(turns, [tool("look", "read_only", function="echo")])


def servers_bench(run: Mapping[str, Any]) -> ServerBench:
    """Two servers that share a tool's name, and one that is away."""
    read = ServerTool(name="read", effect=Effect.READ_ONLY, parameters={"type": "object"})
    odd = ServerTool(name="a.b", description="Odd.", parameters={"oneOf": [{"required": None}]}, binding=b"7")
    files = [
        pb.Payload(inline=b"\x89PNG" + bytes(INLINE_BYTES_MAX), media_type="image/png"),
        pb.Payload(inline=b"small", media_type="text/plain"),
    ]
    one = entry("one", [read, odd], output=ToolOutput(content="two files", attachments=files))
    two = entry("two", [read, ServerTool(name="bad", parameters={"type": "array"})])
    return ServerBench(run, {"": [one, two, entry("three", away=9, optional=True)]}, seed=1)


def run_manifest() -> dict[str, Any]:
    """An agent whose log has a bit of everything."""
    tools = [tool("look", "read_only", function="echo"), tool("send", "unsafe", function="echo")]
    helper = agent(
        [{"toolCalls": [call("look", text="below")]}, {"text": "from below"}],
        [tool("look", "read_only", function="echo")],
    )
    turns: list[dict[str, Any]] = [
        {"text": "first", "toolCalls": [call("look", "id", text="a"), call("send", "id", text="b")]},
        {"error": {"status": 429, "message": "slow down", "retryAfterSeconds": 5}},
        {"thinking": "hm", "toolCalls": [call("helper", task="look below"), call("look", text="x" * 8300)]},
        {"error": {"status": 401, "message": "wrong key"}},
        {"text": "half an answ", "finishReason": "length"},
        {"text": "the answer", "usage": {"inputTokens": 500, "outputTokens": 9, "cachedTokens": 450}},
    ]
    return manifest(turns, [*tools, {"agent": "helper"}], agents={"helper": helper})


def play(bench: AgentBench) -> None:
    """A crash behind an intent, a failure, a reopening, and the end."""
    assert bench.run(Crash(append=6)) is None
    assert bench.resume().reason == "Unauthorized"
    bench.reopen()
    assert bench.resume().reason == "Completed"


def fields() -> Rows:
    """Each field of each kind of record."""
    blob = pb.BlobRef(url="s3://bucket/run/hash", size_bytes=10**12, sha256=bytes(range(32)))
    cost = pb.Cost(
        tokens_in=2**40,
        tokens_out=7,
        tokens_cached=5,
        tokens_reasoning=3,
        wall_ms=1500,
        retries=1,
        turns=1,
        estimated=True,
    )
    error = pb.Error(reason="Overloaded", message="come back, é", retryable=True, retry_in_ms=30_000)
    broken = pb.Error(reason="Broken", message="for good")
    spawned = [
        pb.Spawn(id="b", kind="work", input=pb.Payload(inline=b"\0\xff", media_type="application/json")),
        pb.Spawn(id="c", kind="work", input=pb.Payload(blob=blob), parents=["a", "b"]),
        pb.Spawn(id="d", kind="work"),
    ]
    failed = pb.Final(outcome=pb.OUTCOME_FAILED, reason="Broken", message="c: for good")
    cancelled = pb.Final(outcome=pb.OUTCOME_CANCELLED, reason="Cancelled", message="enough")
    times: dict[str, Any] = {"started_us": 1_000_000, "finished_us": 2_500_000}
    text = pb.Payload(inline=b"a process", media_type="text/plain")
    records = [
        pb.NodeRecord(id="attempt-2.1", kind="attempt", attempt=2, output=text, cost=pb.Cost(retries=1)),
        pb.NodeRecord(id="a", kind="start", spawned=spawned, consumed=["message-1"], cost=cost, **times),
        pb.NodeRecord(id="b#1", kind="try", parents=["b"], error=error, cost=cost, **times),
        pb.NodeRecord(id="b#2!intent", kind="intent", parents=["b"]),
        pb.NodeRecord(id="b", kind="work", parents=["a"], output=pb.Payload(blob=blob, media_type="x/y")),
        pb.NodeRecord(id="c!intent", kind="intent", parents=["c"]),
        pb.NodeRecord(id="c#1", kind="try", parents=["c"], error=broken),
        pb.NodeRecord(id="end.1", kind="finalize_run", final=failed),
        pb.NodeRecord(id="reopened.8", kind="reopened", epoch=2),
        pb.NodeRecord(id="attempt-4.3", kind="attempt", attempt=4, epoch=3),
        pb.NodeRecord(id="c#2!intent", kind="intent", parents=["c"], epoch=3),
        pb.NodeRecord(id="c/in", kind="work", epoch=3, output=pb.Payload(inline=b"below")),
        pb.NodeRecord(id="end.3", kind="finalize_run", final=cancelled, epoch=3, output=text),
    ]
    for record in records:
        record.format = FORMAT
        record.epoch = record.epoch or 1
        record.attempt = record.attempt or (2 if record.epoch == 1 else 4)
        record.writer = PROCESS
    return [(seq, record.SerializeToString(deterministic=True)) for seq, record in enumerate(records, 1)]


def asks() -> Rows:
    """Questions to people: one that an intent, a failed try and a result have used the answer of,
    one that is open, one below a node that is done."""

    def ask(node: str, key: str = "") -> pb.NodeRecord:
        asked = pb.Ask(id=f"{node}-0{key}", reason="ApprovalRequired", subject="pay", detail='{"n": 1}')
        id_ = f"{node}{key}!ask"
        return pb.NodeRecord(id=id_, kind="ask_person", parents=[node], ask=asked, finished_us=5)

    used = ["a-0"]
    error = pb.Error(reason="Unavailable", message="nobody", retryable=True)
    records = [
        ask("a"),
        pb.NodeRecord(id="a!intent", kind="intent", parents=["a"], consumed=used),
        pb.NodeRecord(id="a#1", kind="try", parents=["a"], error=error, consumed=used),
        pb.NodeRecord(id="a", kind="tool_call", consumed=used),
        ask("b"),
        ask("b", "#1"),
        ask("c/d"),
        pb.NodeRecord(id="c", kind="tool_call"),
    ]
    for record in records:
        record.format, record.epoch, record.attempt, record.writer = FORMAT, 1, 1, PROCESS
    return [(seq, record.SerializeToString(deterministic=True)) for seq, record in enumerate(records, 1)]


if __name__ == "__main__":
    sys.exit(main())
