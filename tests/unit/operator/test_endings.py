"""How an attempt ended, from every form in which a pod tells it."""

from __future__ import annotations

import pytest

from agentrun.log.store import AttemptOutcome
from agentrun_operator.endings import ending_of
from agentrun_operator.pods import Pod, parse_node, parse_pod, parse_time
from tests.unit.operator.builders import pod

CRASHED, DISRUPTED, FAILED = AttemptOutcome.CRASHED, AttemptOutcome.DISRUPTED, AttemptOutcome.FAILED

ENDED = {
    "the eviction API": (
        pod(phase="Failed", exit_code=137, disruption="EvictionByEvictionAPI"),
        DISRUPTED,
        "EvictionByEvictionAPI",
    ),
    "preemption": (
        pod(phase="Failed", exit_code=137, disruption="PreemptionByScheduler"),
        DISRUPTED,
        "PreemptionByScheduler",
    ),
    "a taint": (
        pod(phase="Failed", exit_code=143, disruption="DeletionByTaintManager"),
        DISRUPTED,
        "DeletionByTaintManager",
    ),
    "a node that shuts down": (
        pod(phase="Failed", exit_code=0, disruption="TerminationByKubelet", reason="Terminated"),
        DISRUPTED,
        "TerminationByKubelet",
    ),
    "node pressure, without container statuses": (
        pod(phase="Failed", reason="Evicted", message="The node was low on resource: memory."),
        DISRUPTED,
        "Evicted",
    ),
    "a node that refuses the pod": (pod(phase="Failed", reason="OutOfcpu"), DISRUPTED, "OutOfcpu"),
    "nothing but Failed": (pod(phase="Failed"), DISRUPTED, "PodEnded"),
    "deleted, drained": (pod(exit_code=75, evicted=20), DISRUPTED, "PodDeleted"),
    "deleted, killed after its grace": (pod(exit_code=137, evicted=31), DISRUPTED, "PodDeleted"),
    "deleted, out of memory meanwhile": (
        pod(exit_code=137, exit_reason="OOMKilled", evicted=5),
        DISRUPTED,
        "PodDeleted",
    ),
    "drained by a signal of nobody": (pod(phase="Failed", exit_code=75), DISRUPTED, "Drained"),
    "fenced off": (pod(phase="Failed", exit_code=76), DISRUPTED, "Fenced"),
    "what a lost node left behind": (
        pod(phase="Failed", exit_code=137, exit_reason="ContainerStatusUnknown"),
        DISRUPTED,
        "NodeLost",
    ),
    "out of memory": (pod(phase="Failed", exit_code=137, exit_reason="OOMKilled"), CRASHED, "OOMKilled"),
    "exit 1": (pod(phase="Failed", exit_code=1), CRASHED, "RunnerFailed"),
    "killed by nobody knows whom": (pod(phase="Failed", exit_code=137), CRASHED, "RunnerFailed"),
    "exit 0, and the log does not end": (pod(phase="Succeeded", exit_code=0), CRASHED, "NoResult"),
    "a command that is not there": (
        pod(phase="Failed", exit_code=128, exit_reason="StartError"),
        CRASHED,
        "StartError",
    ),
    "exit 2": (pod(phase="Failed", exit_code=2), FAILED, "CannotStart"),
    "a sidecar goes on": (pod(phase="Running", exit_code=1), CRASHED, "RunnerFailed"),
}


@pytest.mark.parametrize("name", ENDED)
def test_an_ended_pod_says_how_its_attempt_ended(name: str) -> None:
    ended, outcome, reason = ENDED[name]
    assert ended.runner_ended
    ending = ending_of(ended)
    assert (ending.outcome, ending.reason) == (outcome, reason)


def test_last_words_of_the_runner_name_reason_and_message() -> None:
    words = '{"exitCode": 2, "phase": "", "reason": "InvalidDefinition", "message": "spec.x: is wrong"}'
    ending = ending_of(pod(phase="Failed", exit_code=2, words=words))
    assert (ending.reason, ending.message) == ("InvalidDefinition", "spec.x: is wrong")
    assert "Traceback" in ending_of(pod(phase="Failed", exit_code=1, words="Traceback: boom")).message


