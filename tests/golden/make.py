"""Writes the golden logs of the current format: `python -m tests.golden.make`.

To be run once, when a format is new, before it is released. It refuses to touch a
format that has logs already: those stand for what is stored out there.
"""

from __future__ import annotations

import random
import sys
from typing import Any

from agentrun.log.replay import FORMAT
from agentrun.proto import log_pb2 as pb
from tests.golden.logs import FOLDER, Rows, write
from tests.support.agents import AgentBench, Crash, agent, call, manifest, tool

PROCESS = b"0123456789abcdef"


def main() -> int:
    folder = FOLDER / f"format-{FORMAT}"
    if folder.exists():
        print(f"{folder} is there already: what a release wrote is never written anew", file=sys.stderr)
        return 1
    random.seed(1)
    bench = AgentBench(run_manifest(), seed=1)
    play(bench)
    write(folder / "run", bench.rows, bench.database.runs[bench.run_id].blobs, run_manifest())
    write(folder / "fields", fields(), {})
    print(f"wrote {folder}")
    return 0


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


if __name__ == "__main__":
    sys.exit(main())
