"""A manifest that cannot run: one clear line with the field's path, exit 2, and nothing is made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.support.chaos import http_tool, lookup, manifest, query, says
from tests.support.commands import Commands, Ended

CANNOT_START = 2
LINE_CHARACTERS_MAX = 400


def good(**spec: Any) -> dict[str, Any]:
    return manifest([says("done")], tools=[lookup()], **spec)


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """A good manifest, and what is wrong with it."""
    what = good()
    change(what["spec"])
    return what


def with_secret(spec: dict[str, Any]) -> None:
    spec["agent"]["model"] = {
        "name": "openai:gpt",
        "apiKeyFrom": {"secretKeyRef": {"name": "keys", "key": "openai"}},
    }


def with_header(spec: dict[str, Any]) -> None:
    source = {"secretKeyRef": {"name": "keys", "key": "tool"}}
    tool = http_tool("pay", "http://127.0.0.1:1/pay")
    tool["http"]["headers"] = [{"name": "x-key", "valueFrom": source}]
    spec["agent"]["tools"] = [tool]


def with_entrypoint(entrypoint: str) -> dict[str, Any]:
    return changed(lambda spec: spec["agent"]["tools"][0]["python"].update(entrypoint=entrypoint))


BAD: dict[str, tuple[Any, str]] = {
    "unknown field": (changed(lambda spec: spec.update(promt="x")), "spec.promt"),
    "unknown field, deep": (
        changed(lambda spec: spec["agent"]["model"]["script"]["turns"][0].update(txet="x")),
        "spec.agent.model.script.turns[0].txet",
    ),
    "wrong type": (changed(lambda spec: spec.update(concurrency="many")), "spec.concurrency"),
    "a text for a mapping": (changed(lambda spec: spec.update(agent="x")), "spec.agent"),
    "missing secret of the model": (changed(with_secret), "spec.agent.model.apiKeyFrom"),
    "missing secret of a tool": (changed(with_header), "spec.agent.tools[0].http.headers[0].valueFrom"),
    "no prompt": (changed(lambda spec: spec.pop("prompt")), "spec"),
    "empty prompt": (changed(lambda spec: spec.update(prompt="")), "spec.prompt"),
    "blank prompt": (changed(lambda spec: spec.update(prompt=" \n\t")), "spec.prompt"),
    "a long prompt": (changed(lambda spec: spec.update(prompt="word " * 20_000)), "spec.prompt"),
    # More than any file may have: what is in it is not looked at.
    "2 MB of prompt": (changed(lambda spec: spec.update(prompt="word " * 400_000)), "run.yaml"),
    "NUL in the prompt": (changed(lambda spec: spec.update(prompt="a\0b")), "spec.prompt"),
    "negative budget": (changed(lambda spec: spec.update(budget={"tokens": -1})), "spec.budget.tokens"),
    "negative retries": (changed(lambda spec: spec.update(budget={"retries": -1})), "spec.budget.retries"),
    "unknown module": (with_entrypoint("no.such.module:f"), "spec.agent.tools[0]"),
    "unknown function": (with_entrypoint("agentrun.tools.demo:nothing"), "spec.agent.tools[0]"),
    "no entry point": (with_entrypoint("agentrun.tools.demo"), "spec.agent.tools[0].python.entrypoint"),
    "unknown provider": (
        changed(lambda spec: spec["agent"]["model"].update(name="oracle:x")),
        "spec.agent.model.name",
    ),
    "unknown sub-agent": (
        changed(lambda spec: spec["agent"].update(tools=[{"agent": "nobody"}])),
        "spec.agent.tools[0].agent",
    ),
    "another kind": ({**good(), "kind": "Pod"}, "kind"),
    "a list": ("- one\n- two\n", "run.yaml"),
    "a text": ("just words\n", "run.yaml"),
    "nothing": ("", "run.yaml"),
    "no YAML": ("spec: [unclosed\n", "run.yaml"),
    "two documents": ("a: 1\n---\nb: 2\n", "run.yaml"),
    "a key twice": ("kind: AgentRun\nkind: AgentRun\n", "kind"),
    "no text at all": (b"\xff\xfe\x00spec", "run.yaml"),
}


def is_refused(agentrun: Commands, ended: Ended, *words: str) -> None:
    """It says so in one line that holds these words, and left nothing behind."""
    assert ended.code == CANNOT_START and ended.out == "", ended
    (line,) = ended.err.splitlines()
    assert line.startswith("agentrun: ") and len(line) <= LINE_CHARACTERS_MAX, line
    assert all(word in line for word in words), (line, words)
    try:
        assert query(agentrun.dsn, "SELECT run_id FROM run") == []
    except asyncpg.UndefinedTableError:
        pass  # it did not even speak to the database


@pytest.mark.parametrize("name", BAD)
def test_a_bad_manifest(agentrun: Commands, name: str) -> None:
    what, path = BAD[name]
    is_refused(agentrun, agentrun("run", agentrun.write(what)), path)


def test_what_cannot_be_read(agentrun: Commands, tmp_path: Path) -> None:
    is_refused(agentrun, agentrun("run", tmp_path / "absent.yaml"), "absent.yaml", "No such file")
    is_refused(agentrun, agentrun("run", tmp_path), str(tmp_path), "Is a directory")
    # Root may read any file, but for what the kernel itself refuses.
    is_refused(agentrun, agentrun("run", "/proc/self/mem"), "/proc/self/mem")
    pointing_at_itself = tmp_path / "loop.yaml"
    pointing_at_itself.symlink_to(pointing_at_itself)
    is_refused(agentrun, agentrun("run", pointing_at_itself), "loop.yaml")


@pytest.mark.parametrize(
    ("dsn", "word"),
    [
        ("postgresql://somebody:s3cret@127.0.0.1:1/runs", "cannot be reached"),
        ("mysql://somebody:s3cret@127.0.0.1/runs", "postgresql://"),
        ("postgresql://somebody:s3cret@127.0.0.1:port/runs", "URL"),
    ],
)
def test_a_store_that_cannot_be_reached(agentrun: Commands, dsn: str, word: str) -> None:
    ended = agentrun("run", agentrun.write(good()), dsn=dsn)
    is_refused(agentrun, ended, word)
    assert "s3cret" not in ended.err and ended.seconds < 12


def test_a_good_id_and_another_manifest(agentrun: Commands, run_id: str) -> None:
    """A run goes on with its own manifest only."""
    assert agentrun("run", agentrun.write(good()), "--run-id", run_id).code == 0
    ended = agentrun("run", agentrun.write(good(prompt="Another question.")), "--run-id", run_id)
    assert ended.code == CANNOT_START and "another definition" in ended.err
    (line,) = ended.err.splitlines()
    assert run_id in line
    ended = agentrun("run", agentrun.folder / "run.yaml", "--run-id", "nonsense")
    assert ended.code == CANNOT_START and "--run-id" in ended.err
