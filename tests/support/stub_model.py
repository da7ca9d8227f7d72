"""A scripted HTTP server that plays a model provider, on loopback.

For tests of anything that calls a model over HTTP. It counts requests, keeps
every one of them, and can be as strict as the strictest of real servers.

    with StubModel(["hello", completion(calls=[("add", '{"a": 1}')]), error(429, "slow down")]) as stub:
        model = build_model("openai:stub", base_url=stub.url)
        ...
    assert stub.count == 3 and stub.requests[0].body["messages"]

A reply is a text (a completion that says it), a dict (a JSON body with status
200) or a `Reply`. Replies come as a sequence, one a request (a request behind
the last gets a 400 that says so), or as a function of the request.

`strict=True` answers 400 to a conversation that some real server would refuse,
and lists why in `stub.refusals`. It knows the paths of OpenAI's chat completions
and of Anthropic's messages.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from tests.support.strict_model import problems


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request as it came. `number` counts from 1; `body` is {} when it is no JSON object; `at`
    is monotonic, in seconds."""

    number: int
    method: str
    path: str
    headers: Mapping[str, str]
    raw: bytes
    body: dict[str, Any]
    at: float = 0.0

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation in it."""
        found: list[dict[str, Any]] = self.body.get("messages", [])
        return found


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One reply. `hang_up` closes the connection without any. `pieces`: instead of a body, sent one a
    segment with `piece_delay_seconds` between them; `cut` closes the connection in the middle of them."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_seconds: float = 0.0
    hang_up: bool = False
    pieces: Iterable[bytes] | None = None
    piece_delay_seconds: float = 0.0
    cut: bool = False

    def data(self) -> bytes:
        if self.body is None:
            return b""
        if isinstance(self.body, bytes):
            return self.body
        return self.body.encode() if isinstance(self.body, str) else json.dumps(self.body).encode()


AnyReply = Reply | Mapping[str, Any] | str
Script = Sequence[AnyReply] | Callable[[Request], AnyReply]


def completion(
    text: str | None = None,
    *,
    calls: Sequence[tuple[str, str] | tuple[str, str, str | None]] = (),
    finish_reason: str | None = None,
    usage: Any = None,
    **message: Any,
) -> dict[str, Any]:
    """A chat completion. A call is (name, raw arguments) or (name, raw arguments, id)."""
    tool_calls = [
        {
            "id": call[2] if len(call) == 3 else f"call_{index}",
            "type": "function",
            "function": {"name": call[0], "arguments": call[1]},
        }
        for index, call in enumerate(calls)
    ]
    answer = {"role": "assistant", "content": text, **message}
    if tool_calls:
        answer["tool_calls"] = tool_calls
    return {
        "id": "chatcmpl-stub",
        "object": "chat.completion",
        "created": 1,
        "model": "stub",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish_reason or ("tool_calls" if calls else "stop"),
                "message": answer,
            }
        ],
        "usage": usage or {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    }


def error(status: int, message: str, *, code: str | None = None, **headers: str) -> Reply:
    """An error of OpenAI's shape. Headers with `_` for `-`: `retry_after="3"`."""
    body = {"error": {"message": message, "type": None, "code": code, "param": None}}
    return Reply(
        status=status, body=body, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )


class _Server(ThreadingHTTPServer):
    request_queue_size = 128


class StubModel:
    """The server; a context manager, so that it always stops."""

    def __init__(
        self, replies: Script, *, strict: bool = False, delay_seconds: float = 0.0, port: int = 0
    ) -> None:
        self._replies = replies
        self._port = port
        self._strict = strict
        self._delay_seconds = delay_seconds
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self.requests: list[Request] = []
        self.refusals: list[str] = []

    @property
    def count(self) -> int:
        """Requests so far, refused ones included."""
        return len(self.requests)

    @property
    def origin(self) -> str:
        """For providers that add the version themselves (Anthropic, Google)."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def url(self) -> str:
        """OpenAI's base URL."""
        return f"{self.origin}/v1"

    def __enter__(self) -> Self:
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                stub._serve(self)

            do_GET = do_POST  # noqa: N815

            def log_message(self, *args: object) -> None:
                return

        self._server = _Server(("127.0.0.1", self._port), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopped.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        raw = handler.rfile.read(int(handler.headers.get("content-length") or 0))
        try:
            body = json.loads(raw)
        except ValueError:
            body = {}
        with self._lock:
            request = Request(
                number=len(self.requests) + 1,
                method=handler.command,
                path=handler.path,
                headers={name.lower(): value for name, value in handler.headers.items()},
                raw=raw,
                body=body if isinstance(body, dict) else {},
                at=time.monotonic(),
            )
            self.requests.append(request)
            reply = self._reply(request)
        self._stopped.wait(reply.delay_seconds or self._delay_seconds)
        try:
            _send(handler, reply, self._stopped)
        except OSError:  # the client went away, as it may
            handler.close_connection = True

    def _reply(self, request: Request) -> Reply:
        if self._strict:
            same = [earlier.body for earlier in self.requests[:-1] if earlier.path == request.path]
            before = same[-1] if same else None
            found = problems(request.path, request.body, before)
            if found:
                self.refusals += found
                return error(400, "; ".join(found), code="invalid_request_error")
        if callable(self._replies):
            reply: AnyReply = self._replies(request)
        elif request.number <= len(self._replies):
            reply = self._replies[request.number - 1]
        else:
            reply = error(
                400, f"the stub has {len(self._replies)} replies, and this is request {request.number}"
            )
        if isinstance(reply, str):
            reply = completion(reply)
        return reply if isinstance(reply, Reply) else Reply(body=dict(reply))


def _send(handler: BaseHTTPRequestHandler, reply: Reply, stopped: threading.Event) -> None:
    if reply.hang_up:
        handler.close_connection = True
        return
    if reply.pieces is not None:
        _send_pieces(handler, reply, stopped)
        return
    data = reply.data()
    handler.send_response(reply.status)
    headers = {"content-type": "application/json", "content-length": str(len(data)), **reply.headers}
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(data)


def _send_pieces(handler: BaseHTTPRequestHandler, reply: Reply, stopped: threading.Event) -> None:
    handler.send_response(reply.status)
    headers = {"content-type": "text/event-stream", "transfer-encoding": "chunked", **reply.headers}
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.flush()
    for piece in reply.pieces or ():
        if piece:
            handler.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            handler.wfile.flush()
        if reply.piece_delay_seconds and stopped.wait(reply.piece_delay_seconds):
            break
    if reply.cut:
        handler.close_connection = True
    else:
        handler.wfile.write(b"0\r\n\r\n")
