"""What a server tells on stderr can be read by people and, line by line, by programs."""

from __future__ import annotations

import json
import subprocess
import sys

SAID = """
import logging
from agentrun.log.stderr import set_up_logging
set_up_logging("warning", as_json={as_json})
log = logging.getLogger("a.b")
log.info("not told")
log.warning("über %d", 3)
try:
    1 / 0
except ZeroDivisionError:
    log.exception("two\\nlines")
"""


def said(*, as_json: bool) -> list[str]:
    command = [sys.executable, "-c", SAID.format(as_json=as_json)]
    return subprocess.run(command, capture_output=True, encoding="utf-8", check=True).stderr.splitlines()


def test_json_is_one_object_a_line() -> None:
    first, second = [json.loads(line) for line in said(as_json=True)]
    assert (first["level"], first["logger"], first["message"]) == ("warning", "a.b", "über 3")
    assert "error" not in first and first["time"].endswith("+00:00")
    assert second["message"] == "two\nlines" and "ZeroDivisionError" in second["error"]


def test_text_has_level_and_logger() -> None:
    lines = said(as_json=False)
    assert lines[0].endswith("WARNING a.b: über 3") and not any("not told" in line for line in lines)
