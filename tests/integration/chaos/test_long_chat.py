"""A chat of a thousand turns: its steps do not grow, and its prompt stands in one place."""

from __future__ import annotations

from uuid import UUID

from tests.support.chaos import DEMO, call, manifest, query, records, says, sound
from tests.support.commands import Commands

TURNS = 1000
PROMPT = "The prompt that is nowhere but in the definition: zwölf Boxkämpfer jagen Viktor."
USAGE = {"inputTokens": 40, "outputTokens": 20}


def word_count(number: int) -> dict[str, object]:
    """Calls of one size that differ, lest they be taken for a loop."""
    return call("word_count", text=f"turn {number:04}: " + "five little words and more " * 2)


def test_a_step_at_turn_1000_is_as_large_as_one_at_turn_1(agentrun: Commands, run_id: str) -> None:
    said = "What is said takes some room, as it does in a chat between a person and a model. " * 2
    turns = [says(said, word_count(number), usage=USAGE) for number in range(TURNS)]
    what = manifest(
        [*turns, says("done", usage=USAGE)],
        prompt=PROMPT,
        tools=[{"name": "word_count", "python": {"entrypoint": f"{DEMO}:word_count"}, "effect": "read_only"}],
        budget={"turns": TURNS + 1},
    )
    ended = agentrun("run", agentrun.write(what), "--run-id", run_id, "--quiet", seconds=90)
    assert (ended.code, ended.out) == (0, "done\n"), ended.err

    seqs = {id_: seq for seq, id_ in enumerate(records(agentrun.dsn, run_id), 1)}
    sizes = query(
        agentrun.dsn, "SELECT seq, octet_length(record) FROM run_log WHERE run_id = $1", UUID(run_id)
    )
    size = {row[0]: row[1] for row in sizes}
    for first, last in (("turn-1", f"turn-{TURNS}"), ("call-1-0", f"call-{TURNS}-0")):
        before, after = size[seqs[first]], size[seqs[last]]
        assert after <= 1.1 * before, f"{first} has {before} bytes, {last} {after}"
    steps = [
        sum(size[seqs[name.format(n)]] for name in ("turn-{}", "tools-{}", "call-{}-0")) for n in (1, TURNS)
    ]
    assert steps[1] <= 1.1 * steps[0], steps

    found = query(
        agentrun.dsn,
        "SELECT (SELECT count(*) FROM run_log WHERE position($1::bytea IN record) > 0), "
        "(SELECT definition FROM run WHERE run_id = $2)",
        PROMPT.encode(),
        UUID(run_id),
    )
    assert found[0][0] == 0, "the log holds the prompt"
    assert bytes(found[0][1]).count(PROMPT.encode()) == 1, "the run holds it more than once"
    history = sound(agentrun.dsn, run_id)
    assert history.head == 1 + 1 + 3 * TURNS + 2
    assert (history.totals.turns, history.totals.tokens) == (TURNS + 1, 60 * (TURNS + 1))
