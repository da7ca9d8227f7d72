"""Runs of a cluster: objects are made and changed, and their rows are the operator's."""

from __future__ import annotations

import asyncio
import copy
import time
from typing import Any
from uuid import UUID, uuid4

import pytest

from agentrun.log.memory import Database, MemoryStore
from agentrun.log.summary import Phase
from agentrun.spec import parse_object
from agentrun_api.executor import Signal, Stand, StartRefused
from agentrun_api.kube import KubeError, KubeUnavailable
from agentrun_api.kubernetes_executor import KubernetesRunExecutor
from tests.unit.api.server import hello


class Objects:
    """AgentRuns as an API server keeps them."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, str], dict[str, Any]] = {}
        self.fails: Exception | None = None
        self.hidden: KubeError | None = None

    async def create_run(self, namespace: str, body: dict[str, Any]) -> dict[str, Any]:
        if self.fails is not None:
            raise self.fails
        made = copy.deepcopy(body)
        metadata = made["metadata"]
        metadata.setdefault("name", f"{metadata.pop('generateName', '')}x{len(self.found)}")
        if (namespace, metadata["name"]) in self.found:
            raise KubeError(409, "already exists")
        metadata |= {"uid": str(uuid4()), "generation": 1, "namespace": namespace}
        self.found[namespace, metadata["name"]] = made
        return copy.deepcopy(made)

    async def get_run(self, namespace: str, name: str) -> dict[str, Any] | None:
        if self.hidden is not None:
            raise self.hidden
        return copy.deepcopy(self.found.get((namespace, name)))

    async def patch_run(self, namespace: str, name: str, patch: dict[str, Any]) -> dict[str, Any]:
        if self.fails is not None:
            raise self.fails
        found = self.found.get((namespace, name))
        if found is None:
            raise KubeError(404, "not found")
        if found["metadata"]["uid"] != patch["metadata"]["uid"]:
            raise KubeError(409, "the uid is another one")
        if found["spec"].get("shutdown") == "Terminate" and patch["spec"].get("shutdown") == "Stop":
            raise KubeError(422, "there is no way back")
        found["spec"] |= patch["spec"]
        return found


class Bench:
    def __init__(self) -> None:
        self.objects = Objects()
        self.store = MemoryStore(Database(time.time))
        self.executor = KubernetesRunExecutor(
            self.store, self.objects, installation="ours", default_namespace="default"
        )

    async def started(self, **spec: Any) -> UUID:
        return (await self.executor.start(parse_object(hello(**spec)))).run_id

    async def row(self, run_id: UUID) -> Any:
        info = await self.store.get_run(run_id)
        assert info is not None
        return info.run


def test_a_start_makes_the_object_and_its_row() -> None:
    async def test() -> None:
        bench = Bench()
        run_id = await bench.started()
        made = bench.objects.found["default", "hello"]
        assert str(run_id) == made["metadata"]["uid"]
        row = await bench.row(run_id)
        assert row.owner == f"ours/default/hello/{run_id}"
        assert (row.name, row.levels.generation) == ("default/hello", 0)
        again = await bench.executor.start(parse_object(hello()))
        assert (again.run_id, again.created) == (run_id, False)

    asyncio.run(test())


def test_a_given_run_id_and_namespace_are_kept() -> None:
    async def test() -> None:
        bench = Bench()
        manifest = hello(runID=str(uuid4()))
        manifest["metadata"]["namespace"] = "team-a"
        parsed = parse_object(manifest)
        assert (await bench.executor.start(parsed)).run_id == parsed.spec.run_id
        assert ("team-a", "hello") in bench.objects.found
        assert bench.executor.namespace(parsed) == "team-a"
        assert bench.executor.owner_prefix("team-a") == "ours/team-a/"
        assert bench.executor.owner_prefix("") == "ours/"

    asyncio.run(test())


def test_a_key_gives_one_name_to_what_has_none() -> None:
    async def test() -> None:
        bench = Bench()
        manifest = hello()
        manifest["metadata"] = {"generateName": "nightly-"}
        parsed = parse_object(manifest)
        starts = [await bench.executor.start(parsed, key=key) for key in ("a", "a", "b")]
        assert [start.created for start in starts] == [True, False, True]
        assert starts[0].run_id == starts[1].run_id != starts[2].run_id
        assert all(name.startswith("nightly-") for _, name in bench.objects.found)
        await bench.executor.start(parsed)
        await bench.executor.start(parsed)
        assert len(bench.objects.found) == 4

    asyncio.run(test())


def test_what_the_cluster_refuses_is_told_and_makes_no_row() -> None:
    async def test() -> None:
        bench = Bench()
        await bench.started()
        with pytest.raises(StartRefused) as refused:
            await bench.started(prompt="Another prompt.")
        assert refused.value.reason == "Conflict"
        bench.objects.hidden = KubeError(403, "may not get agentruns")
        with pytest.raises(StartRefused, match="may not get") as refused:
            await bench.started()
        assert refused.value.reason == "RefusedByCluster"
        bench.objects.hidden = None
        for error, reason in (
            (KubeError(422, "spec.prompt is too long"), "RefusedByCluster"),
            (KubeUnavailable("away"), "ClusterUnavailable"),
        ):
            bench.objects.fails = error
            with pytest.raises(StartRefused, match=str(error)) as refused:
                await bench.started(name="another")
            assert refused.value.reason == reason
        assert len(await bench.store.list_runs()) == 1

    asyncio.run(test())


def test_signals_are_written_into_the_object() -> None:
    async def test() -> None:
        bench = Bench()
        row = await bench.row(await bench.started(budget={"turns": 5}))
        for signal in (
            Signal(suspend=True),
            Signal(budget={"turns": 9, "tokens": 100}),
            Signal(suspend=False, shutdown="Stop"),
        ):
            await bench.executor.signal(row, signal)
        spec = bench.objects.found["default", "hello"]["spec"]
        assert (spec["suspend"], spec["shutdown"]) == (False, "Stop")
        assert spec["budget"] == {"turns": 9, "tokens": 100}

    asyncio.run(test())


def test_an_end_at_once_is_not_taken_back_by_a_later_stop() -> None:
    async def test() -> None:
        bench = Bench()
        row = await bench.row(await bench.started(shutdown="Terminate"))
        await bench.executor.signal(row, Signal(shutdown="Stop"))
        await bench.executor.signal(row, Signal(suspend=True, shutdown="Stop"))
        spec = bench.objects.found["default", "hello"]["spec"]
        assert (spec["suspend"], spec["shutdown"]) == (True, "Terminate")

    asyncio.run(test())


def test_another_object_of_that_name_is_left_alone() -> None:
    async def test() -> None:
        bench = Bench()
        row = await bench.row(await bench.started())
        bench.objects.found["default", "hello"]["metadata"]["uid"] = str(uuid4())
        with pytest.raises(StartRefused) as refused:
            await bench.executor.signal(row, Signal(suspend=True))
        assert refused.value.reason == "Gone"
        assert "suspend" not in bench.objects.found["default", "hello"]["spec"]
        other = KubernetesRunExecutor(bench.store, bench.objects, installation="b", default_namespace="d")
        with pytest.raises(StartRefused) as refused:
            await other.signal(row, Signal(suspend=True))
        assert refused.value.reason == "OwnedElsewhere"

    asyncio.run(test())


def test_how_a_run_stands_is_what_its_object_says_of_now() -> None:
    async def test() -> None:
        bench = Bench()
        run_id = await bench.started()
        info = await bench.store.get_run(run_id)
        assert info is not None
        assert await bench.executor.look(info) == Stand(phase=Phase.PENDING)
        found = bench.objects.found["default", "hello"]
        found["status"] = {"observedGeneration": 1, "phase": "Paused", "reason": "Suspended"}
        assert await bench.executor.look(info) == Stand(phase=Phase.PAUSED, reason="Suspended")
        assert await bench.executor.wait(run_id) == Stand(phase=Phase.PAUSED, reason="Suspended")
        found["metadata"]["generation"] = 2  # the operator has not seen it yet
        assert await bench.executor.look(info) == Stand(phase=Phase.PAUSED, reason="Suspended")
        waiting = asyncio.create_task(bench.executor.wait(run_id))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        found["status"] = {"observedGeneration": 2, "phase": "Succeeded"}
        assert await waiting == Stand(phase=Phase.SUCCEEDED)
        with pytest.raises(KeyError):
            await bench.executor.wait(uuid4())

    asyncio.run(test())
