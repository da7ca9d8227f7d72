"""`python -m agentrun.pod`: the entry point of a runner pod. It takes no arguments.

Signals are heard before anything else is imported: as process 1 of a container, a
process that has no handler yet would never learn of them.
"""

from __future__ import annotations

import os

from agentrun.signals import EXIT_PAUSED, Signals

if __name__ == "__main__":
    signals = Signals(lambda: os._exit(EXIT_PAUSED))
    signals.install()

    from agentrun.pod.main import main

    main(signals)
