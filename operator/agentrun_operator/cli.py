"""`agentrun operator`: runs the operator until it is told to stop.

Who calls: the `agentrun` command. What holds: settings that are missing or bad are told
one a line, with exit code 2; a watch that ends for good is one line and exit code 1; the
rest goes to the log, in text or JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Mapping, Sequence

from agentrun.log.environment import SettingsError
from agentrun.log.stderr import set_up_logging
from agentrun_operator.settings import read

EXIT_TO_BE_RESTARTED = 1
EXIT_CANNOT_START = 2


def main(argv: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Runs the operator; its exit code."""
    parser = argparse.ArgumentParser(
        prog="agentrun operator",
        description="Reconciles AgentRun objects. All settings come from the environment: "
        "see docs/kubernetes/operator.md.",
    )
    parser.parse_args(argv)
    try:
        settings = read(environ)
    except SettingsError as error:
        for problem in error.problems:
            print(f"agentrun operator: {problem}", file=sys.stderr)
        return EXIT_CANNOT_START
    set_up_logging(settings.log_level, as_json=settings.log_json)
    from agentrun_operator.app import WatchEnded, run  # Kopf takes a while to import

    try:
        asyncio.run(run(settings))
    except WatchEnded as error:
        logging.getLogger(__name__).error("%s", error)
        return EXIT_TO_BE_RESTARTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
