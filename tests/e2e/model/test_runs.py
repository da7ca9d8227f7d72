"""Whole runs with a real language model, through the command.

Needs `AGENTRUN_TEST_MODEL_URL`, as `test_real_model` does. What the model says is not
judged: only that it said something, that it counted, and that what it called was called.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from agentrun.proto import transcript_pb2 as pb
from tests.support.chaos import DEMO, records, shown, sound, sums
from tests.support.commands import Commands

URL = "AGENTRUN_TEST_MODEL_URL"
NAME = "AGENTRUN_TEST_MODEL_NAME"
PAUSED = 75
RUN_SECONDS_MAX = 120

WORD_COUNT = {
    "name": "word_count",
    "description": "Counts the words of a text.",
    "python": {"entrypoint": f"{DEMO}:word_count"},
    "effect": "read_only",
}


@pytest.fixture
def agentrun(make_database: Callable[[], str], tmp_path: Path) -> Iterator[Commands]:
    """The command, on a database of its own."""
    if not os.environ.get(URL):
        pytest.fail(f"{URL} is not set: these tests need a server with a real model")
    commands = Commands(make_database(), tmp_path)
    yield commands
    commands.close()


def manifest(prompt: str, *, tools: tuple[Any, ...] = (), **settings: Any) -> dict[str, Any]:
    """A run with the real model, bounded; the longest call that the server writes fits its limit."""
    model = {
        "name": f"openai:{os.environ.get(NAME, 'gemma-3-270m')}",
        "baseURL": os.environ[URL],
        "settings": {"temperature": 0, "maxTokens": 256, "timeoutSeconds": 120, **settings},
    }
    return {
        "apiVersion": "agentrun.dev/v1alpha1",
        "kind": "AgentRun",
        "metadata": {"name": "real"},
        "spec": {
            "prompt": prompt,
            "budget": {"turns": 6, "tokens": 20_000, "retries": 5},
            "agent": {
                "instructions": "Answer in one short sentence.",
                "model": model,
                "tools": list(tools),
            },
        },
    }


def test_a_plain_question(agentrun: Commands) -> None:
    run_id = str(uuid4())
    file = agentrun.write(manifest("What is the capital of France?"))
    ended = agentrun("run", file, "--run-id", run_id, seconds=RUN_SECONDS_MAX)
    assert ended.code == 0 and ended.out.strip(), ended
    shows = agentrun.show(run_id)
    assert shows["phase"] == "Succeeded" and shows["answer"].strip() == ended.out.strip()
    assert shows["budget"]["tokensIn"] > 0 and shows["budget"]["tokensOut"] > 0
    assert not shows["budget"]["estimated"]
    assert shown(shows["budget"]) == sums(agentrun.events(run_id))


def test_a_process_that_is_killed_while_the_model_answers_is_resumed(agentrun: Commands) -> None:
    run_id = str(uuid4())
    file = agentrun.write(manifest("Tell me about the sea, the wind and the sky."))
    running = agentrun.start("run", file, "--run-id", run_id)
    running.until("launched node=turn-1")
    running.kill()
    ended = agentrun("resume", run_id, seconds=RUN_SECONDS_MAX)
    assert ended.code == 0 and ended.out.strip(), ended
    history = sound(agentrun.dsn, run_id)
    assert history.attempt == 2 and history.totals.retries == 1


def test_a_forced_call_runs_its_tool_once_and_the_run_parks_at_its_limit(agentrun: Commands) -> None:
    """Forced in every turn, the model would call for ever: one turn is all that it gets."""
    run_id = str(uuid4())
    what = manifest("Count the words of: a step is never lost.", tools=(WORD_COUNT,), toolChoice="word_count")
    what["spec"]["budget"]["turns"] = 1
    ended = agentrun("run", agentrun.write(what), "--run-id", run_id, seconds=RUN_SECONDS_MAX)
    assert ended.code == PAUSED, ended
    shows = agentrun.show(run_id)
    assert (shows["reason"], shows["budget"]["turns"]["used"]) == ("BudgetExceeded", 1)
    log = records(agentrun.dsn, run_id)
    turn = pb.AssistantTurn.FromString(log["turn-1"].output.inline)
    (call,) = [part.tool_call for part in turn.parts if part.HasField("tool_call")]
    assert call.name == "word_count" and isinstance(json.loads(call.arguments)["text"], str)
    assert turn.finish == pb.FINISH_REASON_TOOL_CALLS
    assert agentrun.calls() == {"call-1-0": 1}
    assert pb.ToolResult.FromString(log["call-1-0"].output.inline).outcome == pb.TOOL_OUTCOME_OK


def test_a_tool_that_is_offered_and_its_result_are_accepted(agentrun: Commands) -> None:
    """Whether the model calls it is the model's affair; either way the run ends with an answer."""
    run_id = str(uuid4())
    what = manifest("Count the words of: a step is never lost.", tools=(WORD_COUNT,))
    ended = agentrun("run", agentrun.write(what), "--run-id", run_id, seconds=RUN_SECONDS_MAX)
    assert ended.code == 0 and ended.out.strip(), ended
    history = sound(agentrun.dsn, run_id)
    called = {id_ for id_, record in history.done.items() if record.kind == "tool_call"}
    assert set(agentrun.calls()) == called
