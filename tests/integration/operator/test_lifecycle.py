"""Runs from apply to their end, with the operator whole and everything around it played."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from agentrun.proto import log_pb2 as pb
from tests.integration.operator.bench import Bench, bench, manifest
from tests.integration.operator.kubelet import end_pod


def play(
    make_database: Callable[[], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    scenario: Callable[[Bench], object],
) -> None:
    async def run() -> None:
        async with bench(make_database(), tmp_path, monkeypatch) as b:
            async with asyncio.timeout(60):
                await scenario(b)

    asyncio.run(run())


def test_hello(make_database, tmp_path, monkeypatch) -> None:
    async def scenario(b: Bench) -> None:
        b.api.put("agentruns", manifest())
        runner = await b.runner()
        await b.phase("Running")
        await runner.step("one")
        await runner.end(pb.OUTCOME_SUCCEEDED, answer="hello there")
        end_pod(b.api, runner.pod, 0)
        status = await b.phase("Succeeded")
        assert status["result"]["preview"] == "hello there"
        await b.until(lambda: not b.api.pods_of("hello"))
        await asyncio.sleep(2)
        print([(w.verb, w.resource) for w in b.api.writes_about("hello")])
        print(b.status())

    play(make_database, tmp_path, monkeypatch, scenario)
