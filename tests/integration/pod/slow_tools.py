"""Tools for pods under test; found by PYTHONPATH. Each call is counted as those of the demo are."""

from __future__ import annotations

import asyncio
import time

from agentrun.tools.context import ToolContext
from agentrun.tools.demo import _count


def block(seconds: float, context: ToolContext | None = None) -> str:
    """Holds a thread.

    Args:
        seconds: How long.
    """
    _count("start", "block", context, {"seconds": seconds})
    time.sleep(seconds)
    return "done"


async def nap(seconds: float, context: ToolContext | None = None) -> str:
    """Sleeps, and can be interrupted.

    Args:
        seconds: How long.
    """
    _count("start", "nap", context, {"seconds": seconds})
    await asyncio.sleep(seconds)
    _count("end", "nap", context, {"seconds": seconds})
    return "done"


async def hold(seconds: float, context: ToolContext | None = None) -> str:
    """Holds the loop.

    Args:
        seconds: How long.
    """
    _count("start", "hold", context, {"seconds": seconds})
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.05)  # noqa: ASYNC251
    return "done"
