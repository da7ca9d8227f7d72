"""MCP servers under test, talked to over loopback."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.stub_mcp import StubMcp, tool


@pytest.fixture(params=[False, True], ids=["json", "stream"])
def stub(request: pytest.FixtureRequest) -> Iterator[StubMcp]:
    with StubMcp([tool("pay")], streams=request.param) as found:
        yield found


@pytest.fixture
def json_stub() -> Iterator[StubMcp]:
    with StubMcp([tool("pay")]) as found:
        yield found
