"""The look before a call of a Python function is the last step before it."""

from __future__ import annotations

import asyncio

import pytest

from agentrun.tools.python import PythonTool
from agentrun.tools.schema import read_function
from tests.unit.tools.helpers import a_call


class Stopped(Exception):
    """What a process that is fenced off raises."""


def test_nothing_runs_between_the_look_and_the_function() -> None:
    order: list[str] = []

    async def before_send() -> None:
        order.append("look")

    async def function() -> str:
        order.append("call")
        return ""

    async def others() -> None:
        while True:
            order.append("others")
            await asyncio.sleep(0)

    async def run() -> None:
        tool = PythonTool(name="f", function=function, schema=read_function(function, "f"))
        busy = asyncio.create_task(others())
        await asyncio.sleep(0)
        await tool.call(a_call(before_send=before_send))
        busy.cancel()

    asyncio.run(run())
    assert order[order.index("call") - 1] == "look"


def test_what_the_last_look_raises_is_no_result_of_the_tool() -> None:
    called: list[str] = []
    looks = 0

    async def before_send() -> None:
        nonlocal looks
        looks += 1
        if looks > 1:  # it slept between the two
            raise Stopped

    async def function() -> str:
        called.append("call")
        return ""

    tool = PythonTool(name="f", function=function, schema=read_function(function, "f"))
    with pytest.raises(Stopped):
        asyncio.run(tool.call(a_call(before_send=before_send)))
    assert called == []
