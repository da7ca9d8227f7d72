"""A proxy before a Kubernetes API server that does to watches what networks and servers do.

    with ApiProxy(server, ca) as proxy:
        kubeconfig = proxy.kubeconfig(token)
        proxy.freeze()                    # what is connected now is dead, and nobody is told
        proxy.deafen("agentruns")         # their watches bring bookmarks, and no news
        proxy.answer_watches_with(410)

It ends TLS with a certificate of its own, so that it can read requests. In front of that is a
relay of bytes, which can forget a connection without a word to either end, as a load balancer
does. It runs on a thread of its own; whoever uses it is a client of any kind.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import aiohttp
import yaml
from aiohttp import web

HOP = {"host", "connection", "transfer-encoding", "content-length", "accept-encoding", "content-encoding"}
"""Headers of one connection: what comes after makes its own."""


@dataclass
class Faults:
    """What is done to requests now. Names are of resources."""

    deaf: frozenset[str] = frozenset()
    """Their watches bring bookmarks, and no news."""

    watch_answer: int = 0
    """Each watch is answered with this as an event of type ERROR, and ends; 0: it is not."""

    delay: float = 0.0
    """How late each request but watches comes to the server, in seconds."""


@dataclass
class Seen:
    """A request that came by."""

    method: str
    resource: str
    watch: bool


@dataclass
class ApiProxy:
    """See the module's docstring. `folder` gets the certificate."""

    server: str
    ca: bytes
    folder: Path
    faults: Faults = field(default_factory=Faults)
    requests: list[Seen] = field(default_factory=list)
    _links: set[_Link] = field(default_factory=set)
    _watches: dict[int, tuple[web.Request, str]] = field(default_factory=dict)

    # --- what tests call, from any thread

    def kubeconfig(self, token: str, namespace: str) -> Path:
        """A file for clients that come through here."""
        cluster = {
            "server": f"https://127.0.0.1:{self._port}",
            "certificate-authority": str(self._certificate),
        }
        value = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "proxy",
            "contexts": [
                {"name": "proxy", "context": {"cluster": "proxy", "user": "test", "namespace": namespace}}
            ],
            "clusters": [{"name": "proxy", "cluster": cluster}],
            "users": [{"name": "test", "user": {"token": token}}],
        }
        path = self.folder / "kubeconfig"
        path.write_text(yaml.safe_dump(value))
        path.chmod(0o600)
        return path

    def freeze(self) -> int:
        """From now on nothing passes on the connections that are open; new ones work. How many they were."""
        return self._call(lambda: [link.freeze() for link in self._links].count(True))

    def reset_watches(self) -> int:
        """Breaks each watch that is open, with a reset. How many they were."""
        return self._call(self._reset_watches)

    def deafen(self, *resources: str) -> None:
        """Their watches, open or new, bring no news any more; those of others do."""
        self.faults.deaf = frozenset(resources)

    def slow_down(self, seconds: float) -> None:
        """From now on each request but watches is so late."""
        self.faults.delay = seconds

    def answer_watches_with(self, code: int) -> None:
        """From now on, and each watch that is open is broken; 0: as the server answers."""
        self.faults.watch_answer = code
        self.reset_watches()

    def watched(self) -> list[str]:
        """The resources that are watched now, once a watch."""
        return sorted(resource for _, resource in list(self._watches.values()))

    def asked(self, method: str, resource: str, *, watch: bool = False) -> int:
        """How many such requests came by so far."""
        return sum(seen == Seen(method, resource, watch) for seen in list(self.requests))

    # --- the thread

    def __enter__(self) -> Self:
        self._certificate = self.folder / "proxy.crt"
        self._key = self.folder / "proxy.key"
        make_certificate(self._certificate, self._key)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def _call(self, action: Callable[[], int]) -> int:
        done = asyncio.run_coroutine_threadsafe(_as_coroutine(action), self._loop)
        return done.result(10)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await runner.setup()
        own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        own.load_cert_chain(self._certificate, self._key)
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=own)
        await site.start()
        self._inner = int(runner.addresses[0][1])
        context = ssl.create_default_context(cadata=self.ca.decode())
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context, limit=0), timeout=aiohttp.ClientTimeout(total=None)
        )
        front = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self._port = int(front.sockets[0].getsockname()[1])
        self._ready.set()
        await self._stop.wait()
        front.close()
        for link in list(self._links):
            link.abort()
        await self._session.close()
        await runner.cleanup()

    # --- connections

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner = await asyncio.open_connection("127.0.0.1", self._inner)
        link = _Link((reader, writer), inner)
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)

    def _reset_watches(self) -> int:
        found = 0
        for request, _ in list(self._watches.values()):
            peer = request.transport.get_extra_info("peername") if request.transport is not None else None
            for link in [link for link in self._links if peer is not None and link.inner_name == peer]:
                link.abort()
                found += 1
        return found

    # --- requests

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        resource, watch = resource_of(request.path), "watch" in request.query
        self.requests.append(Seen(request.method, resource, watch))
        if not watch:
            await asyncio.sleep(self.faults.delay)
            return await self._pass_on(request)
        self._watches[id(request)] = (request, resource)
        try:
            if code := self.faults.watch_answer:
                return await self._error_event(request, code)
            return await self._pass_on(request, resource)
        finally:
            del self._watches[id(request)]

    async def _pass_on(self, request: web.Request, watched: str = "") -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP}
        body = await request.read()
        async with self._session.request(
            request.method, self.server + request.raw_path, headers=headers, data=body or None
        ) as answer:
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in HOP}
            if not watched:
                return web.Response(status=answer.status, headers=kept, body=await answer.read())
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            with suppress(ConnectionResetError):  # who watched has gone
                async for line in lines(answer.content):
                    if watched not in self.faults.deaf or is_bookmark(line):
                        await response.write(line)
            return response

    async def _error_event(self, request: web.Request, code: int) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        reason = "Expired" if code == 410 else "InternalError"
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
        await response.write(json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")
        return response


Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Link:
    """A client's connection and the one within, as bytes."""

    def __init__(self, outer: Stream, inner: Stream) -> None:
        self._outer, self._inner = outer, inner
        self._flows = True
        self._ends: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.inner_name = inner[1].get_extra_info("sockname")

    def freeze(self) -> bool:
        """Nothing passes any more; False: that was so already."""
        was, self._flows = self._flows, False
        return was

    def abort(self) -> None:
        """Breaks both, the client's with a reset."""
        sock = self._outer[1].get_extra_info("socket")
        if sock is not None and sock.fileno() >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._outer[1].transport.abort()
        self._inner[1].transport.abort()
        if not self._ends.done():
            self._ends.set_result(None)

    async def run(self) -> None:
        """Until either end closes, or for ever once it is frozen."""
        pumps = [
            asyncio.create_task(self._pump(self._outer[0], self._inner[1])),
            asyncio.create_task(self._pump(self._inner[0], self._outer[1])),
        ]
        await asyncio.wait([*pumps, self._ends], return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        self.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                if self._flows:
                    writer.write(data)
                    await writer.drain()
        if not self._flows:
            await self._ends  # an end that closes is no news to the other one


# --- what is pure


def resource_of(path: str) -> str:
    """The resource that a path of the API is about; "": none."""
    parts = [part for part in path.split("/") if part]
    rest = parts[3:] if parts[:1] == ["apis"] else parts[2:]
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        rest = rest[2:]
    return rest[0] if rest else ""


def is_bookmark(line: bytes) -> bool:
    """Of an event of a watch."""
    return bool(json.loads(line).get("type") == "BOOKMARK")


async def lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Lines of any length."""
    buffer = b""
    async for data in content.iter_any():
        *whole, buffer = (buffer + data).split(b"\n")
        for line in whole:
            yield line + b"\n"


async def _as_coroutine(action: Callable[[], int]) -> int:
    return action()


def make_certificate(certificate: Path, key: Path, address: str = "127.0.0.1") -> None:
    """One that signs itself, for an address and a day."""
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=proxy"
    subprocess.run(
        [
            *command.split(),
            "-addext",
            f"subjectAltName=IP:{address}",
            "-keyout",
            str(key),
            "-out",
            str(certificate),
        ],
        check=True,
        capture_output=True,
        timeout=30,
    )


def free_port() -> int:
    """One that nobody listens on now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
