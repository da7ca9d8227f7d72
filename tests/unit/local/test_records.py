"""What records say."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from agentrun.local.records import answer_of, called_tool, describe, instant, moment, one_line
from agentrun.proto import log_pb2 as pb
from agentrun.proto import transcript_pb2 as transcript

PROTOBUF = "application/x-protobuf"


def turn(*names: str, text: str = "") -> transcript.AssistantTurn:
    parts = [transcript.Part(text=transcript.TextPart(text=text))] if text else []
    parts += [
        transcript.Part(tool_call=transcript.ToolCallPart(name=name, arguments=f'{{"of": "{name}"}}'))
        for name in names
    ]
    return transcript.AssistantTurn(parts=parts)


def record(kind: str, data: bytes = b"", media_type: str = PROTOBUF, **fields: object) -> pb.NodeRecord:
    made = pb.NodeRecord(id="n", kind=kind, output=pb.Payload(inline=data, media_type=media_type))
    made.MergeFrom(pb.NodeRecord(**fields))  # type: ignore[arg-type]
    return made


OK = transcript.TOOL_OUTCOME_OK
SUCCEEDED = pb.Final(outcome=pb.OUTCOME_SUCCEEDED, reason="Completed")


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (record("append_user_message", transcript.UserMessage(text="hi").SerializeToString()), "hi"),
        (
            record("append_user_message", transcript.UserMessage(prompt=True).SerializeToString()),
            "the run's prompt",
        ),
        (
            record("run_assistant_turn", turn("a", "b", "a", text="So.\n").SerializeToString()),
            "So. (calls a ×2, b)",
        ),
        (
            record("tool_call", transcript.ToolResult(name="a", content="7", outcome=OK).SerializeToString()),
            "a ok: 7",
        ),
        (
            record("shorten_results", transcript.Shortening(results_to=6).SerializeToString()),
            "long results of the turns up to 6 are put aside",
        ),
        (
            record(
                "summarise",
                transcript.Shortening(results_to=3, summary_to=5, summary="All is well.").SerializeToString(),
            ),
            "a summary of the turns up to 5: All is well.",
        ),
        (record("mine", b'{"a": 1}', "application/json"), '{"a": 1}'),
        (record("mine", b"text", "text/plain"), "text"),
        (record("mine", b"\xff\xff", "text/plain"), "2 bytes"),
        (record("tool_call", b"\xff\xff"), "2 bytes"),
        (record("mine", b"abc", "image/png"), "3 bytes"),
        (record("run_tool_batch", spawned=[pb.Spawn(id="x"), pb.Spawn(id="y")]), "then x, y"),
        (record("intent", parents=["call-1-0"]), "of call-1-0"),
        (
            record("try", error=pb.Error(reason="Timeout", message="slow", retryable=True, retry_in_ms=1500)),
            "Timeout: slow, again in 1.5 s",
        ),
        (record("finalize_run", final=SUCCEEDED), "Succeeded: Completed"),
    ],
)
def test_a_record_is_described_in_a_few_words(made: pb.NodeRecord, said: str) -> None:
    assert describe(made, made.output.inline) == said


def test_an_output_that_is_not_at_hand_is_described_by_its_size() -> None:
    made = record("mine")
    made.output.blob.size_bytes = 123456
    assert describe(made, None) == "123456 bytes"


@pytest.mark.parametrize(
    ("kind", "data", "media_type", "answer"),
    [
        ("finalize_run", transcript.RunResult(text="42").SerializeToString(), PROTOBUF, "42"),
        (
            "other",
            turn(text="said").SerializeToString(),
            PROTOBUF + ";type=agentrun.v1.AssistantTurn",
            "said",
        ),
        ("other", b'{"a":1}', "application/json", '{"a": 1}'),
        ("other", b"plain", "text/plain", "plain"),
        ("other", b"\x00", "image/png", None),
    ],
)
def test_an_answer_is_text(kind: str, data: bytes, media_type: str, answer: str | None) -> None:
    made = record(kind, data, media_type, final=SUCCEEDED)
    assert answer_of(made, data) == answer
    made.final.outcome = pb.OUTCOME_FAILED
    assert answer_of(made, data) is None


def test_the_call_of_a_tool_is_found_in_its_turn() -> None:
    output = pb.Payload(inline=turn("a", "b").SerializeToString(), media_type=PROTOBUF)
    done = {
        f"{scope}turn-12": pb.NodeRecord(id=f"{scope}turn-12", kind="run_assistant_turn", output=output)
        for scope in ("", "call-1-0/")
    }
    for scope in ("", "call-1-0/"):
        call = called_tool(done, f"{scope}call-12-1")
        assert call is not None and call.name == "b"
    for unknown in ("call-12-2", "call-13-0", "call-12-x", "other", "call-2-0/call-12-1"):
        assert called_tool(done, unknown) is None


def test_a_line_is_one_line_and_bounded() -> None:
    assert one_line("a\n\tb\x1b[31m\u2028c") == "a b\ufffd[31m c"
    assert len(one_line("x" * 10_000)) == 100


def test_times_are_rfc_3339() -> None:
    assert moment(1_700_000_000_123_456) == "2023-11-14T22:13:20.123Z"
    assert moment(0) is None
    assert instant(datetime(2026, 1, 2, tzinfo=UTC)) == "2026-01-02T00:00:00.000Z"
    assert instant(None) is None
