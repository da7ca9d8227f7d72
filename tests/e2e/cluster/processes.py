"""Processes of a cluster whose nodes are on this machine, and nodes that fail there.

A node that fails says no goodbye: `kill` is a power failure, `pause` a machine that hangs, or a
virtual one that is moved. Tests that need this skip where the nodes are elsewhere.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest

SHARED = Path(os.environ.get("SHARED", Path(__file__).parents[4] / "shared"))
STATE = Path(os.environ.get("CLUSTER_STATE", "/var/lib/agentrun-cluster"))
INFRA = b"/pause"
"""What holds a pod's network: it is no part of the pod's work."""


def in_cgroup(text: str) -> list[int]:
    """Processes whose control group has this in its path."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # it has ended
                if text in (entry / "cgroup").read_text().replace("_", "-"):
                    found.append(int(entry.name))
    return found


def processes_of(pod_uid: str) -> list[int]:
    """Of a pod's containers. None, and the test is skipped: its node is on another machine."""
    found = [pid for pid in in_cgroup(pod_uid) if _command(pid) not in (INFRA, b"")]
    if not found and not in_cgroup("kubepods"):
        pytest.skip("the cluster's nodes are not on this machine: their processes cannot be killed")
    return found


def _command(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
    return b""


def send(which: signal.Signals, pids: Iterable[int]) -> None:
    """To each that is still there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, which)


def lives(pid: int) -> bool:
    """It has not ended: one that nobody has asked how it ended has, too."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def node(action: str, name: str) -> None:
    """`node kill 1`, of the test cluster."""
    script = SHARED / "cluster" / "node"
    if not script.exists():
        pytest.skip(f"{script} is not there: only the test cluster can lose a node")
    number = name.rpartition("-")[2]
    subprocess.run([str(script), action, number], check=True, timeout=60, close_fds=True)


def kubelet_of(name: str) -> int:
    """Its process, on the test cluster."""
    file = STATE / "pids" / f"kubelet-{name.rpartition('-')[2]}"
    if not file.exists():
        pytest.skip(f"{file} is not there: only the test cluster's nodes can be paused")
    return int(file.read_text().split()[0])


def log_of(node_name: str, pod_uid: str) -> list[str]:
    """What a pod's runner has written, from the test cluster's node: also while that says nothing."""
    folder = STATE / f"node-{node_name.rpartition('-')[2]}" / "pod-logs"
    (file,) = folder.glob(f"*_{pod_uid}/runner/0.log")
    return file.read_text().splitlines()
