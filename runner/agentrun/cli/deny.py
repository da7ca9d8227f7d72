"""`agentrun deny`: says no to a call that waits for a person."""

from __future__ import annotations

import argparse

from agentrun.cli.approve import answer


def run(args: argparse.Namespace) -> int:
    """The exit code: 0 what was said stands, 1 something else was said before."""
    return answer(args, approve=False)
