"""A small manifest that loads, for tests that change one thing in it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentrun.spec import AgentRun, load_manifest

GOOD = """\
apiVersion: agentrun.dev/v1alpha1
kind: AgentRun
metadata:
  name: good
spec:
  prompt: Say hello.
  agent:
    model:
      name: scripted:good
      script:
        turns:
          - text: Hello.
    tools:
      - name: add
        python: {entrypoint: "agentrun.tools.demo:add"}
"""

TREE: dict[str, Any] = {
    "apiVersion": "agentrun.dev/v1alpha1",
    "kind": "AgentRun",
    "metadata": {"name": "good"},
    "spec": {"prompt": "Say hello.", "agent": {"model": {"name": "openai:gpt-5"}}},
}


@pytest.fixture
def good_text() -> str:
    return GOOD


@pytest.fixture
def tree() -> dict[str, Any]:
    return copy.deepcopy(TREE)


@pytest.fixture
def load(good_text: str) -> Callable[..., AgentRun]:
    """Loads the good manifest with `old` replaced by `new`."""

    def _load(old: str = "", new: str = "", base_dir: Path | None = None) -> AgentRun:
        assert old in good_text
        return load_manifest(good_text.replace(old, new), source="x.yaml", base_dir=base_dir)

    return _load
