"""`python -m agentrun_api`: as `agentrun api`."""

import sys

from agentrun_api.cli import main

if __name__ == "__main__":
    sys.exit(main())
