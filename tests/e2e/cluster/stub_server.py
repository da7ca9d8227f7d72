"""The server that `stubs.Stubs` runs in a pod: needs Python alone.

    /tools/NAME?seconds=1&status=503   counts a call, waits, and answers with the body that it got
    /tools/NAME?gate=NAME              the same, once the gate is open
    /open/NAME                         opens a gate, for all that wait and all to come
    /v1/chat/completions               the next scripted answer (POST /script), else a text
    /counts                            all calls so far

`python stub_server.py post PATH < BODY` sends to the one that runs on this machine.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import urllib.request
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

PORT = 8080
GATE_SECONDS_MAX = 300


class Memory:
    """What was called, and what the model says next."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.calls: dict[str, list[dict[str, Any]]] = {}
        self.script: list[dict[str, Any]] = []
        self.gates: defaultdict[str, threading.Event] = defaultdict(threading.Event)

    def begin(self, name: str, key: str | None, body: str) -> dict[str, Any]:
        call = {"key": key, "body": body, "began": time.time(), "answered": None}
        with self.lock:
            self.calls.setdefault(name, []).append(call)
        return call

    def gate(self, name: str) -> threading.Event:
        with self.lock:
            return self.gates[name]

    def turn(self) -> dict[str, Any]:
        with self.lock:
            return self.script.pop(0) if self.script else {"text": "That was all."}


MEMORY = Memory()


class Handler(BaseHTTPRequestHandler):
    """Each request in a thread of its own."""

    protocol_version = "HTTP/1.1"

    def serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode("utf-8", "replace")
        url = urlsplit(self.path)
        if url.path == "/counts":
            with MEMORY.lock:
                self.answer(200, json.dumps(MEMORY.calls))
        elif url.path == "/script":
            with MEMORY.lock:
                MEMORY.script += json.loads(body)
            self.answer(200, "{}")
        elif url.path.startswith("/open/"):
            MEMORY.gate(url.path.removeprefix("/open/")).set()
            self.answer(200, "{}")
        elif url.path.startswith("/tools/"):
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            call = MEMORY.begin(url.path.removeprefix("/tools/"), self.headers.get("idempotency-key"), body)
            if "gate" in query:
                MEMORY.gate(query["gate"]).wait(GATE_SECONDS_MAX)
            time.sleep(float(query.get("seconds", 0)))
            self.answer(int(query.get("status", 200)), body or "{}")
            call["answered"] = time.time()
        else:
            call = MEMORY.begin("model", None, body)
            turn = MEMORY.turn()
            refused = {"error": {"message": "as the script says"}}
            status = turn.get("status", 200)
            self.answer(status, json.dumps(completion(turn) if status == 200 else refused))
            call["answered"] = time.time()

    do_GET = do_POST = serve  # noqa: N815

    def answer(self, status: int, text: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        return


def completion(turn: dict[str, Any]) -> dict[str, Any]:
    calls = [
        {"id": f"call_{index}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for index, (name, arguments) in enumerate(turn.get("calls", []))
    ]
    message = {"role": "assistant", "content": turn.get("text"), **({"tool_calls": calls} if calls else {})}
    reason = "tool_calls" if calls else "stop"
    return {
        "id": "chatcmpl-stub",
        "object": "chat.completion",
        "created": 1,
        "model": "stub",
        "choices": [{"index": 0, "finish_reason": reason, "message": message}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    }


def main() -> None:
    if sys.argv[1:2] == ["post"]:
        request = urllib.request.Request(f"http://127.0.0.1:{PORT}{sys.argv[2]}", sys.stdin.buffer.read())
        urllib.request.urlopen(request, timeout=10).read()
        return
    server = ThreadingHTTPServer(("", PORT), Handler)
    server.daemon_threads = True
    server.serve_forever()


if __name__ == "__main__":
    main()