def test_an_init_container_that_fails_is_a_failure() -> None:
    failed = {"name": "fetch", "state": {"terminated": {"exitCode": 3}}}
    ended = pod(phase="Failed", waiting=("PodInitializing", ""), initContainerStatuses=[failed])
    ending = ending_of(ended)
    assert (ending.outcome, ending.reason) == (CRASHED, "InitContainerFailed")
    assert "fetch" in ending.message and "3" in ending.message


def native(proxy: dict[str, object], runner: dict[str, object] | None, **status: object) -> Pod:
    """A pod with a sidecar of the native kind; without a runner the kubelet says nothing of it."""
    return parse_pod(
        {
            "metadata": {"name": "p"},
            "spec": {"initContainers": [{"name": "proxy", "restartPolicy": "Always"}, {"name": "fetch"}]},
            "status": {
                "initContainerStatuses": [{"name": "proxy", "state": proxy}],
                "containerStatuses": [] if runner is None else [{"name": "runner", "state": runner}],
                **status,
            },
        }
    )


STOPPED: dict[str, object] = {"terminated": {"exitCode": 143}}


def test_how_a_native_sidecar_ends_is_no_failure() -> None:
    ended = native(STOPPED, {"terminated": {"exitCode": 1}}, phase="Failed")
    assert ending_of(ended).reason == "RunnerFailed"
    unknown = native(STOPPED, None, phase="Failed")
    assert (ending_of(unknown).outcome, ending_of(unknown).reason) == (DISRUPTED, "PodEnded")


def test_a_native_sidecar_that_goes_on_holds_nothing_up() -> None:
    ended = native({"running": {}}, {"terminated": {"exitCode": 0}}, phase="Running")
    assert ended.runner_ended and ended.over
    going = native({"running": {}}, {"running": {}}, phase="Running")
    assert not going.runner_ended and going.running


def test_a_native_sidecar_that_does_not_start_is_what_the_pod_waits_for() -> None:
    crashing: dict[str, object] = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    stuck = native(crashing, {"waiting": {"reason": "PodInitializing"}}, phase="Pending")
    assert stuck.waiting is not None and stuck.waiting.reason == "CrashLoopBackOff"


def test_dates_of_year_1_and_the_odd_status_of_a_lost_node_crash_nothing() -> None:
    last = {
        "exitCode": 137,
        "reason": "ContainerStatusUnknown",
        "startedAt": "0001-01-01T00:00:00Z",
        "finishedAt": "0001-01-01T00:00:00Z",
    }
    odd = parse_pod(
        {
            "metadata": {"name": "p", "creationTimestamp": "0001-01-01T00:00:00Z"},
            "status": {
                "phase": "Running",
                "containerStatuses": [
                    {
                        "name": "runner",
                        "state": {"waiting": {"reason": "ContainerCreating"}},
                        "lastState": {"terminated": last},
                    }
                ],
            },
        }
    )
    assert odd.created_at is None
    assert odd.runner_ended and ending_of(odd).reason == "NodeLost"


@pytest.mark.parametrize("status", [None, {}, {"containerStatuses": None}, {"containerStatuses": [None, 3]}])
def test_a_pod_may_say_nothing_at_all(status: object) -> None:
    quiet = parse_pod({"metadata": {"name": "p", "uid": "u"}, "status": status})
    assert quiet == Pod(name="p", uid="u")
    assert not quiet.runner_ended


def test_a_node_without_conditions_is_not_ready() -> None:
    assert not parse_node({"metadata": {"name": "n"}}).ready
    assert parse_node({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}).ready


def test_what_is_no_time_is_none() -> None:
    assert parse_time("soon") is None
    assert parse_time(None) is None
    assert parse_time("2026-01-01T00:00:00Z") is not None
