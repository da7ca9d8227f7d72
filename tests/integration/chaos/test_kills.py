"""kill -9, as often as one likes: nothing that was finished is done twice, nothing is lost."""

from __future__ import annotations

import copy
import random
from collections import Counter
from uuid import uuid4

import yaml

from tests.support.chaos import records, shown, sound, sums
from tests.support.commands import ROOT, Commands, Ended

KILLS = 20
LIFE_SECONDS = (0.15, 1.9)
"""When a process dies, counted from its start: anywhere from the interpreter's own start on."""

ANSWER = "Each finished step is written down before anything is built on it, so a new\n"


def research(scale: float) -> dict[str, object]:
    """The example, with all its delays scaled."""
    source = yaml.safe_load((ROOT / "examples/research.yaml").read_text())
    manifest = copy.deepcopy(source)
    for turn in manifest["spec"]["agent"]["model"]["script"]["turns"]:
        turn["delaySeconds"] *= scale
        for call in turn.get("toolCalls", ()):
            if "seconds" in call["arguments"]:
                call["arguments"]["seconds"] *= scale
    assert isinstance(manifest, dict)
    return manifest


def test_twenty_kills_at_random_moments(agentrun: Commands) -> None:
    moments = random.Random(3)
    file = agentrun.write(research(0.5))
    kills = 0
    while kills < KILLS:  # a run that ended before so many was quick: another one follows
        agentrun.counter.unlink(missing_ok=True)
        run_id = str(uuid4())
        unfinished: Counter[str] = Counter()
        recorded: set[str] = set()
        while True:
            before = agentrun.calls()
            running = agentrun.start("run", file, "--run-id", run_id)
            if kills >= KILLS or not running.lives_for(moments.uniform(*LIFE_SECONDS)):
                break
            running.kill()
            kills += 1
            now = set(records(agentrun.dsn, run_id))
            assert recorded <= now, "a record went away"
            recorded = now
            unfinished.update(node for node in agentrun.calls() - before if node not in now)
        _check(agentrun, run_id, running.wait(), unfinished)


def _check(agentrun: Commands, run_id: str, ended: Ended, unfinished: Counter[str]) -> None:
    assert ended.code == 0, ended.err
    assert ended.out.startswith(ANSWER)
    history = sound(agentrun.dsn, run_id)
    starts = agentrun.calls()
    assert set(starts) == {node for node, record in history.done.items() if record.kind == "tool_call"}
    for node, count in starts.items():
        assert count <= 1 + unfinished[node], f"{node} ran again although it was recorded"
    shows = agentrun.show(run_id)
    assert (shows["phase"], shows["answer"]) == ("Succeeded", ended.out)
    assert shown(shows["budget"]) == sums(agentrun.events(run_id))
    assert shows["budget"]["turns"]["used"] == 6
