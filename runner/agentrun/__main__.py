"""`python -m agentrun` is the command `agentrun`."""

from __future__ import annotations

import sys

from agentrun.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
