"""A process's name, and whether it lives."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentrun.local.process import Process, parse_process, start_ticks, this_machine, this_process

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system has no /proc")


def test_this_process_lives_and_is_named_by_more_than_its_number() -> None:
    me = this_process("agentrun run")
    here = this_machine()
    assert (me.host, me.boot_id, me.pid_namespace) == (here.host, here.boot_id, here.pid_namespace)
    assert me.boot_id and me.pid_namespace
    assert me.pid == os.getpid()
    assert here.start_ticks(me.pid) == me.start_ticks > 0
    assert parse_process(me.to_json()) == me


def test_a_process_that_has_ended_does_not_live_even_before_its_parent_has_noticed() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    assert child.stdout
    child.stdout.read()  # until it ends
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert start_ticks(child.pid) is None
    child.communicate()
    assert start_ticks(child.pid) is None


def test_what_cannot_be_read_is_not_known() -> None:
    for text in ("", "null", "[]", "{", '{"pid": "1", "host": null}'):
        assert parse_process(text) == Process()
    assert parse_process('{"pid": 7, "other": 1}') == Process(pid=7)
