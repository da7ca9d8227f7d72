"""One attempt of one run in this process; the runner pod has the same, so it stands in `graph`."""

from __future__ import annotations

from agentrun.graph.session import Runnable, Session

__all__ = ["Runnable", "Session"]
