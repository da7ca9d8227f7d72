"""Importing the models, and building a scripted one, loads no provider's library."""

from __future__ import annotations

import json
import subprocess
import sys

HEAVY = ("pydantic_ai", "openai", "anthropic", "google.genai", "httpx", "httpx2", "pydantic")


def loaded_after(statement: str) -> list[str]:
    code = f"import json, sys\n{statement}\nprint(json.dumps([m for m in {HEAVY!r} if m in sys.modules]))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found: list[str] = json.loads(result.stdout)
    return found


def test_the_import_loads_no_library() -> None:
    assert loaded_after("import agentrun.models") == []


def test_a_scripted_model_loads_no_library() -> None:
    assert loaded_after("from agentrun.models import build_model; build_model('scripted:x', script=[])") == []
