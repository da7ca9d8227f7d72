"""`python -m agentrun.pod`: the entry point of a runner pod. It takes no arguments.

Signals are heard before anything else is imported: as process 1 of a container, a
process that has no handler yet would never learn of them.
"""

from __future__ import annotations

from agentrun.pod.signals import StopSignals

if __name__ == "__main__":
    signals = StopSignals()
    signals.install()

    from agentrun.pod.main import main

    main(signals)
