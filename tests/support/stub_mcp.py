"""An MCP server over streamable HTTP that misbehaves as told, and remembers every message.

    with StubMcp(tools=[tool("pay")]) as stub:
        stub.next("tools/call", status(503), result("paid"))
        ... talk to stub.url ...
        assert stub.calls == [("pay", {"amount": 1})]

A message takes the next scripted behaviour of its method; without one, `initialize` makes
a session, `tools/list` gives `tools` (`page_size` a page) and `tools/call` says what it was
sent. A behaviour is a function of the request, which answers as it likes.
"""

from __future__ import annotations

import json
import socket
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

SESSION = "mcp-session-id"


class Incoming:
    """One message, and the ways to answer it."""

    def __init__(self, stub: StubMcp, handler: _Handler, message: dict[str, Any]) -> None:
        self.stub = stub
        self.message = message
        self.headers = {name.lower(): value for name, value in handler.headers.items()}
        self._handler = handler

    @property
    def id(self) -> Any:
        return self.message.get("id")

    def send(self, status: int, body: bytes = b"", content_type: str = "", **headers: str) -> None:
        """A whole response. Headers have "_" for "-"."""
        handler = self._handler
        with suppress(OSError):
            handler.send_response(status)
            if content_type:
                handler.send_header("content-type", content_type)
            for name, value in headers.items():
                handler.send_header(name.replace("_", "-"), value)
            handler.send_header("content-length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body)
            handler.wfile.flush()

    def reply(self, result: Any, **more: Any) -> None:
        """The answer, as JSON or as a stream."""
        self.answer({"result": result}, **more)

    def answer(self, body: dict[str, Any], **more: Any) -> None:
        message = {"jsonrpc": "2.0", "id": self.id, **body, **more}
        if self.stub.streams:
            self.begin()
            self.event(message)
            self.end()
        else:
            self.send(200, json.dumps(message).encode(), "application/json")

    def begin(self) -> None:
        """A stream of events."""
        with suppress(OSError):
            self._handler.send_response(200)
            self._handler.send_header("content-type", "text/event-stream")
            self._handler.send_header("connection", "close")
            self._handler.end_headers()
            self._handler.wfile.flush()
        self._handler.close_connection = True

    def event(self, message: dict[str, Any] | None, *, id: str = "", retry_ms: int = 0) -> bool:  # noqa: A002
        """False: nobody reads any more."""
        lines = [f"id: {id}"] * bool(id) + [f"retry: {retry_ms}"] * bool(retry_ms)
        lines.append("data: " + ("" if message is None else json.dumps(message)))
        return self.raw("event: message\n" + "\n".join(lines) + "\n\n")

    def raw(self, text: str) -> bool:
        try:
            self._handler.wfile.write(text.encode())
            self._handler.wfile.flush()
        except OSError:
            return False
        return True

    def progress(self) -> bool:
        token = self.message["params"]["_meta"]["progressToken"]
        params = {"progressToken": token, "progress": 1}
        return self.event({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})

    def result_message(self, result: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": self.id, "result": result}

    def end(self) -> None:
        """Closes the connection."""
        self._handler.close_connection = True
        with suppress(OSError):
            self._handler.connection.shutdown(socket.SHUT_RDWR)


Behaviour = Callable[[Incoming], None]


def text(said: str, **more: Any) -> dict[str, Any]:
    """A result of `tools/call`."""
    return {"content": [{"type": "text", "text": said}], **more}


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, **more}


def status(code: int, body: bytes = b"", content_type: str = "text/plain", **headers: str) -> Behaviour:
    return lambda incoming: incoming.send(code, body, content_type, **headers)


def result(said: Any) -> Behaviour:
    return lambda incoming: incoming.reply(said if isinstance(said, dict) else text(said))


def hang(incoming: Incoming) -> None:
    """Takes the request on and never answers."""
    incoming.stub.stopping.wait()


def cut(incoming: Incoming) -> None:
    """Takes the request on and closes the connection."""
    incoming.end()


class StubMcp:
    """The server; a context manager. All that it remembers may be read from any thread."""

    def __init__(
        self, tools: Sequence[Any] = (), *, streams: bool = False, page_size: int = 0, port: int = 0
    ) -> None:
        self.tools = list(tools)
        self.streams = streams
        self.page_size = page_size
        self.stateless = False
        self.sessions: set[str] = set()
        self.messages: list[tuple[dict[str, Any], dict[str, str]]] = []
        self.resumed: list[dict[str, str]] = []
        self.stopping = threading.Event()
        self.on_get: Behaviour = status(405)
        self._behaviours: dict[str, deque[Behaviour]] = defaultdict(deque)
        self._always: dict[str, Behaviour] = {}
        self._names = count(1)
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.stub = self
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, name="stub mcp", daemon=True
        )

    def __enter__(self) -> StubMcp:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def next(self, method: str, *behaviours: Behaviour) -> None:
        """What the next messages of a method meet, in order."""
        with self._lock:
            self._behaviours[method].extend(behaviours)

    def always(self, method: str, behaviour: Behaviour) -> None:
        self._always[method] = behaviour

    def forget(self) -> None:
        """As a restart does: no session is known any more."""
        self.sessions.clear()

    def of(self, method: str) -> list[dict[str, Any]]:
        """The messages of a method."""
        return [message for message, _ in self.messages if message.get("method") == method]

    def headers_of(self, method: str) -> list[dict[str, str]]:
        return [headers for message, headers in self.messages if message.get("method") == method]

    @property
    def calls(self) -> list[tuple[str, Any]]:
        """Of tools, as they came."""
        return [(m["params"]["name"], m["params"].get("arguments")) for m in self.of("tools/call")]

    def handle(self, incoming: Incoming) -> None:
        """For the handler."""
        method = incoming.message.get("method", "")
        with self._lock:
            self.messages.append((incoming.message, incoming.headers))
            scripted = self._behaviours[method]
            behaviour = scripted.popleft() if scripted else self._always.get(method)
        (behaviour or _usual)(incoming)

    def new_session(self) -> str:
        name = f"session-{next(self._names)}"
        self.sessions.add(name)
        return name


