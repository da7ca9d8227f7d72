"""What tests do to pods in place of a kubelet, and to runs in place of a runner."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from agentrun.graph.asking import Asking
from agentrun.graph.types import Parked, Question
from agentrun.log.appender import Appender
from agentrun.log.blobs import TableBlobs
from agentrun.log.claim import claim
from agentrun.log.final import final_record
from agentrun.log.runlog import RunLog
from agentrun.log.store import AttemptOutcome, LogStore
from agentrun.log.summary import Phase, phase_of, result_of, summarize, to_json
from agentrun.proto import log_pb2 as pb
from tests.integration.operator.fake_api import Body, FakeApi

OUTCOMES = {
    pb.OUTCOME_SUCCEEDED: AttemptOutcome.SUCCEEDED,
    pb.OUTCOME_FAILED: AttemptOutcome.FAILED,
    pb.OUTCOME_CANCELLED: AttemptOutcome.CANCELLED,
}


def start_pod(api: FakeApi, name: str, *, node: str = "node-1") -> Body:
    """The pod is scheduled and its runner container runs."""

    def change(pod: Body) -> None:
        pod["spec"]["nodeName"] = node
        pod["status"] = {
            "phase": "Running",
            "conditions": [
                {"type": "PodScheduled", "status": "True"},
                {"type": "Ready", "status": "True"},
            ],
            "containerStatuses": [{"name": "runner", "state": {"running": {}}}],
        }

    return api.edit("pods", name, change)


def end_pod(
    api: FakeApi,
    name: str,
    code: int,
    *,
    reason: str = "",
    message: str = "",
    disruption: str = "",
    phase: str = "",
) -> None:
    """The runner container has ended; a pod that was deleted is gone then."""

    def change(pod: Body) -> None:
        status = pod["status"]
        status["phase"] = phase or ("Succeeded" if code == 0 else "Failed")
        ended = {"exitCode": code, "reason": reason or ("Completed" if code == 0 else "Error")}
        if message:
            ended["message"] = message
        status["containerStatuses"] = [{"name": "runner", "state": {"terminated": ended}}]
        if disruption:
            status.setdefault("conditions", []).append(
                {"type": "DisruptionTarget", "status": "True", "reason": disruption}
            )

    pod = api.edit("pods", name, change)
    if "deletionTimestamp" in pod["metadata"]:
        api.vanish("pods", name)


def set_status(api: FakeApi, name: str, status: Mapping[str, Any]) -> None:
    """The pod's status is that now."""
    api.edit("pods", name, lambda pod: pod.update(status=dict(status)))


def variables_of(pod: Body) -> dict[str, str]:
    """What the runner of a pod is told."""
    runner = next(c for c in pod["spec"]["containers"] if c["name"] == "runner")
    return {item["name"]: item["value"] for item in runner["env"] if "value" in item}


class Runner:
    """A runner's dealings with the store, step by step."""

    def __init__(self, store: LogStore, pod: Body) -> None:
        variables = variables_of(pod)
        self.store = store
        self.pod = str(pod["metadata"]["name"])
        self.run_id = UUID(variables["AGENTRUN_RUN_ID"])
        self.attempt = int(variables["AGENTRUN_ATTEMPT"])
        self.log: RunLog | None = None
        self._appender = Appender(store, outage_seconds_max=2.0)

    async def claim(self) -> RunLog:
        """Raises what `claim` raises."""
        self.log = await claim(
            appender=self._appender,
            blobs=TableBlobs(self.store),
            run_id=self.run_id,
            attempt=self.attempt,
            writer=os.urandom(16),
            process=self.pod,
        )
        await self._summarize(Phase.RUNNING)
        await self.store.notify([self.run_id])
        return self.log

    async def ask(self, node: str) -> str:
        """A call asks for approval; the question's id."""
        assert self.log is not None
        question = Question(reason="ApprovalRequired", what="pay", detail='{"n": 1}')
        try:
            await Asking(self.log, self.log.append).answer(node, question)
        except Parked as parked:
            await self._summarize(Phase.RUNNING)
            await self.store.notify([self.run_id])
            return parked.ask.id
        raise AssertionError("it has an answer")

    async def step(self, name: str, *, retries: int = 0, consumed: Sequence[str] = ()) -> None:
        """Records a node."""
        assert self.log is not None
        cost = pb.Cost(tokens_in=10, turns=1, retries=retries)
        record = pb.NodeRecord(id=name, kind="step", cost=cost, consumed=consumed)
        await self.log.append(record)
        await self._summarize(Phase.RUNNING)
        await self.store.notify([self.run_id])

    async def end(self, outcome: pb.Outcome, reason: str = "Completed", answer: str = "") -> None:
        """The run has ended."""
        assert self.log is not None
        now = self.log.clock.wall_us()
        await self.log.append(final_record(outcome, reason, "", epoch=self.log.epoch, now_us=now))
        await self._summarize(phase_of(outcome), answer=answer)
        await self.store.close_attempt(self.run_id, self.attempt, OUTCOMES[outcome], reason)
        await self.store.notify([self.run_id])

    async def park(self, reason: str, message: str = "") -> None:
        """The run pauses."""
        await self._summarize(Phase.PAUSED, reason, message)
        note = f"{reason}: {message}" if message else reason
        await self.store.close_attempt(self.run_id, self.attempt, AttemptOutcome.PAUSED, note)
        await self.store.notify([self.run_id])

    async def _summarize(self, phase: Phase, reason: str = "", message: str = "", answer: str = "") -> None:
        assert self.log is not None
        summary = summarize(self.log.history, phase=phase, reason=reason, message=message)
        if answer:
            summary["result"] = result_of(answer)
        await self.store.put_summary(
            self.run_id, epoch=self.log.epoch, head=self.log.history.head, summary=to_json(summary)
        )
