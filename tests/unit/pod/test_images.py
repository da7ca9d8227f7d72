"""The images' entry points: no shell between the kubelet's signals and Python."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

IMAGES = Path(__file__).resolve().parents[3] / "images"


def entry_point(name: str) -> list[str]:
    text = (IMAGES / f"{name}.Dockerfile").read_text()
    (found,) = re.findall(r"^ENTRYPOINT (.*)$", text, re.MULTILINE)
    words = json.loads(found)  # the shell form is no JSON
    assert isinstance(words, list)
    return words


def test_a_runner_blocks_signals_until_python_hears_them() -> None:
    words = entry_point("runner")
    assert words[0] == "env" and words[-3:] == ["/opt/agentrun/bin/python", "-m", "agentrun.pod"]
    assert {word for word in words if word.startswith("--")} == {
        f"--block-signal={name}" for name in ("TERM", "INT", "HUP")
    }


def test_the_operator_is_the_command_itself() -> None:
    assert entry_point("operator") == ["/opt/agentrun/bin/agentrun"]


@pytest.mark.parametrize("name", ["runner", "operator"])
def test_what_is_installed_is_locked_and_no_root_runs_it(name: str) -> None:
    text = (IMAGES / f"{name}.Dockerfile").read_text().replace("\\\n", " ")
    for command in re.findall(r"pip (?:--python \S+ )?install [^&\n]*", text.partition("\nFROM ")[2]):
        assert "--require-hashes" in command or "--no-index" in command, command
    (user,) = re.findall(r"^USER (\d+):\d+$", text.partition("\nFROM ")[2], re.MULTILINE)
    assert int(user) > 0