def _usual(incoming: Incoming) -> None:
    stub, message = incoming.stub, incoming.message
    method = message.get("method", "")
    if method == "initialize":
        version = message["params"]["protocolVersion"]
        info = {"name": "stub", "version": "1"}
        body = incoming.result_message(
            {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        )
        headers = {} if stub.stateless else {"mcp_session_id": stub.new_session()}
        incoming.send(200, json.dumps(body).encode(), "application/json", **headers)
        return
    known = stub.stateless or incoming.headers.get(SESSION) in stub.sessions
    if not known:
        gone = {"jsonrpc": "2.0", "error": {"code": -32001, "message": "Session not found"}, "id": None}
        incoming.send(404, json.dumps(gone).encode(), "application/json")
    elif incoming.id is None or not method:
        incoming.send(202)
    elif method == "tools/list":
        first = int((message.get("params") or {}).get("cursor", 0))
        last = first + stub.page_size if stub.page_size else len(stub.tools)
        more = {"nextCursor": str(last)} if last < len(stub.tools) else {}
        incoming.reply({"tools": stub.tools[first:last], **more})
    elif method == "tools/call":
        incoming.reply(text(json.dumps(message["params"].get("arguments"))))
    else:
        incoming.answer({"error": {"code": -32601, "message": f"no {method}"}})


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    stub: StubMcp


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.stub.handle(Incoming(self.server.stub, self, json.loads(body)))

    def do_GET(self) -> None:
        incoming = Incoming(self.server.stub, self, {})
        self.server.stub.resumed.append(incoming.headers)
        self.server.stub.on_get(incoming)

    def do_DELETE(self) -> None:
        incoming = Incoming(self.server.stub, self, {})
        self.server.stub.sessions.discard(incoming.headers.get(SESSION, ""))
        incoming.send(200)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing: the messages are kept."""
