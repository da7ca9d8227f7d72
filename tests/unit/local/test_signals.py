"""What signals do to a process, in processes of their own."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from agentrun.graph.drive import AROUND_SECONDS_MAX
from agentrun.graph.executor import ABANDON_SECONDS_MAX
from agentrun.graph.session import CLOSE_SECONDS_MAX, MARGIN_SECONDS_MAX, MARGIN_SHARE
from agentrun.pod.main import hard_end_seconds, last_words_seconds
from agentrun.signals import AT_ONCE_SECONDS_MAX, LAST_WORDS_SECONDS_MAX

EARLY = """
from agentrun.signals import Interrupted, Signals, interrupt
import signal
with Signals(interrupt):
    try:
        print("ready", flush=True)
        signal.pause()
    except Interrupted:
        print("interrupted", flush=True)
"""

HUNG = """
import asyncio, sys, time
from agentrun import signals
signals.AT_ONCE_SECONDS_MAX = 0.5
signals.LAST_WORDS_SECONDS_MAX = 0.5
words, end, saying = map(float, sys.argv[1:])
def last_words():
    print("last words", flush=True)
    time.sleep(saying)
    print("are said", flush=True)
heard = signals.Signals(signals.interrupt)
heard.last_words = last_words
heard.on_hard_end = lambda: print("hard end", flush=True)
async def main():
    heard.watch(lambda: None, lambda: None, words_seconds=words, end_seconds=end)
    print("ready", flush=True)
    until = time.monotonic() + 300
    while time.monotonic() < until:  # the loop does not get on
        time.sleep(1)
with heard:
    asyncio.run(main())
"""


def ended(code: str, *numbers: int, told: tuple[float, ...] = ()) -> tuple[int, list[str]]:
    """How a process ends that is sent these signals, and what it says."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, told)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout and process.stdout.readline() == "ready\n"
    for number in numbers:
        process.send_signal(number)
        time.sleep(0.1)  # or two of the same are one
    said, _ = process.communicate(timeout=30)
    return process.returncode, said.splitlines()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_early_signal_interrupts(number: signal.Signals) -> None:
    assert ended(EARLY, number) == (0, ["interrupted"])


def test_a_second_signal_ends_a_process_whose_loop_hangs_after_its_last_words() -> None:
    said = ended(HUNG, signal.SIGTERM, signal.SIGINT, told=(200, 300, 0))
    assert said == (75, ["last words", "are said", "hard end"])


def test_the_end_of_the_grace_ends_it_as_well() -> None:
    assert ended(HUNG, signal.SIGTERM, told=(0.1, 0.3, 0)) == (75, ["last words", "are said", "hard end"])


def test_a_third_signal_waits_for_the_last_words_and_no_longer() -> None:
    three = (signal.SIGINT,) * 3
    assert ended(HUNG, *three, told=(200, 300, 0.3)) == (75, ["last words", "are said", "hard end"])
    assert ended(HUNG, *three, told=(200, 300, 60)) == (75, ["last words", "hard end"])


def test_the_bounds_of_an_end_nest() -> None:
    clean = ABANDON_SECONDS_MAX + AROUND_SECONDS_MAX + CLOSE_SECONDS_MAX
    assert clean + LAST_WORDS_SECONDS_MAX <= AT_ONCE_SECONDS_MAX
    for grace in (0.5, 1, 3, 10, 30, 86400):
        gives_up = grace - min(MARGIN_SECONDS_MAX, MARGIN_SHARE * grace)
        end = hard_end_seconds(grace)
        assert gives_up <= last_words_seconds(grace) + 1e-9 < end < grace


def test_a_signal_that_is_ignored_stays_so() -> None:
    ignoring = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n" + EARLY
    assert ended(ignoring, signal.SIGHUP, signal.SIGTERM) == (0, ["interrupted"])
