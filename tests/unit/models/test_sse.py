"""Server-sent events: the same whatever the bytes are cut into, and whatever ends lines."""

from __future__ import annotations

import pytest

from agentrun.models.streams.sse import Decoder, EventTooLong

ODD = "a\u2028b\u2029c\u0085d\ve\ff\x1cg 🙂"


def decoded(data: bytes, size: int = 0) -> list[tuple[str, str]]:
    decoder = Decoder(10_000)
    pieces = [data[start : start + size] for start in range(0, len(data), size)] if size else [data]
    events = [event for piece in pieces for event in decoder.feed(piece)]
    return [(event.name, event.data) for event in [*events, *decoder.end()]]


STREAMS = {
    "LF": ("data: a\n\ndata: b\n\n", [("", "a"), ("", "b")]),
    "CRLF": ("data: a\r\n\r\ndata: b\r\n\r\n", [("", "a"), ("", "b")]),
    "CR": ("data: a\r\rdata: b\r\r", [("", "a"), ("", "b")]),
    "a mixture": ("data: a\r\n\ndata: b\r\r\n", [("", "a"), ("", "b")]),
    "CR, then a blank line of LF": ("data: a\r\n\rdata: b\n\r\n", [("", "a"), ("", "b")]),
    "comments": (": OPENROUTER PROCESSING\n\n:\n\ndata: a\n: more\ndata: b\n\n", [("", "a\nb")]),
    "no space": ("data:a\n\ndata:  b\n\n", [("", "a"), ("", " b")]),
    "several data lines": ('data: {"a":\ndata: 1}\n\n', [("", '{"a":\n1}')]),
    "an empty data line": ("data\ndata: b\n\n", [("", "\nb")]),
    "other ends of lines are text": (f"data: {ODD}\n\n", [("", ODD)]),
    "names": ("event: ping\ndata: {}\n\ndata: b\n\n", [("ping", "{}"), ("", "b")]),
    "a name without data": ("event: ping\n\ndata: b\n\n", [("", "b")]),
    "retry and id": ("retry: 3000\nid: 7\ndata: b\n\n", [("", "b")]),
    "an unknown field": ("what: x\ndata: b\n\n", [("", "b")]),
    "a BOM": ("\ufeffdata: b\n\n", [("", "b")]),
    "a BOM that is not at the start": ("data: \ufeffb\n\n", [("", "\ufeffb")]),
    "no blank line at the end": ("data: a\n\ndata: b\n", [("", "a"), ("", "b")]),
    "no end of line at the end": ("data: a\n\ndata: b", [("", "a"), ("", "b")]),
    "a lone CR at the end": ("data: a\r\n\r\ndata: b\r", [("", "a"), ("", "b")]),
    "nothing": ("", []),
    "blank lines": ("\n\n\r\n\n", []),
}


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("name", STREAMS)
def test_events_are_the_same_however_the_bytes_are_cut(name: str, size: int) -> None:
    text, events = STREAMS[name]
    assert decoded(text.encode(), size) == events


def test_bytes_that_are_no_text_cost_one_character() -> None:
    assert decoded(b"data: a\xff\xfeb\n\n") == [("", "a\ufffd\ufffdb")]


def test_comments_leave_nothing_behind() -> None:
    decoder = Decoder(1000)
    for _ in range(10_000):
        assert not list(decoder.feed(b": still here, and this comment is not short\n\n"))
    assert [event.data for event in decoder.feed(b"data: a\n\n")] == ["a"]


@pytest.mark.parametrize(
    "piece", [b"x" * 100, b"data: " + b"x" * 90 + b"\n", b": " + b"x" * 98, b"data:\n" * 20]
)
def test_an_event_is_bounded(piece: bytes) -> None:
    decoder = Decoder(1000)
    with pytest.raises(EventTooLong):
        for _ in range(100):
            list(decoder.feed(piece))
