"""A model provider and an HTTP tool in one, that say back whatever credentials they were sent.

    with EchoServer(model=[...]) as server:
        ... server.url("/v1") as the model's address, server.url("/tool/body") as a tool's ...

Paths of the tool: `/tool/body` (a 200 with all headers, in several forms), `/tool/error` (500),
`/tool/busy` (503, asking for another try), `/tool/redirect` (elsewhere, with the credentials in the
address), `/tool/hang` (nothing, ever).
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import quote

Model = Callable[[int, str], tuple[int, Any]]
"""(number of the request from 1, the credentials that it had) → status and body."""


class EchoServer:
    """A context manager. `reached`: the paths that were asked for."""

    def __init__(self, model: Model) -> None:
        self.reached: list[str] = []
        self._model = model
        self._asked = 0
        self._stopping = threading.Event()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self._server.server_port}{path}"

    def __enter__(self) -> Self:
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                self.rfile.read(length)
                stub._serve(self)

            do_GET = do_POST  # noqa: N815

            def log_message(self, *args: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopping.set()
        self._server.shutdown()
        self._server.server_close()

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        self.reached.append(handler.path)
        said = " ".join(f"{name}={value}" for name, value in handler.headers.items())
        headers: dict[str, str] = {}
        if handler.path.startswith("/v1/"):
            self._asked += 1
            status, body = self._model(self._asked, handler.headers.get("authorization", ""))
        elif handler.path.startswith("/tool/hang"):
            self._stopping.wait(60)
            return
        elif handler.path.startswith("/tool/error"):
            status, body = 500, f"I was sent {said}"
        elif handler.path.startswith("/tool/busy"):
            status, body = 503, f"busy, {said}"
        elif handler.path.startswith("/tool/redirect"):
            status, body = 302, f"go there: {said}"
            headers["location"] = f"http://other.invalid/{quote(said, safe='')}?key={quote(said)}"
        else:
            packed = base64.b64encode(said.encode()).decode()
            status, body = 200, {"sent": said, "base64": packed, "address": f"/?q={quote(said)}"}
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        handler.send_response(status)
        for name, value in {"content-type": "application/json", **headers}.items():
            handler.send_header(name, value)
        handler.send_header("content-length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)
