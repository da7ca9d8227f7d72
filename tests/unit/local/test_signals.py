"""What signals do to a process, in processes of their own."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

EARLY = """
from agentrun.local.signals import Interrupted, Signals
import signal
with Signals():
    try:
        print("ready", flush=True)
        signal.pause()
    except Interrupted:
        print("interrupted", flush=True)
"""

HUNG = """
import asyncio, time
from agentrun.local.signals import Signals
signals = Signals()
signals.on_hard_end = lambda: print("hard end", flush=True)
async def main():
    signals.watch(lambda: None, lambda: None)
    print("ready", flush=True)
    time.sleep(300)  # the loop does not get on
with signals:
    asyncio.run(main())
"""


def ended(code: str, *numbers: int) -> tuple[int, list[str]]:
    """How a process ends that is sent these signals, and what it says."""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout and process.stdout.readline() == "ready\n"
    for number in numbers:
        process.send_signal(number)
    said, _ = process.communicate(timeout=30)
    return process.returncode, said.splitlines()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_early_signal_interrupts(number: signal.Signals) -> None:
    assert ended(EARLY, number) == (0, ["interrupted"])


def test_a_second_signal_ends_a_process_whose_loop_hangs() -> None:
    assert ended(HUNG, signal.SIGTERM, signal.SIGINT) == (75, ["hard end"])


def test_a_signal_that_is_ignored_stays_so() -> None:
    ignoring = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n" + EARLY
    assert ended(ignoring, signal.SIGHUP, signal.SIGTERM) == (0, ["interrupted"])
