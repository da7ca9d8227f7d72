"""The command whatever its standard streams are: closed, full, of another encoding."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
NOWHERE = "agentrun: the output cannot be written: No space left on device\n"
EMPTY = {"AGENTRUN_DATA_DIR": "/nonexistent/agentrun"}
"""Where nothing was ever kept."""


def shell(line: str, **environ: str) -> tuple[int, str, str]:
    """How a line of a shell ends, where $AGENTRUN is the command, and what it says."""
    known = {name: value for name, value in os.environ.items() if not name.startswith(("AGENTRUN", "PYTHON"))}
    done = subprocess.run(
        ["/bin/bash", "-c", line],
        env={**known, "AGENTRUN": f"{sys.executable} -m agentrun", **environ},
        capture_output=True,
        text=True,
        errors="surrogateescape",
        cwd=ROOT,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_is_nothing(closed: str) -> None:
    assert shell(f"$AGENTRUN list {closed}", **EMPTY) in (
        (0, "", ""),
        (0, "", "agentrun: there are no runs\n"),
    )


@pytest.mark.parametrize("asked", ["--version", "--help", "list --help", "list -o json"])
def test_output_that_cannot_be_written_is_told_in_a_line(asked: str) -> None:
    assert shell(f"$AGENTRUN {asked} > /dev/full", **EMPTY) == (74, "", NOWHERE)


def test_nobody_reads() -> None:
    assert shell("$AGENTRUN --help | :; echo ${PIPESTATUS[0]}")[1] in ("141\n", "0\n")


def test_a_manifest_from_a_closed_standard_input_is_refused() -> None:
    said = "agentrun: standard input cannot be read: it is closed\n"
    assert shell("$AGENTRUN run - <&-", **EMPTY) == (2, "", said)


@pytest.mark.parametrize("file", ["/dev/zero", "/dev/null", "/dev/tty"])
def test_what_is_neither_a_file_nor_a_pipe_is_no_manifest(file: str) -> None:
    code, out, err = shell(f"timeout 20 $AGENTRUN run {file}", **EMPTY)
    assert (code, out) == (2, "")
    assert err == f"agentrun: {file} cannot be read: it is neither a file nor a pipe\n"


@pytest.mark.parametrize("how", ["$AGENTRUN run {}", "$AGENTRUN run - < {}", "$AGENTRUN run <(cat {})"])
def test_no_more_of_a_manifest_is_read_than_one_may_have(how: str, tmp_path: Path) -> None:
    file = tmp_path / "large.yaml"
    file.write_bytes(b"a" * (8 << 20))
    code, _, err = shell(how.format(file), **EMPTY)
    assert code == 2 and err.endswith("must be at most 4194304 bytes, and has 4194305\n"), err


@pytest.mark.parametrize(
    ("folder", "said"),
    [
        ("~nosuch/x", "AGENTRUN_DATA_DIR='~nosuch/x' names no folder: "),
        ("/tmp/" + "a" * 300, "File name too long"),
    ],
)
def test_a_data_folder_that_cannot_be_is_told_in_a_line(folder: str, said: str) -> None:
    code, out, err = shell("$AGENTRUN list", AGENTRUN_DATA_DIR=folder)
    assert (code, out) == (2, "")
    assert err.startswith("agentrun: ") and err.count("\n") == 1 and said in err


SOMEBODY = """
import os, sys
from agentrun.cli import list, main  # what they are made of need not be theirs to read
from agentrun.local import embedded
os.setgid(65534)
os.setuid(65534)
sys.exit(main.run_command(["list"]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_data_folder_that_may_not_be_entered_is_told_in_a_line(tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    (folder / "data").mkdir(parents=True)
    folder.chmod(0o700)
    script = tmp_path / "somebody.py"
    script.write_text(SOMEBODY)
    code, out, err = shell(f"{sys.executable} {script}", AGENTRUN_DATA_DIR=f"{folder}/data")
    assert (code, out) == (2, "")
    assert err.startswith("agentrun: ") and err.count("\n") == 1
    assert "permission is denied; set AGENTRUN_DATA_DIR" in err


PRINTS = """
import os, subprocess, sys
from agentrun.cli import streams
streams.take_over()
print("a tool")
os.write(1, b"its descriptor\\n")
subprocess.run(["echo", "its child"])
streams.put("the answer \\u2713 \\udc80\\n")
print("late")
streams.flush()
os._exit(0)
"""


@pytest.mark.parametrize(
    ("encoding", "answer"),
    [("utf-8", "the answer \u2713 \\udc80\n"), ("latin-1", "the answer \\u2713 \\udc80\n")],
)
def test_only_what_was_asked_for_reaches_stdout(encoding: str, answer: str, tmp_path: Path) -> None:
    file = tmp_path / "prints.py"
    file.write_text(PRINTS)
    code, out, err = shell(f"{sys.executable} {file}", PYTHONIOENCODING=encoding)
    assert (code, out) == (0, answer)
    assert err == "a tool\nits descriptor\nits child\nlate\n"
