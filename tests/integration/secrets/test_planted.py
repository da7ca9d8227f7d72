"""Secrets that servers echo in every way stand nowhere in what a run leaves behind."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from agentrun.spec import secret_env_name
from tests.integration.operator.bench import Bench, bench
from tests.integration.operator.kubelet import end_pod, start_pod
from tests.integration.pod.pods import Pod, Runs
from tests.support import leaks
from tests.support.commands import ROOT, Commands, Running
from tests.support.echo_server import EchoServer
from tests.support.stub_model import completion

MODEL_KEY = "sk-planted-MODEL-7f3a91c0d2"
TOOL_HEADER = "Bearer planted-TOOL-55e0b81aa4"
OTHER_HEADER = "planted-OTHER-0c9d/+=77 x"
PASSWORD = "planted-DSN-e4b19af3"
SECRETS = [MODEL_KEY, TOOL_HEADER.removeprefix("Bearer "), OTHER_HEADER, PASSWORD]
SERVER_VALUE = "planted-SERVER-a81f0b2c"
API_HEADER = "planted-API-77aa01fe3b"
SECRETS += [SERVER_VALUE, API_HEADER]
VALUES = {
    ("keys", "model"): MODEL_KEY,
    ("keys", "tool"): TOOL_HEADER,
    ("keys", "other"): OTHER_HEADER,
    ("keys", "server"): SERVER_VALUE,
    ("keys", "api"): API_HEADER,
}
ENVIRONMENT = {secret_env_name(*key): value for key, value in VALUES.items()}

ENDINGS = ("succeeds", "fails", "crashes", "parks")
TOOLS = ("body", "error", "busy", "redirect", "environment", "env", "api_body", "api_error")
OF_ENTRIES = ("environment", "env", "api_body", "api_error")


def environment() -> str:
    """All that the process was told."""
    return json.dumps(dict(os.environ))


def failing() -> str:
    """Raises with all that the process was told."""
    raise RuntimeError(f"broken: {dict(os.environ)}")


def model_for(ending: str) -> Callable[[int, str], tuple[int, Any]]:
    """A provider that quotes its key in an error, in what it says, thinks and asks for."""

    def answer(number: int, key: str) -> tuple[int, Any]:
        if number == 1:
            return 429, {"error": {"message": f"slow down, {key}", "code": "rate_limit_exceeded"}}
        if number == 2:
            calls = [(name, json.dumps({"note": key} if name == "body" else {})) for name in TOOLS]
            if ending == "crashes":
                calls.append(("hang", "{}"))
            told = completion(
                f"I know {key}", calls=[*calls, ("failing", "{}")], reasoning_content=f"hm, {key}"
            )
            return 200, told
        if ending == "fails":
            return 401, {
                "error": {"message": f"Incorrect API key provided: {key}.", "code": "invalid_api_key"}
            }
        return 200, completion(f"done with {key}")

    return answer


def spec(server: EchoServer, ending: str) -> dict[str, Any]:
    def ref(key: str) -> dict[str, Any]:
        return {"secretKeyRef": {"name": "keys", "key": key}}

    headers = [
        {"name": "Authorization", "valueFrom": ref("tool")},
        {"name": "X-Other", "valueFrom": ref("other")},
    ]
    paths = [name for name in (*TOOLS, "hang") if name not in OF_ENTRIES]
    tools: list[dict[str, Any]] = [
        {
            "name": name,
            "description": "Says what it was sent.",
            "parameters": {"type": "object"},
            "http": {"url": server.url(f"/tool/{name}"), "headers": headers},
            "effect": "read_only",
        }
        for name in paths
    ]
    tools += [
        {
            "name": name,
            "python": {"entrypoint": f"tests.integration.secrets.test_planted:{name}"},
            "effect": "read_only",
        }
        for name in ("environment", "failing")
    ]
    variables = [{"name": "PLANTED", "valueFrom": ref("server")}]
    command = [sys.executable, str(ROOT / "tests/support/stdio_server.py")]
    tools.append({"name": "server", "effect": "read_only", "mcp": {"command": command, "env": variables}})
    api = {
        "openapi": "3.1.0",
        "paths": {
            f"/tool/{name}": {"get": {"operationId": f"api_{name}", "description": "Says what it was sent."}}
            for name in ("body", "error")
        },
    }
    key = [{"name": "X-Api-Key", "valueFrom": ref("api")}]
    tools.append({"name": "api", "openapi": {"document": api, "baseURL": server.url(""), "headers": key}})
    model = {"name": "openai:echo", "baseURL": server.url("/v1"), "apiKeyFrom": ref("model")}
    budget: dict[str, Any] = {"retries": 20}
    if ending == "parks":
        budget["turns"] = 1
    return {"prompt": "Go on.", "agent": {"model": model, "tools": tools}, "budget": budget}


def with_password(dsn: str) -> str:
    """The same database, by a DSN with the planted password (which a server that trusts us ignores)."""
    parts = urlsplit(dsn)
    user = parts.netloc.rpartition("@")[0].partition(":")[0] or "postgres"
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{user}:{PASSWORD}@{host}").geturl()


def texts(folder: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def check(dsn: str, places: Mapping[str, bytes], at_least: int) -> None:
    found = {**asyncio.run(leaks.database(dsn)), **places}
    assert leaks.leaks(SECRETS, found) == []
    everything = b"\n".join(found.values())
    assert everything.count(b"***") >= at_least, "what was echoed has come in, and was masked"


@pytest.fixture
def commands(make_database: Callable[[], str], tmp_path: Path) -> Iterator[Commands]:
    made = Commands(with_password(make_database()), tmp_path)
    yield made
    made.close()


def wait_for_hang(server: EchoServer, running: Running) -> None:
    # All other calls of the batch are recorded when the one that hangs is all that is left.
    running.until(lambda: "/tool/hang" in server.reached)
    running.until(lambda: running.err.count("call-1-") >= len(TOOLS) + 2)


@pytest.mark.parametrize(("ending", "level"), [*((ending, "") for ending in ENDINGS), ("fails", "debug")])
def test_by_the_command(commands: Commands, ending: str, level: str) -> None:
    run_id = str(uuid4())
    with EchoServer(model_for(ending)) as server:
        what = {
            "apiVersion": "agentrun.dev/v1alpha1",
            "kind": "AgentRun",
            "metadata": {"name": "planted"},
            "spec": spec(server, ending),
        }
        told = {**ENVIRONMENT, "AGENTRUN_LOG": level}
        running = commands.start("run", commands.write(what), "--run-id", run_id, env=told)
        if ending == "crashes":
            wait_for_hang(server, running)
            running.kill()
        else:
            code = {"succeeds": 0, "fails": 1, "parks": 75}[ending]
            assert running.wait(90).code == code, running.err
    for words in (["show", run_id], ["show", run_id, "-o", "json"], ["events", run_id], ["list"]):
        assert commands(*words).code == 0
    for words in (["events", run_id, "-o", "json"], ["list", "-o", "json"]):
        assert commands(*words).code == 0
    check(commands.dsn, texts(commands.folder), at_least=8)


@pytest.mark.parametrize(("ending", "form"), [*((ending, "json") for ending in ENDINGS), ("fails", "text")])
def test_by_a_pod_and_the_operator(
    ending: str, form: str, make_database: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dsn = with_password(make_database())
    runs = Runs(dsn, tmp_path)

    async def scenario(server: EchoServer) -> dict[str, bytes]:
        async with bench(dsn, tmp_path, monkeypatch) as b:
            manifest = {
                "apiVersion": "agentrun.dev/v1alpha1",
                "kind": "AgentRun",
                "metadata": {"name": "hello", "namespace": "demo"},
                "spec": spec(server, ending),
            }
            b.api.put("agentruns", manifest)
            pod = await b.pod()
            name = pod["metadata"]["name"]
            start_pod(b.api, name)
            await play(b, pod, server)
            return {
                f"{kind}/{body['metadata']['name']}": json.dumps(body).encode()
                for kind in ("agentruns", "pods", "events")
                for body in b.api.all(kind)
            }

    async def play(b: Bench, pod: Mapping[str, Any], server: EchoServer) -> None:
        labels = pod["metadata"]["labels"]
        words = tmp_path / "words"
        words.touch()
        process = Pod(
            {
                **ENVIRONMENT,
                "AGENTRUN_DATABASE_URL": dsn,
                "AGENTRUN_RUN_ID": labels["agentrun.dev/run-id"],
                "AGENTRUN_ATTEMPT": labels["agentrun.dev/attempt"],
                "AGENTRUN_GRACE_SECONDS": "10",
                "AGENTRUN_LOG_FORMAT": form,
                "AGENTRUN_LOG_LEVEL": "debug",
                "AGENTRUN_TERMINATION_LOG": str(words),
                "PYTHONPATH": str(Path(__file__).parents[3]),
            },
            words,
        )
        try:
            if ending == "crashes":
                await b.until(lambda: "/tool/hang" in server.reached)
                await b.until(lambda: process.text.count("finished") >= len(TOOLS) + 3)
                process.kill()
                end_pod(b.api, pod["metadata"]["name"], 137)
                await b.until(lambda: b.status().get("failures"))
            else:
                code = await asyncio.to_thread(process.ended, 90.0)
                end_pod(b.api, pod["metadata"]["name"], code, message=words.read_text())
                phase = {"succeeds": "Succeeded", "fails": "Failed", "parks": "Paused"}[ending]
                await b.phase(phase)
        finally:
            process.kill()

    with EchoServer(model_for(ending)) as server:
        places = asyncio.run(scenario(server))
    assert runs.dsn == dsn
    check(dsn, {**places, **texts(tmp_path)}, at_least=8)


def test_the_search_finds_what_is_planted() -> None:
    import base64
    import gzip

    for told in (
        MODEL_KEY.encode(),
        base64.b64encode(f"xy{MODEL_KEY}z".encode()),
        gzip.compress(b"0" * 99 + MODEL_KEY.encode()),
        base64.b64encode(gzip.compress(MODEL_KEY.encode())),
        json.dumps(json.dumps({"k": OTHER_HEADER})).encode(),
        b"key=planted-OTHER-0c9d%2F%2B%3D77%20x",
    ):
        assert leaks.leaks(SECRETS, {"here": b"\x00 before " + told + b" behind"}), told
    assert leaks.leaks(SECRETS, {"here": b"nothing"}) == []
