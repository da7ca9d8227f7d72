"""Python tools that behave as tools should not, for commands that tests start."""

from __future__ import annotations

import os
import time
from pathlib import Path

from agentrun.tools.context import ToolContext
from agentrun.tools.demo import COUNTER_VARIABLE


def block(seconds: float, context: ToolContext | None = None) -> str:
    """Holds its thread, and heeds nobody.

    Args:
        seconds: How long.
    """
    with Path(os.environ[COUNTER_VARIABLE]).open("a") as counter:
        counter.write(f"start block {context.node_id if context else '-'} {{}}\n")
    time.sleep(seconds)
    return f"blocked for {seconds:g} s"


def report(number: int, kib: int, context: ToolContext | None = None) -> str:
    """A long report, another one for each number.

    Args:
        number: Which one.
        kib: How long it is.
    """
    line = f"report {number:05}, line {{:06}}: " + "what was measured " * 2 + "\n"
    return "".join(line.format(k) for k in range(kib * 1024 // len(line.format(0))))
