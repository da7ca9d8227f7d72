"""Log lines and last words: one line an event, and no secret in any of them."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentrun.pod.ending import Ending, cut, write_last_words
from agentrun.pod.output import LibraryHandler, Output
from agentrun.pod.settings import LogSettings


class Lines:
    """What an Output has written."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "lines"
        self.descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def output(self, **settings: object) -> Output:
        return Output(LogSettings(**settings), descriptor=self.descriptor)  # type: ignore[arg-type]

    @property
    def all(self) -> list[str]:
        return self.path.read_text().splitlines()


@pytest.fixture
def lines(tmp_path: Path) -> Iterator[Lines]:
    made = Lines(tmp_path)
    yield made
    os.close(made.descriptor)


def test_a_text_line_quotes_what_has_spaces(lines: Lines) -> None:
    lines.output().write(
        "failed", "warning", node="turn-1", message='no "such"\nmodel', retryable=True, empty=""
    )
    (line,) = lines.all
    assert line.partition(" ")[2] == (
        r'WARNING failed node=turn-1 message="no \"such\"\nmodel" retryable=true'
    )


def test_a_json_line_parses_whatever_is_in_it(lines: Lines) -> None:
    output = lines.output(json=True)
    output.context.update(run="r", attempt=2)
    output.write("library", message='line\nline\u2028"\ud800\0')
    (line,) = lines.path.read_text().split("\n")[:-1]
    parsed = json.loads(line)
    assert (parsed["event"], parsed["run"], parsed["attempt"]) == ("library", "r", 2)


def test_lines_below_the_level_are_left_out(lines: Lines) -> None:
    output = lines.output(level="warning")
    output.write("launched")
    output.write("failed", "warning")
    assert len(lines.all) == 1


@pytest.mark.parametrize("as_json", [True, False])
def test_a_secret_is_hidden_also_where_it_would_be_escaped_or_cut(lines: Lines, as_json: bool) -> None:
    output = lines.output(json=as_json)
    secret = 'p"a\\ss\tword-é'
    output.hide([secret, "abc", ""])
    output.write("failed", message="x" * 1995 + secret, other=f"abc {secret}")
    (line,) = lines.all
    assert "p\\" not in line and "word" not in line
    assert "abc ***" in line


def test_a_longer_secret_is_hidden_whole_where_a_shorter_one_is_part_of_it(lines: Lines) -> None:
    output = lines.output()
    output.hide(["token"])
    output.hide(["token-and-more"])
    assert output.clean("token-and-more token") == "*** ***"


def test_what_a_library_says_becomes_a_line_and_a_bad_one_harms_nobody(lines: Lines) -> None:
    handler = LibraryHandler(lines.output(json=True))
    handler.handle(logging.LogRecord("httpx2", logging.WARNING, "", 0, "slow: %s", ("yes",), None))
    handler.handle(logging.LogRecord("httpx2", logging.CRITICAL, "", 0, "bad %d", ("text",), None))
    first, second = map(json.loads, lines.all)
    assert (first["logger"], first["message"], first["level"]) == ("httpx2", "slow: yes", "warning")
    assert (second["message"], second["level"]) == ("bad %d", "error")


def test_a_log_that_nobody_takes_stops_nothing() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    Output(LogSettings(), descriptor=write_end).write("launched")
    os.close(write_end)


def test_last_words_are_written_where_the_kubelet_has_a_file_and_else_not(tmp_path: Path) -> None:
    end = Ending(code=2, reason="TextMissing", message=cut("ä" * 2000))
    write_last_words(end, tmp_path / "none")
    assert not (tmp_path / "none").exists()
    file = tmp_path / "termination-log"
    file.write_text("x" * 5000)
    write_last_words(end, file)
    words = json.loads(file.read_text())
    assert (words["exitCode"], words["reason"]) == (2, "TextMissing")
    assert len(words["message"].encode()) <= 1024
    assert len(file.read_bytes()) < 4096
