"""A tool server on loopback that misbehaves as told, and remembers every request.

    with StubTools() as stub:
        stub.script("/pay", Answer(status=503), Answer(body=b"paid"))
        ... call stub.url("/pay") ...
        assert stub.count("/pay", key="run/3") == 2

A request takes the next scripted answer of its path; a path without one echoes the
body. What is counted was received whole, whatever became of the answer.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal
from urllib.parse import urlsplit

Then = Literal["answer", "hang", "ping", "cut", "cut_body"]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What to do with one request.

    `body` None echoes the request's. `then`: `answer`; `hang` says nothing for ever;
    `ping` sends a good head and then `: ping` lines for ever, one each
    `ping_seconds`; `cut` closes without a response; `cut_body` closes in the middle
    of the body. All of them wait `delay_seconds` first.
    """

    status: int = 200
    body: bytes | None = None
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_seconds: float = 0.0
    then: Then = "answer"
    ping_seconds: float = 0.05


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One request as it came. `target` is the raw path with its query; `key` the Idempotency-Key."""

    method: str
    target: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    key: str | None


class StubTools:
    """The server; a context manager. Everything it remembers may be read from any thread."""

    def __init__(self, port: int = 0) -> None:
        self.requests: list[Seen] = []
        self.counts: Counter[tuple[str, str | None]] = Counter()
        self.connections = 0
        self.stopping = threading.Event()
        self._scripts: dict[str, deque[Answer]] = defaultdict(deque)
        self._always: dict[str, Answer] = {}
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.stub = self
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, name="stub tools", daemon=True
        )

    def __enter__(self) -> StubTools:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def url(self, path: str = "/") -> str:
        """The URL of `path`."""
        return f"http://127.0.0.1:{self.port}{path}"

    def script(self, path: str, *answers: Answer) -> None:
        """The next answers of `path`, in order."""
        with self._lock:
            self._scripts[path].extend(answers)

    def always(self, path: str, answer: Answer) -> None:
        """The answer of `path` whenever its script has none."""
        with self._lock:
            self._always[path] = answer

    def count(self, path: str, key: str | None = None) -> int:
        """Requests of `path`; with `key`, only those that carried this idempotency key."""
        with self._lock:
            return sum(n for (p, k), n in self.counts.items() if p == path and key in (None, k))

    def bodies(self, path: str) -> list[bytes]:
        """Every body that `path` was sent, in order."""
        with self._lock:
            return [seen.body for seen in self.requests if seen.path == path]

    def take(self, seen: Seen) -> Answer:
        """Counts a request and gives what to do with it. For the handler."""
        with self._lock:
            self.requests.append(seen)
            self.counts[seen.path, seen.key] += 1
            script = self._scripts[seen.path]
            return script.popleft() if script else self._always.get(seen.path, Answer())


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    stub: StubTools


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.stub.connections += 1

    def _serve(self) -> None:
        stub = self.server.stub
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        parts = urlsplit(self.path)
        seen = Seen(
            method=self.command,
            target=self.path,
            path=parts.path,
            query=parts.query,
            headers={name.lower(): value for name, value in self.headers.items()},
            body=body,
            key=self.headers.get("idempotency-key"),
        )
        answer = stub.take(seen)
        if answer.delay_seconds:
            stub.stopping.wait(answer.delay_seconds)
        if answer.then == "hang":
            stub.stopping.wait()
        elif answer.then == "ping":
            self._ping(answer)
        elif answer.then != "cut":
            self._answer(answer, body if answer.body is None else answer.body)
        if answer.then != "answer":
            self.close_connection = True
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815

    def _answer(self, answer: Answer, body: bytes) -> None:
        headers = {"content-type": answer.content_type, **answer.headers}
        try:
            self.send_response(answer.status)
            for name, value in headers.items():
                if value:
                    self.send_header(name, value)
            if answer.status != 204:
                self.send_header("content-length", str(len(body)))
            self.end_headers()
            if answer.status != 204:
                self.wfile.write(body[: len(body) // 2] if answer.then == "cut_body" else body)
            self.wfile.flush()
        except OSError:  # nobody waited for it any more
            self.close_connection = True

    def _ping(self, answer: Answer) -> None:
        with suppress(OSError):
            self.send_response(answer.status)
            self.send_header("content-type", answer.content_type)
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            while not self.server.stub.stopping.wait(answer.ping_seconds):
                self.wfile.write(b"8\r\n: ping\n\n\r\n")
                self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing: the requests are kept."""


def closed_port() -> int:
    """A port of loopback that refuses connections."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(condition: Callable[[], bool], seconds: float = 5.0) -> bool:
    """Whether `condition()` came true within the bound."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.005)
    return False
