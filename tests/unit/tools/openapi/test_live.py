"""The tools of real FastAPI applications, called over the wire."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import uvicorn
from fastapi import Cookie, FastAPI, Header, HTTPException, Query, Response
from pydantic import BaseModel, Field

from agentrun.tools import Effect, HttpSession, ToolCall, ToolOutput
from agentrun.tools.base import ServerTool, ToolServerUnavailable
from agentrun.tools.offer import offer
from agentrun.tools.openapi import OpenApiServer, OpenApiSource
from agentrun_api.app import create_app


class Size(BaseModel):
    width: float
    height: float | None = None


class Item(BaseModel):
    name: str = Field(min_length=1)
    kind: Literal["book", "tool"] = "tool"
    sizes: list[Size] = []
    parent: Item | None = None


app = FastAPI(title="Shop")


@app.get("/items/{item_id}", operation_id="get_item")
def get_item(
    item_id: int,
    tags: Annotated[list[str] | None, Query(description="Only with these.")] = None,
    x_trace: Annotated[str | None, Header()] = None,
    session: Annotated[str | None, Cookie()] = None,
    authorization: Annotated[str | None, Header()] = None,
) -> dict[str, Any]:
    """Reads an item."""
    if item_id == 404:
        raise HTTPException(404, "no such item")
    told = {"id": item_id, "tags": tags, "trace": x_trace, "session": session}
    return {**told, "authorized": authorization == "Bearer t0ken"}


@app.post("/items")
def create_item(item: Item, dry: bool = False) -> dict[str, Any]:
    return {"item": item.model_dump(), "dry": dry}


@app.put("/items/{item_id}", operation_id="put_item")
def put_item(item_id: int, item: Item) -> dict[str, Any]:
    return {"id": item_id, "name": item.name}


@app.delete("/items/{item_id}", operation_id="delete_item", status_code=204)
def delete_item(item_id: int) -> None:
    return None


@app.head("/items", operation_id="head_items")
def head_items() -> Response:
    return Response(headers={"x-count": "3"})


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off"))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = True
    thread.join(10)
    listening.close()


async def nothing() -> None:
    return None


def with_server(
    ask: Callable[[OpenApiServer], Coroutine[Any, Any, Any]], source: OpenApiSource, **more: Any
) -> Any:
    async def run() -> Any:
        server = OpenApiServer(source=source, session=HttpSession(), **more)
        try:
            return await ask(server)
        finally:
            await server.close()

    return asyncio.run(run())


def tools_of(source: OpenApiSource, **more: Any) -> dict[str, ServerTool]:
    listed = with_server(lambda server: server.list_tools(nothing), source, **more)
    return {tool.name: tool for tool in listed}


def call(url: str, name: str, **arguments: Any) -> ToolOutput:
    source = OpenApiSource(url=f"{url}/openapi.json")
    headers = {"Authorization": "Bearer t0ken\n"}

    async def ask(server: OpenApiServer) -> ToolOutput:
        tool = next(tool for tool in await server.list_tools(nothing) if tool.name == name)
        made = ToolCall(arguments=json.dumps(arguments), idempotency_key="k", run_id="r", node_id="n")
        return await server.call_tool(tool, made, 10)

    output: ToolOutput = with_server(ask, source, headers=headers)
    return output


def test_every_operation_is_a_tool_that_every_provider_takes(url: str) -> None:
    tools = tools_of(OpenApiSource(url=f"{url}/openapi.json"))
    offered = offer(list(tools.values()))
    assert list(offered.warnings) == []
    assert [tool.label for tool in offered.tools] == [
        "get_item", "put_item", "delete_item", "create_item_items_post", "head_items",
    ]  # fmt: skip
    effects = {name: tool.effect for name, tool in tools.items()}
    assert effects == {
        "get_item": Effect.READ_ONLY,
        "put_item": Effect.IDEMPOTENT,
        "delete_item": Effect.IDEMPOTENT,
        "create_item_items_post": Effect.UNSAFE,
        "head_items": Effect.READ_ONLY,
    }
    got = tools["get_item"]
    assert got.description.endswith("Reads an item.")
    assert set(got.parameters["properties"]) == {"item_id", "tags", "x-trace", "session"}
    created = tools["create_item_items_post"].parameters
    assert created["required"] == ["body"]
    assert set(created["$defs"]) == {"Item", "Size"}


def test_calls_arrive_as_the_application_has_them(url: str) -> None:
    got = call(url, "get_item", item_id=7, tags=["a", "b c"], **{"x-trace": "t"}, session="s;1")
    assert json.loads(got.content) == {
        "id": 7, "tags": ["a", "b c"], "trace": "t", "session": "s%3B1", "authorized": True,
    }  # fmt: skip
    item = {"name": "n", "sizes": [{"width": 1.5}], "parent": {"name": "p", "kind": "book"}}
    made = json.loads(call(url, "create_item_items_post", body=item, dry=True).content)
    assert made["dry"] is True and made["item"]["parent"]["kind"] == "book"
    assert json.loads(call(url, "put_item", item_id=1, body={"name": "x"}).content) == {"id": 1, "name": "x"}
    assert not call(url, "delete_item", item_id=1).is_error
    assert not call(url, "head_items").is_error


def test_what_the_application_refuses_is_told_to_the_model(url: str) -> None:
    missing = call(url, "get_item", item_id=404)
    assert missing.is_error and "404 Not Found" in missing.content and "no such item" in missing.content
    assert "/items/{item_id}" in missing.content
    unfit = call(url, "create_item_items_post", body={"kind": "boat"})
    assert unfit.is_error and "422" in unfit.content and "'book' or 'tool'" in unfit.content
    wrong = call(url, "get_item", id=7)
    assert wrong.is_error and "item_id: required, and not given" in wrong.content


def test_our_own_api_has_a_document_whose_operations_are_tools() -> None:
    value = json.loads(json.dumps(create_app().openapi()))
    tools = tools_of(OpenApiSource(document=value), base_url="http://127.0.0.1:1")
    operations = sum(
        method in item for item in value["paths"].values() for method in ("get", "post", "put", "delete")
    )
    offered = offer(list(tools.values()))
    assert len(offered.tools) == operations > 5 and list(offered.warnings) == []


def test_a_yaml_file_is_read_and_odd_operations_are_named_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "api.yaml"
    file.write_text(
        "openapi: 3.0.1\nservers: [{url: 'http://10.0.0.1/v1'}]\n"
        "paths:\n  /a: {get: {operationId: good, responses: {200: {description: ok}}}}\n"
        "  /b: {get: {operationId: bad, parameters: [{$ref: 'x.yaml'}]}}\n"
    )
    with caplog.at_level(logging.WARNING):
        tools = tools_of(OpenApiSource(file=file))
    assert list(tools) == ["good"]
    assert json.loads(tools["good"].binding)["base"] == "http://10.0.0.1/v1"
    assert "the operation 'bad' is left out: $ref 'x.yaml' names another document" in caplog.text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is empty"),
        ("[1]", "no JSON object"),
        ("openapi: 3.1.0\n", "names no server with an address of its own: set baseURL"),
        ("openapi: 3.1.0\nservers: [{url: 'http://u:p@h/'}]", "set baseURL"),
        ("openapi: 3.1.0\nopenapi: 3.1.0\n", "twice"),
        ("{" * 5000, "nested"),
        ("openapi: [", "not valid YAML"),
    ],
)
def test_a_document_that_cannot_be_used_says_why_and_is_not_tried_again(
    text: str, why: str, tmp_path: Path
) -> None:
    file = tmp_path / "api.yaml"
    file.write_text(text)
    with pytest.raises(ToolServerUnavailable) as caught:
        tools_of(OpenApiSource(file=file))
    assert why in caught.value.message and not caught.value.retryable and "\n" not in caught.value.message


def test_a_document_that_is_not_there_and_one_that_is_too_long(tmp_path: Path, url: str) -> None:
    file = tmp_path / "api.json"
    for source, why, again in (
        (OpenApiSource(file=file), "No such file", False),
        (OpenApiSource(url=f"{url}/nowhere"), "status 404", False),
        (OpenApiSource(url="http://127.0.0.1:1/openapi.json"), "refused", True),
    ):
        with pytest.raises(ToolServerUnavailable) as caught:
            tools_of(source)
        assert why.lower() in caught.value.message.lower() or "connect" in caught.value.message.lower()
        assert caught.value.retryable is again
    file.write_bytes(b" " * (4 * 1024 * 1024 + 1))
    with pytest.raises(ToolServerUnavailable, match="more than 4194304 bytes"):
        tools_of(OpenApiSource(file=file))


def test_a_document_sends_the_manifests_headers_nowhere_else(url: str) -> None:
    value = {**app.openapi(), "servers": [{"url": "http://elsewhere.invalid/"}]}
    original, app.openapi_schema = app.openapi_schema, value
    try:
        with pytest.raises(ToolServerUnavailable, match="is not where it comes from: set baseURL"):
            tools_of(OpenApiSource(url=f"{url}/openapi.json"), headers={"authorization": "secret"})
    finally:
        app.openapi_schema = original
