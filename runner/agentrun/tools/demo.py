"""Tools for examples and tests: `agentrun.tools.demo:lookup`, `:word_count`, `:add`, `:refund`.

They give the same result for the same arguments, on every machine. When the variable
AGENTRUN_DEMO_COUNTER names a file, each call appends `start NAME NODE ARGUMENTS` to
it before it does anything and `end NAME NODE ARGUMENTS` when it is done (ARGUMENTS as
JSON), so that a test can count calls on the tool's side.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

from agentrun.tools.context import ToolContext

COUNTER_VARIABLE = "AGENTRUN_DEMO_COUNTER"

_FACTS = {
    "kubernetes": "Kubernetes comes from the Greek word for a helmsman, and k8s is short for it.",
    "postgres": "Postgres has carried its write-ahead log since version 7.1, of the year 2001.",
    "python": "Python is named after Monty Python, and not after the snake.",
    "moon": "The Moon moves away from the Earth by about 3.8 cm a year.",
    "honey": "Honey that is kept sealed and dry hardly ever spoils.",
    "octopus": "An octopus has three hearts and blue blood.",
    # The topics of examples/research.yaml.
    "checkpoints": "A checkpoint of what a step has added costs the same at step 1,000 as at step 1.",
    "leases": "A lease says who may act until a clock runs out; it stops no holder that slept.",
    "fencing": "A fence refuses the writes of a former owner at the place where they would land.",
    "idempotency": "An idempotent call that is made twice has one effect: its key says that it is the same.",
    "epochs": "An epoch is a number that rises with each owner, so that what an older one sends can be told.",
    "clocks": "The clocks of two machines never agree, so an order that matters is counted and not timed.",
    "failover": "A failover to a standby that lagged behind loses the commits that had not reached it.",
    "drains": "Draining a node evicts its pods, each of which gets SIGTERM and its grace period.",
    "evictions": "A node that runs short of memory or disk evicts pods, those that matter least first.",
    "lost nodes": "From a node that is cut off nobody can learn whether its processes still run.",
    "out of memory": "Out of memory, the kernel sends SIGKILL, which a process can neither catch nor delay.",
    "rolling deploys": "A rolling deploy replaces pods a few at a time, whatever they are in the middle of.",
    "unfinished work": "A step without a record did not happen, as far as the log knows, and is done again.",
}


async def lookup(topic: str, seconds: float = 0.5, context: ToolContext | None = None) -> str:
    """Looks up one short fact about a topic.

    Args:
        topic: What to look up, a word such as "moon".
        seconds: How long the look-up takes.
    """
    arguments = {"topic": topic, "seconds": seconds}
    _count("start", "lookup", context, arguments)
    await asyncio.sleep(seconds)
    _count("end", "lookup", context, arguments)
    known = _FACTS.get(topic.strip().lower())
    return known or f'Nothing is known about "{topic.strip()}", a topic of {len(topic.strip())} characters.'


def word_count(text: str, context: ToolContext | None = None) -> int:
    """Counts the words of a text.

    Args:
        text: The text; words are what white space separates.
    """
    _count("start", "word_count", context, {"text": text})
    result = len(text.split())
    _count("end", "word_count", context, {"text": text})
    return result


def add(a: int, b: int, context: ToolContext | None = None) -> int:
    """Adds two whole numbers, of any size.

    Args:
        a: The first number.
        b: The second number.
    """
    _count("start", "add", context, {"a": a, "b": b})
    result = a + b
    _count("end", "add", context, {"a": a, "b": b})
    return result


def refund(order: str, amount: int, context: ToolContext | None = None) -> str:
    """Says that an order is refunded; no money moves.

    Args:
        order: The order, such as "A-17".
        amount: How much.
    """
    arguments = {"order": order, "amount": amount}
    _count("start", "refund", context, arguments)
    _count("end", "refund", context, arguments)
    return f"{amount} refunded for order {order}"


def _count(event: str, name: str, context: ToolContext | None, arguments: dict[str, Any]) -> None:
    path = os.environ.get(COUNTER_VARIABLE)
    if not path:
        return
    node = context.node_id if context else "-"
    line = f"{event} {name} {node} {json.dumps(arguments)}\n"
    # O_APPEND and one write: lines of several processes do not mix.
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)
