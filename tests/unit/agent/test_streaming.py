"""Streamed turns in a run: a broken one is no turn, runs no tool, and takes back what it has shown."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import pytest

from agentrun.cli.live import LiveProgress
from agentrun.cli.progress import PlainProgress
from agentrun.graph.types import NodeContext, NodeError, NodeKind, NodeResult
from tests.support.agents import Bench
from tests.support.live_runs import LiveRun, manifest
from tests.support.stub_model import AnyReply, Reply, Request, StubModel, completion, error
from tests.support.stub_streams import events_of, framed

TOOL = {"name": "echo", "python": {"entrypoint": "tests.support.agents:echo"}, "effect": "read_only"}
Seen = tuple[str, str, int, str]


def streamed(body: Mapping[str, Any], provider: str = "openai") -> Reply:
    return Reply(pieces=framed(events_of(provider, body)))


def broken(body: Mapping[str, Any], at: str, provider: str = "openai") -> Reply:
    """The stream of `body` with an error behind the event that holds `at`."""
    pieces = framed(events_of(provider, body))
    place = next(place for place, piece in enumerate(pieces) if at.encode() in piece)
    overloaded = (
        b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"no"}}\n\n'
    )
    return Reply(pieces=[*pieces[: place + 1], overloaded])


class Watcher:
    """What passes by, as (event, node, try, text)."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []

    def __call__(self, event: str, node_id: str, fields: Mapping[str, Any]) -> None:
        if event in ("partial", "discard"):
            assert fields["attempt"] == 1
            self.seen.append((event, node_id, fields["try"], fields.get("text", "")))

    def text(self, number: int) -> str:
        """What try `number` has shown."""
        return "".join(text for event, _, n, text in self.seen if event == "partial" and n == number)


def test_a_stream_that_breaks_off_within_a_call_runs_no_tool_and_is_asked_for_again() -> None:
    usage = {"input_tokens": 1200, "output_tokens": 30}
    call = {"type": "tool_use", "id": "t", "name": "echo", "input": {"text": "a@example.com"}}
    body = {"content": [{"type": "text", "text": "Let me look."}, call], "stop_reason": "tool_use"}
    first = broken({**body, "usage": usage}, "input_json_delta", "anthropic")
    done = {"content": [{"type": "text", "text": "fine"}], "stop_reason": "end_turn", "usage": usage}
    with StubModel([first, streamed(done, "anthropic")], strict=True) as stub:
        run = LiveRun(
            manifest({"name": "anthropic:m", "baseURL": stub.origin}, agent={"tools": [TOOL]}),
        )
        watcher = Watcher()
        assert run.go(observer=watcher).reason == "Completed"
    assert run.answer == "fine" and stub.count == 2 and not stub.refusals
    assert list(run.records) == ["attempt-1.1", "user-1", "turn-1#1", "turn-1", "final"]
    failed = run.records["turn-1#1"]
    assert (failed.error.reason, failed.cost.tokens_in) == ("Overloaded", 1200)
    assert run.history.totals.retries == 1 and run.history.totals.tokens_in == 2400
    assert stub.requests[0].raw == stub.requests[1].raw, "nothing of the broken answer is in the history"
    assert watcher.text(1).startswith("Let me look.") and watcher.text(2) == "fine"
    at = watcher.seen.index(("discard", "turn-1", 1, ""))
    assert all(number == 1 for _, _, number, _ in watcher.seen[:at])
    assert all(number == 2 for _, _, number, _ in watcher.seen[at + 1 :])
    assert [event for event, *_ in watcher.seen].count("discard") == 1
    logged = b"".join(record.SerializeToString() for record in run.records.values())
    assert b"Let me look." not in logged


def test_a_server_that_refuses_options_is_found_out_once() -> None:
    """First usage in streams, then streams at all; later turns send neither."""

    def reply(request: Request) -> AnyReply:
        if "stream_options" in request.body:
            return error(400, "unknown field: stream_options")
        if request.body["stream"]:
            return error(400, "stream: true is not supported")
        return (
            completion("done") if len(request.messages) > 2 else completion(calls=[("echo", '{"text":"a"}')])
        )

    with StubModel(reply) as stub:
        run = LiveRun(manifest({"name": "openai:m", "baseURL": stub.url}, agent={"tools": [TOOL]}))
        assert run.go().reason == "Completed"
    assert stub.count == 4 and run.history.totals.retries == 2


def test_a_run_that_is_stopped_takes_back_what_it_has_shown() -> None:
    watcher = Watcher()

    async def shows(node: NodeContext) -> NodeResult:
        node.partial("text", "half")
        if node.try_number == 1:
            raise NodeError("Odd", "no", retryable=True, retry_after_seconds=0)
        node.partial("text", "whole")
        return NodeResult()

    bench = Bench({"start": NodeKind(name="start", run=shows)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench, "_observe", watcher)
        bench.resume()
    assert watcher.seen == [
        ("partial", "start", 1, "half"),
        ("discard", "start", 1, ""),
        ("partial", "start", 2, "half"),
        ("partial", "start", 2, "whole"),
    ]


def test_the_display_shows_what_is_coming_and_forgets_what_is_taken_back() -> None:
    progress = LiveProgress(io.StringIO())

    def shown() -> str:
        with progress._console.capture() as capture:
            progress._console.print(progress._render())
        return capture.get()

    where = {"attempt": 1, "try": 1}
    progress.observe("launched", "turn-1", {**where, "kind": "run_assistant_turn"})
    for text in ("The answer\nis ", "near", "x" * 10_000, " the end"):
        progress.observe("partial", "turn-1", {**where, "kind": "text", "text": text})
    assert "x the end" in shown() and "The answer" not in shown()
    progress.observe("partial", "turn-9", {**where, "kind": "text", "text": "of a node that is over"})
    assert "is over" not in shown()
    progress.observe("discard", "turn-1", where)
    assert "the end" not in shown() and "turn 1" in shown()


def test_plain_lines_are_for_what_is_in_the_log() -> None:
    stream = io.StringIO()
    progress = PlainProgress(stream)
    progress.observe("partial", "turn-1", {"attempt": 1, "try": 1, "kind": "text", "text": "psst"})
    progress.observe("discard", "turn-1", {"attempt": 1, "try": 1})
    assert stream.getvalue() == ""


def test_chunks_of_two_runs_do_not_meet() -> None:
    """Each answer goes to the node that asked for it, however the streams run beside each other."""

    def reply(request: Request) -> AnyReply:
        word = json.dumps(request.messages[-1]["content"])[1:4]
        if word == "Go ":
            calls = [("one", '{"task": "AAA"}', "a"), ("two", '{"task": "BBB"}', "b")]
            return completion(calls=calls)
        return Reply(pieces=framed(events_of("openai", completion(word * 50))), piece_delay_seconds=0.002)

    with StubModel(lambda r: "done" if r.messages[-1]["role"] == "tool" else reply(r)) as stub:
        model = {"name": "openai:m", "baseURL": stub.url}
        subs = [{"name": name, "model": model} for name in ("one", "two")]
        what = manifest(model, agent={"tools": [{"agent": "one"}, {"agent": "two"}]}, agents=subs)
        watcher = Watcher()
        assert LiveRun(what).go(observer=watcher).reason == "Completed"
    for node, word in (("call-1-0/turn-1", "AAA"), ("call-1-1/turn-1", "BBB")):
        assert "".join(text for _, id_, _, text in watcher.seen if id_ == node) == word * 50
