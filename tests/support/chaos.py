"""Manifests that are made for chaos, and what must hold of a log after any of it.

The manifests have scripted models unless a stub's address is given. `sound` reads a
run's log past the command, straight from the table, and asserts what every log must be.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

import asyncpg

from agentrun.log.replay import FINALIZE, OWN_KINDS, History, decode
from agentrun.proto import log_pb2 as pb

DEMO = "agentrun.tools.demo"


def manifest(
    turns: Sequence[Mapping[str, Any]] = (),
    *,
    model: str = "",
    tools: Iterable[Mapping[str, Any]] = (),
    prompt: str = "What is there to say?",
    settings: Mapping[str, Any] | None = None,
    agents: Sequence[Mapping[str, Any]] = (),
    **spec: Any,
) -> dict[str, Any]:
    """A manifest. `model`: the base URL of a stub, in place of `turns`; `spec`: further fields."""
    how: dict[str, Any] = {"name": "openai:stub", "baseURL": model} if model else scripted(turns)
    if settings:
        how["settings"] = dict(settings)
    if agents:
        spec["agents"] = list(agents)
    return {
        "apiVersion": "agentrun.dev/v1alpha1",
        "kind": "AgentRun",
        "metadata": {"name": "chaos"},
        "spec": {
            "prompt": prompt,
            "agent": {"instructions": "Do what is asked.", "model": how, "tools": list(tools)},
            **spec,
        },
    }


def scripted(turns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A model that says these turns."""
    return {"name": "scripted:chaos", "script": {"turns": list(turns)}}


def lookup(effect: str = "read_only", **more: Any) -> dict[str, Any]:
    """The demo tool that takes as long as it is told."""
    return {"name": "lookup", "python": {"entrypoint": f"{DEMO}:lookup"}, "effect": effect, **more}


def http_tool(name: str, url: str, effect: str = "unsafe", **more: Any) -> dict[str, Any]:
    """A tool at a stub."""
    return {
        "name": name,
        "description": f"Does {name}.",
        "http": {"url": url},
        "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}},
        "effect": effect,
        **more,
    }


def says(text: str, *calls: Mapping[str, Any], delay: float = 0.0, **more: Any) -> dict[str, Any]:
    """A scripted turn; `calls` by `call`."""
    turn = {"text": text, "delaySeconds": delay, **more}
    return {**turn, "toolCalls": list(calls)} if calls else turn


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """A scripted tool call."""
    return {"name": name, "arguments": arguments}


# --- what stands in the database


def query(dsn: str, statement: str, *args: Any) -> list[asyncpg.Record]:
    """The rows of one statement, on a connection of its own, which may write."""

    async def run() -> list[asyncpg.Record]:
        connection = await asyncpg.connect(
            dsn, server_settings={"application_name": "test", "default_transaction_read_only": "off"}
        )
        try:
            return list(await connection.fetch(statement, *args))
        finally:
            await connection.close()

    return asyncio.run(run())


def rows(dsn: str, run_id: object) -> list[tuple[int, bytes]]:
    """The run's rows in the log; none where there is not even a schema."""
    try:
        found = query(
            dsn, "SELECT seq, record FROM run_log WHERE run_id = $1 ORDER BY seq", UUID(str(run_id))
        )
    except asyncpg.UndefinedTableError:
        return []
    return [(row[0], row[1]) for row in found]


def records(dsn: str, run_id: object) -> dict[str, pb.NodeRecord]:
    """By id, in the order of the log."""
    found = [decode(UUID(str(run_id)), seq, data) for seq, data in rows(dsn, run_id)]
    return {record.id: record for record in found}


def sound(dsn: str, run_id: object) -> History:
    """The log without a hole, each id once, that replays; nothing is left half done behind an end."""
    history = History(UUID(str(run_id)))
    history.fold_rows(rows(dsn, run_id))  # refuses a hole, a repeated id, an epoch that goes back
    writers: dict[int, set[bytes]] = {}
    for _, data in rows(dsn, run_id):
        record = decode(history.run_id, 0, data)
        writers.setdefault(record.epoch, set()).add(record.writer)
    assert all(len(of_epoch) == 1 for of_epoch in writers.values()), "two processes wrote in one epoch"
    if history.final is not None:
        assert history.final_seq == history.head, "something stands behind the final record"
    return history


def shape(history: History) -> dict[str, tuple[str, tuple[str, ...]]]:
    """The graph without who did what when: node → its kind and its successors."""
    own = OWN_KINDS - {FINALIZE}
    return {
        id_: (record.kind, tuple(spawn.id for spawn in record.spawned))
        for id_, record in history.done.items()
        if record.kind not in own
    }


def sums(events: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """What the events cost together, by the names of the budget."""
    costs = [event["cost"] for event in events]
    added = {
        name: sum(cost[name] for cost in costs)
        for name in ("tokensIn", "tokensOut", "tokensCached", "turns", "retries")
    }
    return {**added, "tokens": added["tokensIn"] + added["tokensOut"]}


def shown(budget: Mapping[str, Any]) -> dict[str, int]:
    """The same numbers of a budget as `show` has it."""
    plain = {name: int(budget[name]) for name in ("tokensIn", "tokensOut", "tokensCached")}
    return {**plain, **{name: int(budget[name]["used"]) for name in ("turns", "retries", "tokens")}}
